"""Writes docs/reasons.md from the comments in the sources, so that no reason is undocumented: python3 deploy/reasons.py

With --check nothing is written; the exit code says whether the document is current.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = """# Reasons

Every refusal, every state of a job and every wait has a code for machines and a sentence for people. The codes never change their
meaning; new ones may be added. This page is made from the sources by `python3 deploy/reasons.py`.

"""


def errors():
    """Values of ErrorReason with their comments."""
    text = (ROOT / "proto/tessera/v1/error_reason.proto").read_text(encoding="utf-8")
    for comment, name in re.findall(r"((?:  // [^\n]*\n)+)  ERROR_REASON_(\w+) = [1-9]\d*;", text):
        words = " ".join(line.strip()[3:] for line in comment.splitlines())
        code, sentence = words.split(". ", 1)
        yield name, code, sentence


def rows(path):
    """Codes of the table in a source, each with its comment: `Variant` with what goes with it, `= "CODE"` and what follows."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = {}
    for comment, code in re.findall(r"((?: +/// [^\n]*\n)+) +[A-Z]\w*(?: \{[^}]*\}|\(\w+\))? = \"([A-Z_]+)\"[\s,]", text):
        found.setdefault(code, []).append(" ".join(line.strip()[4:] for line in comment.splitlines()))
    # Several refusals may have one code.
    for code, comments in found.items():
        yield code, " ".join(comments)


def table(heads, rows):
    rows = list(rows)
    assert rows, f"a table of {heads[0]}s without rows: is what it is made from written otherwise now?"
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join([f"`{row[0]}`", *row[1:]]) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def document():
    return "".join([
        HEAD,
        "## Errors of the API\n\nIn `google.rpc.ErrorInfo` with domain `tessera.v1`.\n\n",
        table(["reason", "gRPC code", "meaning"], errors()),
        "\n## Reasons of a job's state\n\nIn `Job.reason.code`, in its history and in watch events.\n\n",
        table(["reason", "meaning"], rows("crates/ledger/src/reason.rs")),
        "\n## Why a job waits\n\nThe binding constraint that `tessera job why` names.\n\n",
        table(["constraint", "meaning"], rows("crates/explain/src/words.rs")),
        "\n## Refusals of the ledger\n\nParts of a plan, and commands of actors, are refused with these; those that a caller can meet are"
        " among the errors above.\n\n",
        table(["code", "meaning"], rows("crates/ledger/src/rejection.rs")),
    ])


def main():
    path = ROOT / "docs/reasons.md"
    if "--check" in sys.argv:
        if path.read_text(encoding="utf-8") != document():
            sys.exit("docs/reasons.md is not current: run python3 deploy/reasons.py")
        return
    path.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
