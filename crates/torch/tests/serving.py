"""Slice servers and programs for tests: each server is a process of its own, on a Unix socket or a loopback port."""

import contextlib
import json
import os
import pathlib
import secrets
import subprocess
import sys
import threading
import time

import ready

TESTS = pathlib.Path(__file__).parent
#: What the servers of tests compute on: a processor, or `TESSERA_TEST_DEVICE=cuda:0` on a host that has one.
DEVICE = os.environ.get("TESSERA_TEST_DEVICE", "cpu")
#: A program that speaks to a server by itself, and does not come again.
STRANGER = ("stranger", 0, False)


def finish(program):
    """What a program prints until it ends well. `communicate` would leave out what was read ahead with its lines before."""
    errors = []
    end = threading.Timer(120, program.kill)
    aside = threading.Thread(target=lambda: program.stderr and errors.append(program.stderr.read()))
    end.start()
    aside.start()
    rest = program.stdout.read()
    aside.join()
    end.cancel()
    assert program.wait() == 0, errors
    return rest


class Server:
    """A running slice server."""

    def __init__(self, folder, *options, listen=None, memory="2GiB", epoch=7, token=None, environment=(), errors=None):
        self.token, self.epoch = token or secrets.token_hex(16), epoch
        if listen is None:
            listen = f"unix:{folder}/slice-{secrets.token_hex(4)}.sock"
        command = [sys.executable, "-m", "tessera.slice", "--memory", memory, *map(str, options)]
        command += ["--listen", listen] if listen else []
        command += [] if "--device" in options else ["--device", DEVICE]
        environment = {**os.environ, "TESSERA_TOKEN": self.token, "TESSERA_EPOCH": str(epoch), **dict(environment)}
        environment.pop("TESSERA_SLICES", None)
        self.process = ready.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        line = self.process.stdout.readline()
        if not line.startswith(("listening ", "following")):
            error = self.process.stderr.read() if self.process.stderr else ""
            self.stop()
            raise RuntimeError(f"no slice server: {line}{error}")
        self.address = line.split()[-1]

    def environment(self):
        """What a program of this slice is started with."""
        return {
            **os.environ, "TESSERA_SLICES": self.address, "TESSERA_TOKEN": self.token, "TESSERA_EPOCH": str(self.epoch),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        }  # fmt: skip

    def start(self, code, *arguments, environment=()):
        """Starts a program on it."""
        return ready.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], env={**self.environment(), **dict(environment)}, cwd=TESTS,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, code, *arguments, environment=()):
        """Runs a program on it and gives what it printed; its own failure is the test's."""
        program = self.start(code, *arguments, environment=environment)
        out, err = program.communicate(timeout=120)
        assert program.returncode == 0, err
        return out.strip()

    def lives(self):
        return self.process.poll() is None

    def executed(self, operations, worker_folder):
        """What it counts of itself in this folder, once it has executed so many operations."""
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(FileNotFoundError):
                counts = json.loads(pathlib.Path(worker_folder, ".use").read_text())
                if counts["operations"] >= operations:
                    return counts
            assert time.monotonic() < deadline, f"it never came to operation {operations}"
            time.sleep(0.05)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()
