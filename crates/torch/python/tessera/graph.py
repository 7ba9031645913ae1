"""Whole steps at once: `torch.tessera.Graph` and `torch.tessera.graph`, named like those of `torch.cuda`.

A step is recorded once and then replayed by one small message. Its operations are not executed while it is recorded, and a replay
executes exactly them: with the same tensors, the same shapes and the same numbers. What would not be the same each time is refused.
"""

import torch
from torch.optim import optimizer as _optimizer

NAME = "tessera"


class Graph:
    """A recorded step. Its memory and what it works on are held until `reset()`, or until the object is gone."""

    def __init__(self, keep_graph=False):
        self._recording = None
        self._hooks = []

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Records what follows instead of executing it, until `capture_end()`."""
        if self._recording is not None:
            raise RuntimeError("this graph holds a step already; reset() it first")
        _dispatcher().begin_capture()
        self._hooks = [
            _optimizer.register_optimizer_step_pre_hook(_check_before),
            _optimizer.register_optimizer_step_post_hook(_check_after),
        ]

    def capture_end(self):
        """Ends the recording and sends it. Raises why it cannot be replayed, when something in it cannot."""
        self._unhook()
        self._recording = _dispatcher().end_capture()

    def replay(self):
        """Executes the step once more, with what its tensors hold now. Waits for nothing."""
        if self._recording is None:
            raise RuntimeError("this graph holds no step: record one first, with torch.tessera.graph(...)")
        self._recording.replay()

    def reset(self):
        """Lets go of the step, and of what only it holds."""
        self._recording = None

    @property
    def operations(self):
        """How many operations a replay executes."""
        return self._recording.operations if self._recording else 0

    def _abandon(self):
        self._unhook()
        _dispatcher().abandon_capture()

    def _unhook(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


class graph:  # noqa: N801  as in torch.cuda
    """`with torch.tessera.graph(g): step()` records `step()` into `g`. There is one queue and one pool of memory, so that `pool`, `stream`
    and `capture_error_mode` change nothing."""

    def __init__(self, tessera_graph, pool=None, stream=None, capture_error_mode="global"):
        self._graph = tessera_graph

    def __enter__(self):
        self._graph.capture_begin()

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._graph.capture_end()
        else:
            self._graph._abandon()


def is_current_stream_capturing():
    """Whether a step is being recorded."""
    return _dispatcher().is_capturing()


def _dispatcher():
    from tessera import device

    return device._dispatcher


def _on_card(group):
    return any(parameter.device.type == NAME for parameter in group["params"])


def _check_before(optimizer, args, kwargs):
    """Steps that are counted at the program would be the same one in each replay."""
    for group in optimizer.param_groups:
        if group.get("capturable") is False and _on_card(group):
            name = type(optimizer).__name__
            _dispatcher().refuse(f"{name} counts its steps at the program, and each replay would be the same one; make it with "
                                 f"{name}(..., capturable=True)")  # fmt: skip


def _check_after(optimizer, args, kwargs):
    """What an optimiser keeps must be on the card already, or each replay would begin anew."""
    name = type(optimizer).__name__
    for parameter, state in optimizer.state.items():
        if not isinstance(state, dict) or not (isinstance(parameter, torch.Tensor) and parameter.device.type == NAME):
            continue
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.device.type == NAME:
                if _dispatcher().made_in_capture(value):
                    _dispatcher().refuse(f"{name} makes its {key!r} in this step, and each replay would begin anew; take a step before you "
                                         "record one")  # fmt: skip
            elif isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool):
                _dispatcher().refuse(f"{name} keeps {key!r} at the program, and each replay would use the same")
