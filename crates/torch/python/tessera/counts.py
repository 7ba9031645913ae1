"""What a slice server counts of itself, for the agent of its node: a file in the worker's own folder, written anew every second."""

import json
import os
import pathlib
import threading
import time

import torch

FILE = ".use"
_PAUSE = 1.0  # seconds


def keep(executor, share: float, device: torch.device) -> None:
    """Writes it for as long as this process lives, where it is a worker's."""
    if folder := os.environ.get("TESSERA_WORKER_DIR"):
        said = {"share": share, "processor_time": device.type == "cpu"}
        threading.Thread(target=_write, args=(executor, said, pathlib.Path(folder)), name="counts", daemon=True).start()


def _write(executor, said: dict, folder: pathlib.Path) -> None:
    new = folder / (FILE + ".new")
    while True:
        try:
            new.write_text(json.dumps({**said, **executor.meters}))
            new.replace(folder / FILE)
        except OSError:
            pass  # The disk is full, or the folder is going: the agent does without.
        time.sleep(_PAUSE)
