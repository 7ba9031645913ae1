#!/usr/bin/env python3
"""Stub CUDA libraries for a PyTorch wheel that is installed without its CUDA packages.

The wheel of the index is linked against a dozen CUDA libraries, 2.3 GB of them, and does not load without. A host that only ever
computes on its processor, or on a virtual card, needs none of them. This reads from the wheel which libraries and which versioned
symbols it wants and makes libraries that have them: what asks whether there is a card hears that there is none, anything else ends
the program with its name. Run by the interpreter whose site-packages hold the wheel; needs gcc and binutils.

Prints the folder of the libraries, which LD_LIBRARY_PATH must name.
"""

import collections
import pathlib
import re
import subprocess
import sysconfig
import tempfile

SITE = pathlib.Path(sysconfig.get_paths()["purelib"])
TORCH = SITE / "torch" / "lib"
FOLDER = SITE / "nvidia" / "stub" / "lib"
OF_THE_SYSTEM = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libstdc++.so.6", "libgcc_s.so.1",
    "ld-linux-x86-64.so.2", "libgomp.so.1",
}  # fmt: skip
# Symbols without a version are told apart by how they begin.
LIBRARIES = {
    "cublasLt": "libcublasLt", "cublas": "libcublas", "cudnn": "libcudnn", "cufft": "libcufft",
    "cusparseLt": "libcusparseLt", "cusparse": "libcusparse", "cusolver": "libcusolver", "nccl": "libnccl",
    "pnccl": "libnccl", "nvrtc": "libnvrtc", "cupti": "libcupti", "nvshmem": "libnvshmem_host", "cuFile": "libcufile",
    "cudart": "libcudart", "cuda": "libcudart", "__cuda": "libcudart",
}  # fmt: skip
NO_DEVICE = 100
ANSWERS = {
    "cudaGetDeviceCount": f"int cudaGetDeviceCount(int *n) {{ *n = 0; return {NO_DEVICE}; }}",
    "cudaGetLastError": "int cudaGetLastError(void) { return 0; }",
    "cudaPeekAtLastError": "int cudaPeekAtLastError(void) { return 0; }",
    "cudaDriverGetVersion": "int cudaDriverGetVersion(int *v) { *v = 0; return 0; }",
    "cudaRuntimeGetVersion": "int cudaRuntimeGetVersion(int *v) { *v = 0; return 0; }",
}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read(wheel):
    """Libraries that are wanted, symbols that nobody defines, and which library each version of symbols belongs to."""
    wanted, undefined, defined, versions = set(), set(), set(), collections.defaultdict(set)
    for library in wheel:
        wanted |= set(re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "-dW", library)))
        for line in output("nm", "-D", "--with-symbol-versions", library).splitlines():
            words = line.split()
            if words[0] == "U":
                undefined.add(words[1])
            elif len(words) == 3 and words[1] not in "Uwv":
                defined.add(words[2].split("@")[0])
        file = None
        for line in output("readelf", "--version-info", "-W", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found.group(1)
            elif file and (found := re.search(r"Name: (\S+)", line)):
                versions[found.group(1)].add(file)
    return wanted, {name for name in undefined if name.split("@")[0] not in defined}, versions


def library_of(name, version, missing, versions):
    """The missing library that a symbol belongs to, or nothing."""
    if version:
        return next((file for file in sorted(versions.get(version, ())) if file in missing), None)
    start = next((s for s in sorted(LIBRARIES, key=len, reverse=True) if name.lower().startswith(s.lower())), None)
    if start is None:
        start = "nvshmem" if "nvshmem" in name.lower() else None
    return start and next((file for file in missing if file.startswith(LIBRARIES[start] + ".")), None)


def source(names):
    yield "#include <stdio.h>\n#include <stdlib.h>"
    yield 'static long end(const char *n) { fprintf(stderr, "stub of a CUDA library called: %s\\n", n); abort(); }'
    for name in sorted(names):
        if name in ANSWERS:
            yield ANSWERS[name]
        elif name.startswith("__cuda"):
            yield f"void *{name}() {{ static long room[64]; return room; }}"
        elif name.startswith("cuda"):
            yield f"long {name}() {{ return {NO_DEVICE}; }}"
        else:
            yield f'long {name}() {{ return end("{name}"); }}'


def make(library, by_version):
    with tempfile.TemporaryDirectory() as folder:
        code, script = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "versions")
        code.write_text("\n".join(source(set().union(*by_version.values()))) + "\n")
        script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(n))}; }};\n" for v, n in sorted(by_version.items()) if v))
        command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", FOLDER / library, code, f"-Wl,-soname,{library}"]
        subprocess.run(command + ([f"-Wl,--version-script={script}"] if any(by_version) else []), check=True)


def main():
    wheel = sorted(path for path in TORCH.glob("lib*.so") if path.name.startswith(("libtorch", "libc10")))
    wanted, undefined, versions = read(wheel)
    missing = sorted(wanted - {path.name for path in TORCH.iterdir()} - OF_THE_SYSTEM)
    symbols = {library: collections.defaultdict(set) for library in missing}
    for symbol in undefined:
        name, _, version = symbol.partition("@")
        version = version.lstrip("@")
        if library := library_of(name, version, missing, versions):
            symbols[library][version].add(name)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for library in missing:
        make(library, symbols[library])
    print(FOLDER)


if __name__ == "__main__":
    main()
