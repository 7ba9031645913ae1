"""What PyTorch asks only of devices in C++, and does without asking for one in Python: its own classes are replaced by ones that ask.

* Streams and events are honest: there is one queue, and an event is done when all that was issued before it is done. Without this they
  would all be done at once.
* What `torch.accelerator` tells of memory is that of the card, which has no allocator of PyTorch's to ask.
* A storage that is made by itself, as loading a file does, is one of the card. Without this there is no allocator, and the program ends.

Those of other devices are as they were.
"""

import torch

from tessera.interpreted import tensors as card
from tessera.interpreted.client import CLIENT
from tessera.interpreted.kernels import empty

_Stream, _Event = torch.Stream, torch.Event


def _wait(of) -> None:
    if of.device is not None and of.device.type == card.CARD.type:
        CLIENT.synchronize()


class _AsPyTorchs(type):
    """What C++ has made is of PyTorch's own type, the last base, and passes for this one."""

    def __instancecheck__(cls, value):
        return isinstance(value, cls.__bases__[-1])


class _Honest:
    """Is done when the card is."""

    def query(self):
        _wait(self)
        return super().query()

    def synchronize(self):
        _wait(self)
        super().synchronize()


class Event(_Honest, _Event, metaclass=_AsPyTorchs):
    """`torch.Event`."""


class Stream(_Honest, _Stream, metaclass=_AsPyTorchs):
    """`torch.Stream`."""

    def record_event(self, event=None):
        event = Event(device=self.device) if event is None else event
        event.record(self)
        return event


def _new_storage(cls, *args, device=None, **kwargs):
    """Of so many bytes, or of a row of them."""
    if device is None or torch.device(device).type != card.CARD.type:
        return torch._C.StorageBase.__new__(cls, *args, device=device, **kwargs)
    if kwargs or len(args) > 1:
        raise NotImplementedError("a storage of a virtual card is made with a size or with what it holds")
    if not args or isinstance(args[0], int):
        return empty((args[0] if args else 0,), torch.uint8).untyped_storage()
    return torch.tensor(list(args[0]), dtype=torch.uint8, device="cpu").to(card.CARD).untyped_storage()


def _accounts():
    """What `torch.accelerator` asks of an allocator, from whom programs ask it by name."""
    module = torch.get_device_module(card.CARD)
    return {
        "isAllocatorInitialized": lambda: True, "emptyCache": module.empty_cache, "getDeviceStats": module.memory_stats,
        "getMemoryInfo": module.mem_get_info, "resetAccumulatedStats": lambda _index: None, "resetPeakStats": module.reset_peak_memory_stats,
    }  # fmt: skip


def install() -> None:
    """Puts them in the place of PyTorch's."""
    torch.UntypedStorage.__new__ = _new_storage
    torch.Stream, torch.Event = Stream, Event
    synchronize, current = torch.accelerator.synchronize, torch.accelerator.current_stream

    def synchronize_card(device=None, /):
        CLIENT.synchronize()

    def current_stream(device=None, /):
        return Stream(device=current(device).device)

    synchronize_card.__doc__, current_stream.__doc__ = synchronize.__doc__, current.__doc__
    torch.accelerator.synchronize, torch.accelerator.current_stream = synchronize_card, current_stream
    for name, answer in _accounts().items():
        setattr(torch._C, f"_accelerator_{name}", answer)
