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
        self._settings = []

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Records what follows instead of executing it, until `capture_end()`."""
        if self._recording is not None:
            raise RuntimeError("this graph holds a step already; reset() it first")
        _dispatcher().begin_capture()
        self._settings = []
        self._hooks = [
            _optimizer.register_optimizer_step_pre_hook(_check_before),
            _optimizer.register_optimizer_step_post_hook(self._after_step),
        ]

    def capture_end(self):
        """Ends the recording and sends it. Raises why it cannot be replayed, when something in it cannot."""
        self._unhook()
        self._recording = _dispatcher().end_capture()

    def replay(self):
        """Executes the step once more, with what its tensors hold now. Waits for nothing."""
        if self._recording is None:
            raise RuntimeError("this graph holds no step: record one first, with torch.tessera.graph(...)")
        for of_optimizer in self._settings:
            of_optimizer.check()
        self._recording.replay()

    def reset(self):
        """Lets go of the step, and of what only it holds."""
        self._recording = None
        self._settings = []

    @property
    def operations(self):
        """How many operations a replay executes."""
        return self._recording.operations if self._recording else 0

    def _after_step(self, optimizer, args, kwargs):
        _check_after(optimizer)
        self._settings.append(_Settings(optimizer))

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


class _Settings:
    """What an optimiser was set to when its step was recorded, as far as that is at the program: a replay has the same numbers."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._recorded = [self._of(group) for group in optimizer.param_groups]

    def _of(self, group):
        """Schedulers keep more there than the optimiser reads."""
        numbers = {name: _number(group.get(name)) for name in self._optimizer.defaults} if _on_card(group) else {}
        return {name: number for name, number in numbers.items() if number is not None}

    def check(self):
        """Raises when one of them is another one now."""
        for group, recorded in zip(self._optimizer.param_groups, self._recorded, strict=False):
            for name, number in recorded.items():
                if (now := _number(group.get(name))) != number:
                    raise RuntimeError(
                        f"{type(self._optimizer).__name__} has {name}={now} now, and the step was recorded with {number}, which a replay would "
                        "use: record the step again, or give the optimiser a tensor on the card, where it takes one, and change that"
                    )


def _number(value):
    """What of a setting is at the program."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.device.type == "cpu" and value.numel() == 1 else None
    if isinstance(value, (tuple, list)):
        return tuple(map(_number, value))
    return value if isinstance(value, (int, float)) else None


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


def _check_after(optimizer):
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
