#!/usr/bin/env python3
"""Holds comments to plain English: a documentation comment opens with a noun, or with a verb in the third person (CONTRIBUTING.md).

    language.py                     fails where a crate has more, or fewer, of other comments than tests/language.txt says
    language.py --show [PATH ...]   prints them, with their places
    language.py --write             writes the numbers of today, where they are smaller
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: How many comments of each crate open without a head. They only become fewer.
ALLOWED = ROOT / "tests" / "language.txt"
HEADLESS = re.compile(r"^(What|How|Whether|Where|Who|Whom|Whose|When|Why|Which|Those|Of|So)\b")


def sources():
    listed = subprocess.run(
        ["git", "ls-files", "*.rs"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    return [pathlib.Path(line) for line in listed.split() if (ROOT / line).exists()]


def crate(path):
    """The folder of the crate of a source."""
    return path.parts[0] if path.parts[1] in ("src", "tests", "build.rs") else "/".join(path.parts[:2])


def headless(path):
    """Where documentation comments open without a head, and with what."""
    before = ""
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        text = line.strip()
        if text[:3] in ("///", "//!") and before[:3] != text[:3] and HEADLESS.match(text[3:].strip()):
            yield number, text
        before = text


def main():
    found = {}
    for path in sources():
        places = [f"{path}:{number}: {text}" for number, text in headless(path)]
        found.setdefault(crate(path), []).extend(places)
    if "--show" in sys.argv:
        wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
        print("\n".join(place for places in found.values() for place in places if not wanted or place.startswith(tuple(wanted))))
        return
    allowed = {name: int(number) for name, number in map(str.split, ALLOWED.read_text().splitlines())}
    counts = {name: len(places) for name, places in sorted(found.items()) if places}
    if "--write" in sys.argv:
        fewer = {name: min(number, counts.get(name, 0)) for name, number in allowed.items()}
        ALLOWED.write_text("".join(f"{name} {number}\n" for name, number in fewer.items() if number))
        return
    wrong = [
        f"{name}: {counts.get(name, 0)} comments open without a noun or a verb, and {allowed.get(name, 0)} may"
        for name in sorted(counts.keys() | allowed.keys())
        if counts.get(name, 0) != allowed.get(name, 0)
    ]
    for line in wrong:
        print(f"{line}: tests/language.py --show names them; --write notes fewer")
    sys.exit(bool(wrong))


main()
