#!/usr/bin/env python3
"""Holds comments to plain English: a documentation comment opens with a noun, or with a verb in the third person (CONTRIBUTING.md).

    language.py                     fails where a crate has more, or fewer, of other comments than tests/language.txt says
    language.py --show [PATH ...]   prints them, with their places
    language.py --write             writes the numbers of today, where they are smaller
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: The number of comments of each crate that open without a head. It only goes down.
ALLOWED = ROOT / "tests" / "language.txt"
HEADLESS = re.compile(r"^(What|How|Whether|Where|Who|Whom|Whose|When|Why|Which|Those|Of|So)\b")


def sources():
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout
    return [pathlib.Path(line) for line in listed.split() if (ROOT / line).exists()]


def crate(path):
    """The folder of the crate of a source."""
    return path.parts[0] if path.parts[1] in ("src", "tests", "build.rs") else "/".join(path.parts[:2])


def headless(path):
    """The documentation comments that open without a head, with their places."""
    before = ""
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        text = line.strip()
        if text[:3] in ("///", "//!") and before[:3] != text[:3] and HEADLESS.match(text[3:].strip()):
            yield f"{path}:{number}: {text}"
        before = text


def show(wanted):
    for path in sources():
        if not wanted or str(path).startswith(wanted):
            for place in headless(path):
                print(place)


def main():
    if sys.argv[1:2] == ["--show"]:
        return show(tuple(sys.argv[2:]))
    counts = collections.Counter(crate(path) for path in sources() for _ in headless(path))
    allowed = {name: int(number) for name, number in map(str.split, ALLOWED.read_text().splitlines())}
    if sys.argv[1:] == ["--write"]:
        fewer = {name: min(number, counts[name]) for name, number in allowed.items()}
        ALLOWED.write_text("".join(f"{name} {number}\n" for name, number in fewer.items() if number))
        return None
    wrong = [name for name in sorted(counts.keys() | allowed.keys()) if counts[name] != allowed.get(name, 0)]
    for name in wrong:
        print(f"{name}: {counts[name]} comments open without a noun or a verb, and {allowed.get(name, 0)} may: --show names, --write notes fewer")
    return bool(wrong)


sys.exit(main())
