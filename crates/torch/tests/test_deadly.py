"""Operations that end the process of their slice server: the program gets one error with the line, and goes on."""

import functools
import os
import sys
import threading

import pytest
import ready
import serving
from elsewhere import Asked, Kept

# How servers of these tests start: one operator ends them, and another one ends the first of them only.
DEADLY = """
import os, pathlib, signal, torch
library = torch.library.Library("aten", "IMPL")
def deadly(x):
    os.kill(os.getpid(), signal.SIGKILL)
def deadly_once(x, n):
    mark = pathlib.Path(os.environ["DEADLY_ONCE"])
    if not mark.exists():
        mark.touch()
        deadly(x)
    return torch.zeros_like(x)
library.impl("digamma", deadly, "CPU")
library.impl("special_zeta", deadly_once, "CPU")
"""


class Pool:
    """Starts another server whenever one has died, as the pool does."""

    def __init__(self, folder, checkpoints, tmp_path, make=Kept):
        (tmp_path / "sitecustomize.py").write_text(DEADLY)
        self._make = functools.partial(make, folder, checkpoints)
        path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self._environment = {"PYTHONPATH": path, "DEADLY_ONCE": str(tmp_path / "mark")}
        self.asked, self.servers, self._over = Asked(folder), 0, False
        self._start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _start(self):
        self.servers += 1
        self.server = self._make(epoch=self.servers, more_environment=self._environment)
        self.asked.at(self.server)

    def _watch(self):
        while not self._over:
            self.server.process.wait()
            self.asked.answers["where"] = {"wait": "another attempt follows"}
            if not self._over:
                self._start()

    def stop(self):
        self._over = True
        self.server.stop()

    def run(self, program):
        done = ready.run(
            [sys.executable, "-c", program], env=self.asked.environment(), cwd=serving.TESTS, capture_output=True, text=True, timeout=180
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def pool(folder, tmp_path):
    kept = tmp_path / "checkpoint"
    kept.mkdir()
    made = Pool(folder, kept, tmp_path)
    yield made
    made.stop()


def test_an_operation_that_ends_each_server_is_one_error_with_its_line(pool):
    printed = pool.run(
        "import torch\n"
        "a = torch.arange(4.0, device='tessera')\n"
        "print(a.sum().item())\n"
        "b = a + 1\n"
        "c = torch.digamma(b)\n"
        "d = a * 2\n"
        "try:\n    print(c.sum().item())\n"
        "except RuntimeError as error:\n"
        "    print('told', 'ended by it' in str(error), 'digamma' in str(error), 'line' if ':5 in' in str(error) else error)\n"
        "print((a + 1).sum().item())\n"
    )  # fmt: skip
    assert printed == "6.0\ntold True True line\n10.0\n"
    # The first one was not under watch; two more ended by the operation, and the fourth serves.
    assert pool.servers == 4


def test_in_a_recorded_step_it_is_the_line_that_recorded_it(pool):
    printed = pool.run(
        "import torch\n"
        "a = torch.arange(4.0, device='tessera')\n"
        "graph = torch.tessera.Graph()\n"
        "with torch.tessera.graph(graph):\n"
        "    b = a + 1\n"
        "    c = torch.digamma(b)\n"
        "graph.replay()\n"
        "try:\n    print(c.sum().item())\n"
        "except RuntimeError as error:\n"
        "    print('told', 'ended by it' in str(error), 'recorded' in str(error), ':6 in' in str(error))\n"
        "print((a + 1).sum().item())\n"
    )  # fmt: skip
    assert printed == "told True True True\n10.0\n"


def test_an_operation_at_which_a_server_died_once_is_executed_by_the_next(pool):
    printed = pool.run(
        "import torch\n"
        "a = torch.arange(4.0, device='tessera')\n"
        "print((torch.special.zeta(a, a) + 1).sum().item(), a.cpu().tolist())\n"
    )  # fmt: skip
    assert printed == "4.0 [0.0, 1.0, 2.0, 3.0]\n"
    assert pool.servers == 2
