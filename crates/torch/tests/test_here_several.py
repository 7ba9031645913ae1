"""`tessera run --here` on a card of several slices of one node: it comes and goes as one slice does."""

import os
import signal
import sys

import pytest
from pools import card, served, wait, with_cards
from test_here import STEPS, TESTS, Here, drain, loss, servers_of

INVENTORY = "".join(with_cards(f"node-{number}", card(), card()) for number in range(2))
#: More than a card has.
TFLOPS = 12


@pytest.fixture(scope="module")
def pool():
    with served('host_lease = "3s"\n', inventory=INVENTORY) as pool:
        yield pool


@pytest.fixture
def training(pool, tmp_path, request):
    """A training that is half done, and what lets it go on."""
    halted = tmp_path / "halted"
    halted.touch()
    words = (sys.executable, TESTS / "plain.py", "tessera", STEPS, halted)
    program = Here(pool, *words, name=request.node.name, tflops=TFLOPS, options=["--span", "node"])
    try:
        program.says("half")
        yield program, halted
    finally:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait()


@pytest.fixture(scope="module")
def undisturbed(pool):
    program = Here(pool, sys.executable, TESTS / "plain.py", "tessera", STEPS, name="undisturbed", tflops=TFLOPS, options=["--span", "node"])
    code, printed = program.ends()
    assert code == 0, program.errors.read_text()
    return loss(printed)


def by_rank(pool):
    """Processes of the slice servers of the pool's card."""
    return {int(words[words.index("--rank") + 1]): pid for pid, words in servers_of(pool).items()}


def suspend(pool, program, job):
    pool.tessera("job", "suspend", job)
    program.comes_to("suspended")
    assert not servers_of(pool), "it holds nothing meanwhile"
    pool.tessera("job", "resume", job)


def kill_another(pool, program, job):
    os.kill(by_rank(pool)[1], signal.SIGKILL)


def kill_first(pool, program, job):
    os.kill(by_rank(pool)[0], signal.SIGKILL)


@pytest.mark.parametrize("disturb", [suspend, drain, kill_another, kill_first])
def test_whatever_becomes_of_its_card_the_program_comes_to_the_same(pool, training, undisturbed, disturb):
    program, halted = training
    assert len(servers_of(pool)) == 2
    disturb(pool, program, str(program.job()["id"]))
    halted.unlink()
    code, printed = program.ends()
    assert code == 0, program.errors.read_text()
    assert loss(printed) == pytest.approx(undisturbed, rel=1e-4)
    job = program.comes_to("completed")
    assert job["exit_code"] == 0
    faults = [past["reason"]["code"] for past in job["history"] if past["reason"]["code"] == "NODE_FAULT"]
    assert len(faults) == (disturb in (kill_another, kill_first))


def test_a_card_over_several_nodes_is_refused_by_name(pool):
    program = Here(pool, sys.executable, "-c", "print('never')", name="over-nodes", tflops=TFLOPS, options=["--span", "pool"])
    code, printed = program.ends()
    assert code != 0 and printed == ""
    assert "must be card or node when access is remote" in program.errors.read_text()
