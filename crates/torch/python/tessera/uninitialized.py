"""Parameters that get their shapes at the first use (`nn.LazyLinear` and the like), when their module moves.

Modules move by having tensors swap what they are (`device.start` says why). PyTorch does that by way of `detach`, which these refuse,
because they have nothing to detach: they are made anew where they are to be.
"""

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter, is_lazy


def install() -> None:
    """Has modules with such parameters move like others."""
    LazyModuleMixin._apply = _apply


def _apply(self, fn, recurse=True):
    before = dict(self._parameters)
    try:
        for name, parameter in before.items():
            if is_lazy(parameter):
                with torch.no_grad():
                    like = fn(parameter)
                torch.utils.swap_tensors(parameter, UninitializedParameter(parameter.requires_grad, like.device, like.dtype))
                del self._parameters[name]
        return super(LazyModuleMixin, self)._apply(fn, recurse)
    finally:
        # In the order that they had.
        moved = dict(self._parameters)
        self._parameters.clear()
        self._parameters.update((name, moved.get(name, parameter)) for name, parameter in before.items())
