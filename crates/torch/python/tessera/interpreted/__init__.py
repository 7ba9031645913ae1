"""The dispatcher in Python, for hosts without a C++ compiler: it speaks the same protocol to the same slice servers as the one in C++, and
offers `tessera.device` the same functions. Either it gives the same results, or it refuses.

What it refuses, and why: steps that are recorded (`torch.tessera.Graph`, `torch.compile(backend="tessera")`) and cards that come and go
(`tessera run --here`), since both stand on what only the compiled dispatcher keeps.
"""

import struct

import torch

from tessera.interpreted import autocast, kernels, replaced, tensors
from tessera.interpreted.client import CLIENT, LOCK, QUEUE
from tessera.interpreted.wire import COMMAND, text

#: How it is asked for, and what people read of it.
NAME = "python"

set_connector, set_libraries, count_from = CLIENT.set_connector, CLIENT.set_libraries, CLIENT.count_from
connect, synchronize, statistics, seed = CLIENT.connect, CLIENT.synchronize, CLIENT.statistics, CLIENT.seed
set_batch, reset_peak = QUEUE.set_batch, QUEUE.reset_peak


def install(name: str, module) -> None:
    """Makes PyTorch's device for Python this one."""
    from torch.utils import backend_registration

    tensors.CARD = torch.device("cpu")  # until it has its name
    backend_registration._setup_privateuseone_for_python_backend(name, module)
    tensors.CARD = torch.device(name, 0)
    kernels.install()
    autocast.install()
    replaced.install()


def need() -> None:
    with LOCK:
        CLIENT.need()


def is_forked() -> bool:
    return CLIENT.forked


def disconnect(why: str) -> None:
    QUEUE.lose(why)


def finish() -> None:
    with LOCK:
        QUEUE.flush()


def memory() -> tuple[int, int, int]:
    return QUEUE.memory


def sequence() -> int:
    return QUEUE.sequence


def status() -> bytes:
    return CLIENT.command("Status")


def snapshot(name: str) -> None:
    CLIENT.command("Snapshot", text(name), when_done=True)


def get_random() -> bytes:
    return CLIENT.command("GetRandom")


def set_random(state: bytes) -> None:
    with LOCK:
        CLIENT.need()
        QUEUE.put(struct.pack("<BI", COMMAND["SetRandom"], len(state)) + state)


def is_capturing() -> bool:
    return False


def _refuse(what: str):
    def refused(*args, **kwargs):
        raise RuntimeError(f"{what} needs the compiled dispatcher, and this program has the one in Python (docs/device.md): install a C++ "
                           "compiler and ninja, or set TESSERA_BUILD to a folder where it is built for this PyTorch")  # fmt: skip

    return refused


begin_capture = end_capture = need_recordings = _refuse("recording a step (torch.tessera.Graph, torch.compile with the backend 'tessera')")
keep_journal = resume = _refuse("a virtual card that may be replaced while the program runs (tessera run --here)")


def abandon_capture() -> None:
    """Nothing is ever recorded."""
