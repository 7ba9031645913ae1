"""A program that need not know of checkpoints, and saves itself when it is told to stop: for when it cannot be dumped.

It fits a line to noisy points by stochastic gradient descent, and goes no further than the number in OUT/limit. While
OUT/connect is there it is connected to the Unix socket SOCKET of somebody else, which nobody can dump. While OUT/silent is
there it ends as it is told and writes nothing.

    falls_back.py OUT STEPS SOCKET
"""

import json
import os
import pathlib
import random
import signal
import socket
import sys
import time

out, steps, elsewhere = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
state_file = pathlib.Path(os.environ.get("TESSERA_CHECKPOINT_DIR", ".")) / "state.json"
step, slope, offset = 0, 0.0, 0.0
random.seed(7)
if state_file.exists():
    step, slope, offset, (version, internal, gauss) = json.loads(state_file.read_text())
    random.setstate((version, tuple(internal), gauss))
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
connection = None
with open(out / "runs", "a") as file:
    file.write(f"{os.environ.get('TESSERA_ATTEMPT', 1)} {step}\n")
while step < steps:
    if told:
        if not (out / "silent").exists():
            state_file.write_text(json.dumps([step, slope, offset, random.getstate()]))
        sys.exit(0)
    if not (out / "connect").exists():
        connection = None
    elif connection is None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(elsewhere)
    if step < int((out / "limit").read_text()):
        x = random.uniform(-1, 1)
        error = slope * x + offset - (3 * x - 2 + random.gauss(0, 0.1))
        slope, offset = slope - 0.05 * error * x, offset - 0.05 * error
        step += 1
    else:
        (out / "at").write_text(f"{step} {'connected' if connection else 'alone'}")
        time.sleep(0.005)
print(slope.hex(), offset.hex())
