"""Whose a card is that programs of other hosts use: no second program gets it, and nothing of the first is lost, before the first is gone."""

import os
import signal
import subprocess
import sys

import pytest
import ready
import serving
from elsewhere import Asked, Kept, Valve

HOLDS = """
import sys, torch
held = torch.full((4,), float(sys.argv[1]), device="tessera")
print("has", held.sum().item(), flush=True)
for line in sys.stdin:
    print("has", held.sum().item(), flush=True)
"""


class Program:
    """One that has something on the card, and says what that is when it is asked."""

    def __init__(self, asked, value):
        self.process = ready.Popen(
            [sys.executable, "-c", HOLDS, str(value)], env=asked.environment(), cwd=serving.TESTS, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def says(self):
        return self.process.stdout.readline().strip()

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def is_refused(self):
        _, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 1, errors
        return errors.strip().splitlines()[-1]

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def begin():
    begun = []

    def start(asked, value):
        begun.append(Program(asked, value))
        return begun[-1]

    yield start
    for program in begun:
        program.end()


def test_a_program_whose_connection_broke_is_not_robbed(folder, asked, checkpoints, begin):
    with Kept(folder, checkpoints) as server:
        network = Valve(server)
        asked.at(server, network.address)
        first = begin(asked, 1)
        assert first.says() == "has 4.0"
        # It computes nothing, and so does not notice.
        network.break_off()
        refused = begin(asked, 2).is_refused()
        assert "Taken: virtual card: another program" in refused and "until that ends" in refused
        stranger = Asked(folder)
        stranger.at(server)
        assert "Taken: " in (why := begin(stranger, 3).is_refused()) and "may come again" in why
        assert first.ask() == "has 4.0"


def test_a_card_that_has_moved_waits_for_its_program(folder, asked, checkpoints, begin):
    server = Kept(folder, checkpoints, epoch=1)
    asked.at(server)
    first = begin(asked, 1)
    assert first.says() == "has 4.0"
    assert server.suspend() == 0
    with Kept(folder, checkpoints, epoch=2) as server:
        stranger = Asked(folder)
        stranger.at(server)
        assert "may come again" in begin(stranger, 2).is_refused()
        asked.at(server)
        assert first.ask() == "has 4.0"


def test_once_a_program_is_gone_another_one_begins_where_the_card_is(folder, asked, checkpoints, begin):
    server = Kept(folder, checkpoints, epoch=1)
    asked.at(server)
    first = begin(asked, 1)
    assert first.says() == "has 4.0"
    assert server.suspend() == 0
    os.kill(first.process.pid, signal.SIGKILL)
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        second = begin(asked, 2)
        assert second.says() == "has 8.0"
        assert second.ask() == "has 8.0"
