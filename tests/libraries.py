#!/usr/bin/env python3
"""Fails where the simulation would compile a library again that the tests have compiled already, because it asks for other features or
another version of it: both are compiled with the same flags (.cargo/config.toml), and lie in one folder."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def libraries(folder, *options):
    """The forms in which a workspace has each library, by its name: a version and features."""
    command = ("cargo", "tree", "--locked", "--edges=normal,dev,no-proc-macro", "--prefix=none", "--format={p} with [{f}]", *options)
    tree = subprocess.run(command, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout
    found = {}
    for line in tree.splitlines():
        # Our own crates have a path behind their version.
        if line and "(/" not in line:
            name, form = line.removesuffix(" (*)").split(maxsplit=1)
            found.setdefault(name, set()).add(form)
    return found


def main():
    tests = libraries(ROOT, "--workspace")
    simulation = libraries(ROOT / "chaos" / "sim")
    apart = {name: forms - tests[name] for name, forms in simulation.items() if name in tests and forms - tests[name]}
    for name, forms in sorted(apart.items()):
        print(f"the simulation alone compiles {name} {sorted(forms)}, and the tests {sorted(tests[name])}: name the same in chaos/sim/Cargo.toml")
    sys.exit(bool(apart))


main()
