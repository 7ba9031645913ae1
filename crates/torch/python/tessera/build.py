"""Builds the dispatcher in C++ for the PyTorch that is installed, once, and keeps it.

PyTorch's C++ interface changes with every version, so that no wheel can carry the dispatcher ready made. What is built lies in a
folder named by the versions and the sources, under `TESSERA_BUILD` or the user's cache; `python -m tessera.build` builds it ahead of
the first use.

The sources (`csrc`) are three folders. `program` is the device of a program: it takes operators, works out shapes, keeps what it told and
tells errors. `server` computes for a slice server, alone or with those of a card's other slices. `wire` is the language between them, and
the tables of functions that Rust gives to both; it includes nothing of the other two, which include nothing of each other.
`module.cpp` hands both to Python.
"""

import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import sys

import torch

SOURCES = pathlib.Path(__file__).parent / "csrc"
#: The sources are compiled in this many parts. Most of what a compiler does with one alone is to read PyTorch's headers.
PARTS = 4


def folder() -> pathlib.Path:
    """Where this version is kept."""
    kept = os.environ.get("TESSERA_BUILD") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tessera" / "torch"
    text = b"".join(path.read_bytes() for path in sorted(SOURCES.rglob("*")) if path.is_file())
    digest = hashlib.sha256(text).hexdigest()[:12]
    return pathlib.Path(kept) / f"{torch.__version__}-{sys.implementation.cache_tag}-{digest}"


def is_built() -> bool:
    """Whether it is there for the PyTorch that is installed."""
    return (folder() / "_dispatcher.so").exists()


def load(verbose: bool = False):
    """The module, built when it is not there. Raises what is missing, or what the compiler said."""
    ready = folder() / "_dispatcher.so"
    if not ready.exists():
        # What is installed beside this Python is found although its environment is not the shell's.
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
        missing = [name for name in (os.environ.get("CXX", "c++"), "ninja") if not shutil.which(name)]
        if missing:
            raise RuntimeError(f"the dispatcher of the device is compiled once, and {' and '.join(missing)} is not there: install it, or "
                               f"copy {ready} from a host with the same PyTorch")  # fmt: skip
        return _build(ready, verbose)
    spec = importlib.util.spec_from_file_location("_dispatcher", ready)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(ready: pathlib.Path, verbose: bool):
    from torch.utils.cpp_extension import load as compile_and_load

    work = ready.parent.parent / f"work-{torch.__version__}-{sys.implementation.cache_tag}"
    work.mkdir(parents=True, exist_ok=True)
    flags = ["-O2", "-g0", "-std=c++20", "-Wall", "-Wno-sign-compare", "-Wno-unused-variable"]
    with open(work / "building", "w") as file:
        # Programs that start at the same time wait for the first. PyTorch has a lock of its own, which a builder that was killed
        # leaves behind for ever; nobody else can hold it here.
        fcntl.flock(file, fcntl.LOCK_EX)
        (work / "lock").unlink(missing_ok=True)
        module = compile_and_load(
            "_dispatcher", _parts(work), build_directory=str(work), extra_cflags=flags, extra_include_paths=[str(SOURCES)], verbose=verbose
        )
        ready.parent.mkdir(parents=True, exist_ok=True)
        temporary = ready.with_suffix(f".{os.getpid()}")
        shutil.copy(work / "_dispatcher.so", temporary)
        temporary.rename(ready)
    return module


def _parts(work: pathlib.Path) -> list[str]:
    """Files that include the sources."""
    sources = sorted(SOURCES.rglob("*.cpp"))
    parts = [work / f"part-{part}.cpp" for part in range(PARTS)]
    for part, path in enumerate(parts):
        text = "".join(f'#include "{source}"\n' for source in sources[part::PARTS])
        # One that is written anew is compiled anew.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return [str(path) for path in parts]


if __name__ == "__main__":
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    load(verbose=True)
    print(folder())
