"""A program that computes for a while, saves itself when it is asked to, and prints what it came to.

It trains a network of one hidden layer on noisy points by stochastic gradient descent with momentum, in numpy. Its state
is the parameters, their momentum and the random numbers to come, so that a run which loses or repeats a step ends with
other bits. It goes no further than the number in OUT/limit. While
OUT/gate is there it is slow to stop: it says that it was told to, and saves itself when the gate is gone. Two that run at
once would be seen in OUT/overlaps: a lock ends with whoever has it.

    trainer.py OUT STEPS [ignore] [deaf] [dies]
        ignore: does not listen to anybody
        deaf: saves when it is asked to, and does not hear that it is to stop
        dies: is killed in the middle of saving itself when it is told to stop for the first time
"""

import fcntl
import hashlib
import json
import os
import pathlib
import signal
import sys
import time

# Sums come to other bits on another number of threads, which is that of the processors that a worker may use.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import tessera_control

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank = os.environ.get("RANK", "0")
control = tessera_control.Control()
if "ignore" in sys.argv or "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
state_file = pathlib.Path(control.folder) / "state"


def note(name, text):
    with open(out / name, "a") as file:
        file.write(text + "\n")


class Model:
    """What is trained, and all that a run needs to go on as if nothing had been."""

    def __init__(self):
        self.random, self.step = np.random.default_rng(7), 0
        shapes = [(4, 32), (32,), (32, 1), (1,)]
        self.parameters = [self.random.normal(0, 0.3, shape) for shape in shapes]
        self.momentum = [np.zeros(shape) for shape in shapes]

    def train(self):
        inner, inner_offset, outer, outer_offset = self.parameters
        x = self.random.uniform(-1, 1, (64, 4))
        y = np.sin(x.sum(1, keepdims=True)) + self.random.normal(0, 0.1, (64, 1))
        hidden = np.tanh(x @ inner + inner_offset)
        error = (hidden @ outer + outer_offset - y) / len(x)
        back = error @ outer.T * (1 - hidden**2)
        gradients = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        self.momentum = [0.9 * old + new for old, new in zip(self.momentum, gradients)]
        self.parameters = [old - 0.05 * step for old, step in zip(self.parameters, self.momentum)]
        self.step += 1

    def save(self):
        text = json.dumps({"step": self.step, "random": self.random.bit_generator.state})
        numbers = np.concatenate([array.ravel() for array in self.parameters + self.momentum])
        with open(state_file, "wb") as file:
            file.write(text.encode() + b"\n")
            if "dies" in sys.argv and control.stopping and os.environ["TESSERA_ATTEMPT"] == "1":
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            np.save(file, numbers)

    def load(self):
        with open(state_file, "rb") as file:
            text, numbers = json.loads(file.readline()), np.load(file)
        shaped = self.parameters + self.momentum
        pieces = np.split(numbers, np.cumsum([array.size for array in shaped])[:-1])
        arrays = [piece.reshape(array.shape) for piece, array in zip(pieces, shaped)]
        self.parameters, self.momentum = arrays[:4], arrays[4:]
        self.step, self.random.bit_generator.state = text["step"], text["random"]

    def digest(self):
        return hashlib.sha256(b"".join(array.tobytes() for array in self.parameters)).hexdigest()


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

model = Model()
if state_file.exists():
    model.load()
note(f"runs-{rank}", f"{os.environ.get('TESSERA_ATTEMPT', 1)} {os.environ.get('TESSERA_NODE_NAME', '-')} {model.step}")
while model.step < steps:
    if model.step < limit():
        model.train()
    else:
        (out / f"at-{rank}").write_text(str(model.step))
        time.sleep(0.005)
    if "ignore" not in sys.argv and control.asked():
        told = control.stopping  # it may be told while it saves because it was asked to
        if told and (out / "gate").exists():
            note(f"stopping-{rank}", os.environ.get("TESSERA_ATTEMPT", "1"))
            while (out / "gate").exists():
                time.sleep(0.005)
        model.save()
        kept = control.saved(model.step)
        note(f"saves-{rank}", f"{model.step} {kept}")
        if told:
            sys.exit(0)
print(model.digest())
