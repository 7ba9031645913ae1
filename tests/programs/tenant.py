"""A program that computes a chain of hashes for as long as it may, and tells how much processor time that took.

    tenant.py OUT NAME [waits]    waits: does nothing before OUT/begin is there
    tenant.py COUNT               prints what the chain is after so many steps
"""

import hashlib
import os
import pathlib
import sys
import time

STEP = 200


def step(state):
    for _ in range(STEP):
        state = hashlib.sha256(state).digest()
    return state


if len(sys.argv) == 2:
    state = b""
    for _ in range(int(sys.argv[1])):
        state = step(state)
    print(state.hex())
    sys.exit()

out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
while "waits" in sys.argv and not (out / "begin").exists():
    time.sleep(0.02)
state, steps = b"", 0
while not (out / "finish").exists():
    state, steps = step(state), steps + 1
    (out / f"{name}.new").write_text(f"{time.process_time()}")
    os.replace(out / f"{name}.new", out / name)
print(steps, state.hex())
