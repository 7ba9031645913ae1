"""What a slice server counts of itself, for the agent of its node: a file in the worker's own folder, written anew every second."""

import json
import os
import pathlib
import threading
import time

FILE = ".use"
_PAUSE = 1.0  # seconds


def keep(executor, share: float) -> None:
    """Writes it for as long as this process lives, where it is a worker's."""
    if folder := os.environ.get("TESSERA_WORKER_DIR"):
        threading.Thread(target=_write, args=(executor, share, pathlib.Path(folder)), name="counts", daemon=True).start()


def _write(executor, share: float, folder: pathlib.Path) -> None:
    new = folder / (FILE + ".new")
    while True:
        try:
            new.write_text(json.dumps({"share": share, **executor.meters}))
            new.replace(folder / FILE)
        except OSError:
            pass  # The disk is full, or the folder is going: the agent does without.
        time.sleep(_PAUSE)
