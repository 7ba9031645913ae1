"""Writes the dashboards from the programs beside this one: python deploy/grafana/generate.py

With --check nothing is written; the exit code says whether the files are current. Needs the package `grafana-
foundation-sdk`.
"""

import json
import pathlib
import sys

import cards
import control_plane
import job
import pool
import queues
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
BOARDS = (pool.BOARD, queues.BOARD, cards.BOARD, control_plane.BOARD, job.BOARD)


def texts():
    """The name and the text of every file."""
    for board in BOARDS:
        name = board.uid.removeprefix("tessera-")
        yield (
            FOLDER / f"{name}.json",
            json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
        )


def main():
    wanted = dict(texts())
    if "--check" in sys.argv[1:]:
        found = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
        stale = sorted(path.name for path in {*wanted, *found} if wanted.get(path) != found.get(path))
        if stale:
            sys.exit(
                f"{', '.join(stale)}: not what deploy/grafana/generate.py writes; run it, and do not edit these files"
            )
        return
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
