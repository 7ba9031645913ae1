"""`tessera run --here` on a card of several slices of one node: it comes and goes as one slice does."""

import os
import pathlib
import signal
import sys

import pytest
from pools import served, wait
from test_here import STEPS, TESTS, Here, loss, node_of

CARD = '[[node.card]]\nkind = "gpu"\nvendor = "acme"\nmodel = "G8"\nmemory_gib = 16\ntflops = { fp16 = 8 }\n'
INVENTORY = "".join(f'[[node]]\nname = "node-{number}"\n{CARD * 2}' for number in range(2))
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


def servers_of(pool):
    """Processes of the slice servers of the pool, by their rank: those that descend from an agent."""
    agents = {process.pid for process in pool.processes.values()}

    def belongs(pid):
        while pid > 1 and pid not in agents:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return pid > 1

    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "tessera.slice" in words and "--rank" in words and belongs(int(pid)):
                found[int(words[words.index("--rank") + 1])] = int(pid)
        except OSError:  # it has ended
            pass
    return found


def suspend(pool, program, job):
    pool.tessera("job", "suspend", job)
    program.comes_to("suspended")
    assert not servers_of(pool), "it holds nothing meanwhile"
    pool.tessera("job", "resume", job)


def drain(pool, program, job):
    node = node_of(program.job())
    pool.tessera("node", "drain", node, "--yes")
    wait("it to be elsewhere", lambda: (job := program.job())["state"] == "running" and node_of(job) != node, 90)
    pool.tessera("node", "uncordon", node)


def kill_another(pool, program, job):
    os.kill(servers_of(pool)[1], signal.SIGKILL)


def kill_first(pool, program, job):
    os.kill(servers_of(pool)[0], signal.SIGKILL)


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
