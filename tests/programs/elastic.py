"""A gang of any number of workers of which the first one computes and saves, and the others follow it to its end.

It adds up the numbers from 1 to STEPS, goes no further than the number in OUT/limit, and prints the sum.

    elastic.py OUT STEPS
"""

import os
import pathlib
import sys
import time

import tessera_control

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
first = os.environ["RANK"] == "0"
control = tessera_control.Control()
state_file = pathlib.Path(control.folder) / "state"
step, total = map(int, state_file.read_text().split()) if first and state_file.exists() else (0, 0)
if first:
    with open(out / "runs", "a") as file:
        file.write(f"{os.environ['WORLD_SIZE']} {step}\n")


def is_over():
    return step >= steps if first else (out / "over").exists()


while not is_over():
    if first and step < int((out / "limit").read_text() or 0):
        step += 1
        total += step
    else:
        time.sleep(0.005)
    if control.asked():
        if first:
            state_file.write_text(f"{step} {total}")
        control.saved()
        if control.stopping:
            sys.exit(0)
if first:
    (out / "over").write_text("")
    print(total)
