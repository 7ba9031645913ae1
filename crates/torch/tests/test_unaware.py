"""Jobs of a pool whose programs have a device and know nothing of checkpoints: whatever interrupts them, each comes in every bit to what it
comes to undisturbed."""

import os
import signal

import pytest

from pools import card, served, wait, with_cards
from test_over_nodes import loses_power, nodes_of
from unaware import Unaware, processes_on, servers_on

# Dumps of several processes with PyTorch, beside which others would wait.
pytestmark = pytest.mark.alone

#: A node with a large card of one kind, and two with a small one of another: a program with all of the first has two slices of the others.
UNLIKE = with_cards("large", card(16, model="N16", kind="npu", vendor="other")) + "".join(
    with_cards(name, card()) for name in ("small-0", "small-1")
)


@pytest.fixture(scope="module")
def pool():
    # Divided by rows, sums would be rounded otherwise than on one slice.
    with served(inventory=UNLIKE, environment={"TESSERA_SPLIT": "layers"}) as pool:
        yield pool


def test_suspended_and_drained_it_comes_to_the_same_bits_and_began_once(pool, tmp_path):
    program = Unaware(pool, tmp_path)
    program.is_at(7)
    (home,) = nodes_of(pool, program.job)
    assert len(servers_on(pool, home)) == 1
    suspended = program.suspended()
    assert len(suspended["checkpoints"]) == 1, suspended["history"]
    assert not processes_on(pool, home), "program and server are gone before its blocks are free"
    pool.tessera("job", "resume", program.job)
    program.runs_in(2)
    program.may_come_to(1)
    program.is_at(15)
    (home,) = nodes_of(pool, program.job)
    pool.tessera("node", "drain", home, "--yes")
    program.runs_in(3)
    assert home not in nodes_of(pool, program.job)
    pool.tessera("node", "uncordon", home)
    program.comes_to_the_same()
    assert program.began() == 1


def test_from_one_card_to_two_of_another_kind_on_two_nodes_and_back(pool, tmp_path):
    program = Unaware(pool, tmp_path, tflops=14, span="pool")
    program.is_at(7)
    assert nodes_of(pool, program.job) == ["large"]
    pool.tessera("node", "drain", "large", "--yes")
    program.runs_in(2)
    assert nodes_of(pool, program.job) == ["small-0", "small-1"]
    assert not processes_on(pool, "large")
    assert [len(servers_on(pool, node)) for node in ("small-0", "small-1")] == [1, 1]
    program.may_come_to(1)
    program.is_at(15)
    pool.tessera("node", "uncordon", "large")
    pool.tessera("node", "drain", "small-1", "--yes")
    program.runs_in(3)
    assert nodes_of(pool, program.job) == ["large"]
    wait("nothing of it to be left there", lambda: not processes_on(pool, "small-0") and not processes_on(pool, "small-1"))
    pool.tessera("node", "uncordon", "small-1")
    program.comes_to_the_same()
    assert program.began() == 1


def test_a_node_that_dies_and_a_server_that_is_killed_cost_what_was_computed_since_the_last_dump(pool, tmp_path):
    program = Unaware(pool, tmp_path, checkpoint={"every": "2s"})
    program.is_at(7)
    program.is_saved_again()
    (home,) = nodes_of(pool, program.job)
    loses_power(pool, home)
    program.runs_in(2)
    program.may_come_to(1)
    program.is_at(15)
    program.is_saved_again()
    (home,) = nodes_of(pool, program.job)
    (server,) = servers_on(pool, home)
    os.kill(server, signal.SIGKILL)
    shown = program.runs_in(3)
    assert shown["history"][1]["reason"]["code"] == "NODE_FAULT", shown["history"][1]
    program.comes_to_the_same()
    assert program.began() == 1
