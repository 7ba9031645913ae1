"""Which dispatcher a program has: the one in C++ (`csrc`), which is compiled once for each PyTorch, or the one in Python (`interpreted`),
which needs no compiler, gives the same results and takes longer for each operation.

    TESSERA_DISPATCHER   compiled or python; without it, the compiled one where it is built or can be, and otherwise the one in Python
"""

import os
import pathlib

import torch

from tessera import build, operators
from tessera.remarks import remark

VARIABLE = "TESSERA_DISPATCHER"


def load():
    """The dispatcher of this program; says so when that is not the compiled one because it cannot be had."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "compiled", "python"):
        raise ValueError(f"{VARIABLE} is compiled, python, or not there; not {wanted!r}")
    if wanted == "python":
        return _interpreted()
    try:
        return build.load()
    except Exception as error:  # Whatever a compiler, or a system without one, comes up with.
        if wanted:
            raise
        why = str(error).strip().partition("\n")[0]
    remark(f"tessera: the dispatcher in Python is used, which takes longer for each operation: {why}. {VARIABLE}=python chooses it without a word")
    return _interpreted()


def _interpreted():
    from tessera import interpreted

    return interpreted


def install(dispatcher, name: str, module) -> None:
    """Makes PyTorch's device of this name one of the dispatcher, with `module` as its `torch.name`."""
    dispatcher.set_libraries([str(pathlib.Path(file).parent) + os.sep for file in (torch.__file__, __file__)])
    if is_interpreted(dispatcher):
        return dispatcher.install(name, module)
    torch.utils.rename_privateuse1_backend(name)
    dispatcher.install(operators.bound(), operators.WORDS)
    torch._register_device_module(name, module)
    torch.utils.generate_methods_for_privateuse1_backend()
    return None


def is_interpreted(dispatcher) -> bool:
    return getattr(dispatcher, "NAME", "") == "python"
