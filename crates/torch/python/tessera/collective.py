"""Collectives between programs, each with a virtual card of its own: what `torch.distributed` does with tensors of this device.

Programs know nothing of what is behind each other's cards, which may be cards of several kinds and of several nodes. So tensors travel by gloo
between the hosts of the programs: each is fetched from the card when its collective begins, and what came of it is sent back. Every process group
that a program makes has this for its card, and gloo for the processor, if it names one of them or none.
"""

import functools
import os
import weakref

import torch
import torch.distributed as distributed
from torch.futures import Future
from torch.utils import _pytree as pytree

#: Collectives whose first argument is what they read and what they write.
_IN_PLACE = ("allreduce", "allreduce_coalesced", "broadcast", "reduce")
#: Those that write their first argument and read the second.
_INTO = (
    "all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allgather", "allgather_coalesced", "alltoall", "gather",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "scatter",
)  # fmt: skip


#: What exchanges something, or may.
_standing = weakref.WeakSet()
# In a process that was forked their threads are not there, and what they exchange is the parent's.
os.register_at_fork(after_in_child=_standing.clear)


def end() -> None:
    """Ends what exchanges something while Python is there: threads of gloo that let go of a tensor later would need it, and end the program."""
    for backend in list(_standing):
        backend.shutdown()


def install(name: str) -> None:
    """Has process groups of this program reach the device."""
    if not distributed.is_available() or not distributed.is_gloo_available():
        return
    backend, config = _backend(), distributed.distributed_c10d.BackendConfig
    distributed.Backend.register_backend(name, backend, devices=[name])
    made = config.__init__

    @functools.wraps(made)
    def make(self, wanted):
        made(self, wanted)
        if distributed.Backend.FAKE in self.device_backend_map.values():
            return  # Nobody is there to exchange anything with.
        for device, own in (("cpu", distributed.Backend.GLOO), (name, name)):
            self.device_backend_map.setdefault(device, own)

    config.__init__ = make


def _backend() -> type:
    """The backend, whose base is there only where PyTorch has `torch.distributed`."""
    from torch._C._distributed_c10d import Backend, ProcessGroupGloo

    class Receiving(distributed.Work):
        """What comes is on the card once it was waited for."""

        def __init__(self, work, tensors, there):
            super().__init__()
            self._work, self._tensors, self._there = work, tensors, there

        def wait(self, *timeout):
            if self._work is not None:
                self._work.wait(*timeout)
                _bring(self._tensors, self._there)
                self._work = None
            return True

    class CardBackend(Backend):
        """Does what gloo does, with tensors of the card."""

        # PyTorch's own asks this class, without end.
        supports_coalescing = False

        def __init__(self, store, rank, size, timeout):
            super().__init__(rank, size)
            self._gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)
            _standing.add(self)

        def getBackendName(self):  # noqa: N802
            return "tessera"

        def shutdown(self):
            """Waits for the threads of gloo, which begin nothing any more."""
            self._gloo = None

        abort = shutdown

        @property
        def _hosts(self):
            if self._gloo is None:
                raise RuntimeError("this process group was destroyed")
            return self._gloo

        # These are not waited for here: who sends and receives at once would wait for the other, who does the same.

        def send(self, tensors, to, tag):
            return self._hosts.send(_read(tensors), to, tag)

        def recv(self, tensors, source, tag):
            there = _room(tensors)
            return Receiving(self._hosts.recv(there, source, tag), tensors, there)

        def recv_anysource(self, tensors, tag):
            there = _room(tensors)
            return Receiving(self._hosts.recv_anysource(there, tag), tensors, there)

        def barrier(self, options):
            torch.tessera.synchronize()
            return _done(self._hosts.barrier(options), [], [])

    for method in _IN_PLACE:
        setattr(CardBackend, method, _in_place(method))
    for method in _INTO:
        setattr(CardBackend, method, _into(method))
    return CardBackend


def _in_place(method: str):
    def collective(self, tensors, options):
        there = _read(tensors)
        return _done(getattr(self._hosts, method)(there, options), tensors, there)

    return collective


def _into(method: str):
    def collective(self, outputs, inputs, *more):
        there = _room(outputs)
        return _done(getattr(self._hosts, method)(there, _read(inputs), *more), outputs, there)

    return collective


def _read(tensors):
    """The same tensors at the processor."""
    return pytree.tree_map(lambda tensor: tensor.cpu(), tensors)


def _room(tensors):
    """Room at the processor for what is to become of tensors."""
    return pytree.tree_map(lambda tensor: torch.empty_like(tensor, device="cpu"), tensors)


def _done(work, tensors, there):
    """Waits for what the hosts exchange, and sends what came of it to the card, where all that follows is executed after it."""
    work.wait()
    _bring(tensors, there)
    return torch._C._distributed_c10d._create_work_from_future(_finished(tensors))


def _bring(tensors, there) -> None:
    for tensor, came in zip(pytree.tree_leaves(tensors), pytree.tree_leaves(there), strict=True):
        tensor.copy_(came)


def _finished(tensors) -> Future:
    finished = Future(devices=[torch.device("tessera", 0)])
    finished.set_result(tensors)
    return finished
