"""A program that computes for a while, saves itself when it is asked to, and prints what it came to.

It fits a line to noisy points by stochastic gradient descent. Its state is the parameters and the random numbers to come,
so that a run which loses or repeats a step ends with other bits. It goes no further than the number in OUT/limit. While
OUT/gate is there it is slow to stop: it says that it was told to, and saves itself when the gate is gone. Two that run at
once would be seen in OUT/overlaps: a lock ends with whoever has it.

    trainer.py OUT STEPS [ignore] [deaf] [dies]
        ignore: does not listen to anybody
        deaf: saves when it is asked to, and does not hear that it is to stop
        dies: is killed in the middle of saving itself when it is told to stop for the first time
"""

import fcntl
import json
import os
import pathlib
import random
import signal
import sys
import time

import tessera_control

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank = os.environ.get("RANK", "0")
control = tessera_control.Control()
if "ignore" in sys.argv or "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
state_file = pathlib.Path(control.folder) / "state.json"


def note(name, text):
    with open(out / name, "a") as file:
        file.write(text + "\n")


def save(step, slope, offset):
    version, internal, gauss = random.getstate()
    text = json.dumps({"step": step, "slope": slope.hex(), "offset": offset.hex(), "random": [version, internal, gauss]})
    if "dies" in sys.argv and control.stopping and os.environ["TESSERA_ATTEMPT"] == "1":
        state_file.write_text(text[: len(text) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    state_file.write_text(text)


def load():
    if not state_file.exists():
        random.seed(7)
        return 0, 0.0, 0.0
    state = json.loads(state_file.read_text())
    version, internal, gauss = state["random"]
    random.setstate((version, tuple(internal), gauss))
    return state["step"], float.fromhex(state["slope"]), float.fromhex(state["offset"])


def limit():
    try:
        return int((out / "limit").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return steps


lock = open(out / f"lock-{rank}", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlaps", os.environ.get("TESSERA_ATTEMPT", "1"))

step, slope, offset = load()
note(f"runs-{rank}", f"{os.environ.get('TESSERA_ATTEMPT', 1)} {os.environ.get('TESSERA_NODE_NAME', '-')} {step}")
while step < steps:
    if step < limit():
        x = random.uniform(-1, 1)
        error = slope * x + offset - (3 * x - 2 + random.gauss(0, 0.1))
        slope, offset = slope - 0.05 * error * x, offset - 0.05 * error
        step += 1
    else:
        (out / f"at-{rank}").write_text(str(step))
        time.sleep(0.005)
    if "ignore" not in sys.argv and control.asked():
        told = control.stopping  # it may be told while it saves because it was asked to
        if told and (out / "gate").exists():
            note(f"stopping-{rank}", os.environ.get("TESSERA_ATTEMPT", "1"))
            while (out / "gate").exists():
                time.sleep(0.005)
        save(step, slope, offset)
        kept = control.saved(step)
        note(f"saves-{rank}", f"{step} {kept}")
        if told:
            sys.exit(0)
print(f"{slope.hex()} {offset.hex()}")
