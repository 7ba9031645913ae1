#!/usr/bin/env python3
"""Fails where the simulation would compile a library again that the tests have compiled already, because it asks for other features or
another version of it: both are compiled with the same flags (.cargo/config.toml), and lie in one folder."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def libraries(folder, *options):
    """The features of each library, by its name and version, of all the forms in which a workspace has it."""
    command = ("cargo", "tree", "--locked", "--edges=normal,dev,no-proc-macro", "--prefix=none", "--format={p}|{f}", *options)
    tree = subprocess.run(command, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout
    found = {}
    for line in tree.splitlines():
        package, _, features = line.removesuffix(" (*)").partition("|")
        if package and "(/" not in package:
            found.setdefault(package.removesuffix(" (proc-macro)"), set()).add(features)
    return found


def main():
    tests = libraries(ROOT, "--workspace")
    simulation = libraries(ROOT / "chaos" / "sim")
    names = {package.split()[0] for package in tests}
    wrong = []
    for package, forms in sorted(simulation.items()):
        if package.split()[0] in names:
            wrong += [f"{package} with [{features}]" for features in sorted(forms - tests.get(package, set()))]
    for form in wrong:
        of_tests = sorted(features for package, forms in tests.items() if package.split()[0] == form.split()[0] for features in forms)
        print(f"the simulation alone compiles {form}; the tests have it with {of_tests}: name the same in chaos/sim/Cargo.toml")
    sys.exit(bool(wrong))


main()
