#!/usr/bin/env python3
"""Fails where a document names a test that is not there: a row of what happens, or of what is bounded, is only as good as its proof."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Documents with tables whose last column names tests, in backticks.
DOCUMENTS = ("docs/bounds.md", "docs/failure-model.md", "docs/found-bugs.md")
# Names of tests are sentences: four words or more, in snake case.
TEST = re.compile(r"`((?:[a-z0-9]+_){3,}[a-z0-9]+)`")


def defined():
    """Names of all functions in Rust and Python."""
    files = subprocess.run(("git", "ls-files", "-co", "--exclude-standard", "*.rs", "*.py"), cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout
    texts = ((ROOT / file).read_text(encoding="utf-8") for file in files.splitlines() if (ROOT / file).is_file())
    return {name for text in texts for name in re.findall(r"\b(?:fn|def) (\w+)", text)}


def main():
    known, missing = defined(), []
    for document in DOCUMENTS:
        for number, line in enumerate((ROOT / document).read_text(encoding="utf-8").splitlines(), 1):
            proofs = line.rstrip().removesuffix("|").rsplit("|", 1)[-1] if line.startswith("|") else ""
            missing += [f"{document}:{number} names no test: {name}" for name in TEST.findall(proofs) if name not in known]
    print(*missing, sep="\n", end="\n" if missing else "")
    sys.exit(bool(missing))


main()
