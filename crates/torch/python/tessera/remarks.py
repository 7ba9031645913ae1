"""What this package says on standard error beside what it does."""

import contextlib
import sys


def remark(line: str) -> None:
    """Says a line. On a disk that is full, or where nobody reads any more, it is lost: no program of a user and no server ends for it."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
