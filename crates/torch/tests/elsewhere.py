"""What a program whose slice server is elsewhere sees of the world: whoever answers where the server is, and a network that breaks."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading

import ready
import serving

# Trains with dropout, with batches that are large enough to travel as bulk data, and looks at a value each step.
PROGRAM = """
import sys, torch
torch.manual_seed(5)
steps = int(sys.argv[1])
data = torch.randn(steps, 64, 128)
model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(64, 128)).to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(steps):
    inputs = data[step].to("tessera")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(step, loss.item().hex(), flush=True)
print(*(p.detach().cpu().double().sum().item().hex() for p in model.parameters()), flush=True)
print("resumed", torch.tessera.statistics()["resumed"], flush=True)
"""
# Records a step.
RECORDING = """
import sys, torch
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)).to("tessera")
optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(16, 32).to("tessera")
def step():
    loss = model(inputs).square().mean()
    optimiser.zero_grad(set_to_none=False)
    loss.backward()
    optimiser.step()
    return loss
step(), step()
graph = torch.tessera.Graph()
with torch.tessera.graph(graph):
    loss = step()
"""
GRAPH = RECORDING + """
for number in range(int(sys.argv[1])):
    graph.replay()
    if number % 4 == 0:
        print(number, loss.item().hex(), flush=True)
print(loss.item().hex(), flush=True)
print("resumed", torch.tessera.statistics()["resumed"], flush=True)
"""


class Asked:
    """Answers where the slice server is, as whoever started the program does."""

    def __init__(self, folder):
        self.path = f"{folder}/ask-{secrets.token_hex(4)}.sock"
        self.answers = {"where": {"wait": "nothing is placed yet"}, "safe": {"safe": 0}}
        self.waits = threading.Semaphore(0)  # how often it has told the program to wait
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def at(self, server, address=None):
        """The slice server is this one from now on."""
        self.answers["where"] = {"address": address or server.address, "token": server.token, "epoch": server.epoch}

    def environment(self, **more):
        return {**os.environ, "TESSERA_SLICES": f"ask:{self.path}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **more}

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as lines:
                (question,) = json.loads(lines.readline())
                answer = self.answers[question]
                connection.sendall(json.dumps(answer).encode() + b"\n")
            if "wait" in answer:
                self.waits.release()


class Kept(serving.Server):
    """A slice server that saves itself into a folder when it is told to stop, and goes on from what is there."""

    def __init__(self, folder, checkpoints, *options, control=None, more_environment=(), **more):
        environment = {"TESSERA_CHECKPOINT_DIR": str(checkpoints), **dict(more_environment)}
        if control:
            environment["TESSERA_CONTROL"] = control
        more.setdefault("listen", "tcp:127.0.0.1:0")
        super().__init__(folder, "--checkpoints", *options, environment=environment, **more)

    def suspend(self):
        """As an agent does: tells it to stop, and waits."""
        self.process.terminate()
        return self.process.wait(60)


class Valve:
    """A network that can hold back what the server says, or what the program says, and break."""

    def __init__(self, server):
        self._target = server.address.removeprefix("tcp:").rsplit(":", 1)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends = []
        self.address = "tcp:127.0.0.1:%d" % self._listener.getsockname()[1]
        self.closed = False
        self.narrow = None  # bytes that still come to the server
        self.held_back = threading.Event()  # something was
        threading.Thread(target=self._serve, daemon=True).start()

    def wait_until_heard(self):
        """Until the server has read all that was passed on to it."""
        (address, port) = self._target
        here = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{int(port):04X}"
        connected = "01"
        while True:
            lines = [line.split() for line in open("/proc/net/tcp")]
            if all(line[4].endswith(":00000000") for line in lines if line[1] == here and line[3] == connected):
                return

    def break_off(self):
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.closed = False

    def _serve(self):
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection((self._target[0], int(self._target[1])))
            self._ends += [near, far]
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, one, other, of_server):
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                if of_server and self.closed:
                    self.held_back.set()
                    continue
                narrow = None if of_server else self.narrow
                other.sendall(piece if narrow is None else piece[:narrow])
                if narrow is not None:
                    self.narrow = max(0, narrow - len(piece))
                    if narrow < len(piece):
                        self.held_back.set()
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Cut:
    """A network that passes bytes on, and breaks each connection after some of them."""

    def __init__(self, server, after):
        self._target = server.address.removeprefix("tcp:").rsplit(":", 1)
        self._after = iter(after)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp:127.0.0.1:%d" % self._listener.getsockname()[1]
        self.cut = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection((self._target[0], int(self._target[1])))
            except OSError:  # the server is over
                near.close()
                continue
            left = [next(self._after, None)]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other, left), daemon=True).start()

    def _pass(self, one, other, left):
        try:
            while piece := one.recv(4096):
                if left[0] is not None:
                    piece = piece[: left[0]]
                    left[0] -= len(piece)
                other.sendall(piece)
                if left[0] == 0:
                    self.cut += 1
                    break
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def start(asked, program, *arguments, stdin=None, **environment):
    return ready.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], env=asked.environment(**environment), cwd=serving.TESTS, text=True,
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def come_to(line, program):
    """Reads what a program prints until this line begins."""
    seen = []
    for printed in program.stdout:
        seen.append(printed)
        if printed.startswith(line):
            return "".join(seen)
    raise AssertionError(f"{line!r} was never printed: {''.join(seen)}{program.stderr.read()}")


def split(printed):
    """What a program printed, and how often it went on with another server."""
    text, resumed = printed.rsplit("resumed ", 1)
    return text, int(resumed)


def undisturbed(folder, program, *arguments):
    with serving.Server(folder) as server:
        text, resumed = split(server.run(program, *arguments))
    assert resumed == 0
    return text
