"""Finds the dispatcher, which is C++ and compiled for the PyTorch that is installed, or compiles it.

PyTorch's C++ interface changes with each minor version. A file for the one that is installed is looked for

    in this package      `prebuilt`, where the wheel of a release has it for the newest versions of PyTorch
    in a folder          `TESSERA_BUILD`, or the user's cache, where what was compiled once is kept

and is compiled into that folder otherwise. All of them lie in folders that are named by versions and sources, so that none is taken that
was made of others. `python -m tessera.build` does it ahead of the first use, and with `--into FOLDER` it also puts the file there as a
package has it.

The sources (`csrc`) are three folders. `program` is the device of a program: it takes operators, works out shapes, keeps what it told and
tells errors. `server` computes for a slice server, alone or with those of a card's other slices. `wire` is the language between them, and
the tables of functions that Rust gives to both; it includes nothing of the other two, which include nothing of each other.
`module.cpp` hands both to Python.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import sys

import torch

HERE = pathlib.Path(__file__).parent
SOURCES = HERE / "csrc"
NAME = "_dispatcher.so"
#: The sources are compiled in this many parts. Most of what a compiler does with one alone is to read PyTorch's headers.
PARTS = 4


class Unavailable(RuntimeError):
    """The dispatcher is nowhere, and cannot be compiled here."""


def folder() -> pathlib.Path:
    """Folder of what was compiled here for this version."""
    kept = os.environ.get("TESSERA_BUILD") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tessera" / "torch"
    return pathlib.Path(kept) / _named(torch.__version__)


def prebuilt(package: pathlib.Path = HERE) -> pathlib.Path | None:
    """Folder of it in a package, which serves all releases of a minor version; none where PyTorch is no release."""
    minor = re.fullmatch(r"(\d+\.\d+)\.\d+(\+.*)?", torch.__version__)
    return minor and package / "prebuilt" / _named(minor[1])


def load(verbose: bool = False):
    """The module, compiled when it is nowhere. Raises what is missing, or why it cannot be compiled, in a sentence."""
    return find() or _make(verbose)


def find():
    """The module, if it is there for the PyTorch that is installed."""
    if (there := prebuilt()) and (there / NAME).exists():
        try:
            return _load(there / NAME)
        except ImportError:
            pass  # This host, or this release of PyTorch, has not what it was linked with: compiled here it fits.
    return _load(folder() / NAME) if (folder() / NAME).exists() else None


def _make(verbose: bool):
    # What is installed beside this Python is found although its environment is not the shell's.
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    missing = [name for name in (os.environ.get("CXX") or "c++", "ninja") if not shutil.which(name)]
    if missing:
        raise Unavailable(
            f"Tessera's device is not compiled for PyTorch {torch.__version__}, and what compiles it is missing ({', '.join(missing)}): "
            f"install g++ and ninja, take a wheel that holds it for this PyTorch, or copy {folder() / NAME} from a host that has it"
        )
    try:
        return _compile(verbose)
    except Exception as error:  # Anything that a compiler, or a full disk, comes up with.
        why = str(error).strip().partition("\n")[0]
        raise Unavailable(
            f"Tessera's device cannot be compiled for PyTorch {torch.__version__} ({why}): `{sys.executable} -m tessera.build` says all of it"
        ) from error


def _named(version: str) -> str:
    digest = hashlib.sha256()
    for path in _sources(".h", ".cpp"):
        digest.update(f"{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    return f"{version}-{sys.implementation.cache_tag}-{digest.hexdigest()[:12]}"


def _sources(*kinds: str) -> list[pathlib.Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.suffix in kinds)


def _load(file: pathlib.Path):
    spec = importlib.util.spec_from_file_location("_dispatcher", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(verbose: bool):
    from torch.utils.cpp_extension import load as compile_and_load

    work = folder().parent / f"work-{torch.__version__}-{sys.implementation.cache_tag}"
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
        _put(work / NAME, folder())
    return module


def _put(file: pathlib.Path, into: pathlib.Path) -> None:
    """Copies the file, so that nobody sees half of it."""
    into.mkdir(parents=True, exist_ok=True)
    temporary = into / f"{NAME}.{os.getpid()}"
    shutil.copy(file, temporary)
    temporary.rename(into / NAME)


def _parts(work: pathlib.Path) -> list[str]:
    """Files that include the sources."""
    sources = _sources(".cpp")
    parts = [work / f"part-{part}.cpp" for part in range(PARTS)]
    for part, path in enumerate(parts):
        text = "".join(f'#include "{source}"\n' for source in sources[part::PARTS])
        # One that is written anew is compiled anew.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return [str(path) for path in parts]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tessera.build", description="Compiles the device for the PyTorch that is installed.")
    parser.add_argument("--into", metavar="FOLDER", type=pathlib.Path, help="put it into this package, too, for a wheel that holds it")
    into = parser.parse_args().into
    place = prebuilt(into or HERE)
    if into and place is None:
        parser.error(f"PyTorch {torch.__version__} is no release, which a wheel could hold it for")
    try:
        # A package gets what was compiled here, and not what it may hold already.
        if not into:
            load(verbose=True)
        elif not (folder() / NAME).exists():
            _make(verbose=True)
    except Unavailable as error:
        sys.exit(str(error))
    if into:
        _put(folder() / NAME, place)
    print(place if into or not (folder() / NAME).exists() else folder())


if __name__ == "__main__":
    main()
