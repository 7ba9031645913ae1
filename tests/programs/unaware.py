"""A program that computes for a while and prints what it came to. It knows nothing of signals, checkpoints or Tessera.

It fits a line to noisy points by stochastic gradient descent in numpy, whose library has threads of its own, and keeps what it went through in a file that stays open: a
run which loses or repeats a step, or a byte of that file, ends with other text. It goes no further than the number in
OUT/limit.

    unaware.py OUT STEPS [tree] [stray] [socket PATH] [big MIB] [library PATH] [names] [log]
        tree: a child of its own takes the points through a pipe and gives back what follows through a TCP connection
        stray: leaves behind a process whose parent is gone
        socket: is connected to a Unix socket of somebody else
        big: holds so much memory
        library: has loaded it
        names: has a named pipe and a listening Unix socket in its folder, and uses both at the end
        log: keeps OUT/log open and writes a line into it for each step, and each time that it waits
"""

import ctypes
import hashlib
import os
import pathlib
import socket
import sys
import time

import numpy as np

out, steps, words = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def limit():
    try:
        return int((out / "limit").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return steps


def follows(slope, offset, x, y):
    parameters, point = np.array([slope, offset]), np.array([x, 1.0])
    return tuple((parameters - 0.05 * (parameters @ point - y) * point).tolist())


class Child:
    """A process that computes what follows."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        inbox, outbox = os.pipe()
        if os.fork() == 0:
            os.close(outbox)
            answers = socket.create_connection(listener.getsockname())
            listener.close()
            for line in os.fdopen(inbox):
                numbers = follows(*map(float.fromhex, line.split()))
                answers.sendall((" ".join(number.hex() for number in numbers) + "\n").encode())
            os._exit(0)
        os.close(inbox)
        self.questions = os.fdopen(outbox, "w")
        self.answers = listener.accept()[0].makefile()

    def __call__(self, *numbers):
        print(*(number.hex() for number in numbers), file=self.questions, flush=True)
        return tuple(map(float.fromhex, self.answers.readline().split()))


def leave_stray():
    """A process of its own session that outlives its parent, which is waited for: nobody is a zombie."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            while out.exists():
                time.sleep(0.1)
        os._exit(0)
    os.waitpid(child, 0)


if "stray" in words:
    leave_stray()
if "socket" in words:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(words[words.index("socket") + 1])
if "library" in words:
    ctypes.CDLL(words[words.index("library") + 1])
if "names" in words:
    os.mkfifo("pipe")
    pipe = os.open("pipe", os.O_RDWR)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("here.sock")
    listener.listen()
memory = np.random.default_rng(1).bytes(int(words[words.index("big") + 1]) << 20) if "big" in words else b""
follow = Child() if "tree" in words else follows
trace = open("trace", "w+")
log = open(out / "log", "w") if "log" in words else None
random = np.random.default_rng(7)
step, slope, offset = 0, 0.0, 0.0
with open(out / "runs", "a") as file:
    file.write(f"{os.environ.get('TESSERA_ATTEMPT', 1)} {os.environ.get('TESSERA_NODE_NAME', '-')}\n")
while step < steps:
    if step < limit():
        x = random.uniform(-1, 1)
        slope, offset = follow(slope, offset, x, 3 * x - 2 + random.normal(0, 0.1))
        step += 1
        trace.write(f"{step} {slope.hex()} {offset.hex()}\n")
    else:
        (out / "at").write_text(str(step))
        time.sleep(0.005)
    if log:
        print(step, file=log, flush=True)
if "names" in words:
    os.write(os.open("pipe", os.O_WRONLY), b"through")
    assert os.read(pipe, 7) == b"through"
    socket.socket(socket.AF_UNIX).connect("here.sock")
    listener.accept()
trace.seek(0)
print(slope.hex(), offset.hex(), hashlib.sha256(trace.read().encode() + memory).hexdigest())
