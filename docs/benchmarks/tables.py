"""Writes the tables of docs/benchmarks.md from the raw figures beside this file: python3 docs/benchmarks/tables.py

Between `<!-- raw: NAME -->` and `<!-- end -->` stands what NAME.json says: the command, the commit, the machine, how quiet
it was, and the benchmark's own tables; without that file, what was written there stays. With --check nothing is written; the exit code says whether the page is current.
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent / "benchmarks.md"


def machine(line):
    disk = line["fdatasync"]
    return (
        f"{line['processors']} x {line['processor']}, {line['memory_gib']:.0f} GiB, Linux {line['kernel']}; "
        f"4 KiB are synced in {disk['p50_ms']:.2f} ms (p50), {disk['p99_ms']:.2f} ms (p99)"
    )


def quiet(sections):
    """How idle the machine was before each section; one that did not become quiet in time is named."""
    idle = [section["idle_percent"] for section in sections]
    loud = [f"{section['section']} ({section['idle_percent']:.0f} %)" for section in sections if not section["quiet"]]
    text = f"idle before it for {min(idle):.0f} to {max(idle):.0f} %"
    return text + (f"; **not quiet** before {', '.join(loud)}" if loud else "")


def table(line):
    header, rows = line["header"], line["rows"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def shown(name):
    """What stands in the page of one raw file."""
    lines = [json.loads(text) for text in (HERE / f"{name}.json").read_text(encoding="utf-8").splitlines()]
    of = lambda what: [line for line in lines if line["what"] == what]
    (run,) = of("command")
    parts = [
        f"`{run['command']}` at {run['commit']} ([raw](benchmarks/{name}.json)): {machine(of('machine')[0])}; {quiet(of('section'))}."
    ]
    return "\n\n".join(parts + [table(line) for line in of("table")])


def main():
    page = PAGE.read_text(encoding="utf-8")
    raw = lambda found: (HERE / f"{found[2]}.json").exists()
    fill = lambda found: f"{found[1]}\n{shown(found[2])}\n{found[3]}" if raw(found) else found[0]
    written = re.sub(r"(<!-- raw: ([\w-]+) -->)\n.*?(<!-- end -->)", fill, page, flags=re.S)
    if "--check" in sys.argv[1:]:
        sys.exit("docs/benchmarks.md is not what the raw figures say: run this without --check" if written != page else 0)
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
