"""Jobs of a pool whose programs have a device and know nothing of checkpoints: whatever interrupts them, each comes in every bit to what it
comes to undisturbed."""

import os
import signal

import pytest

import serving
from pools import card, served, wait, with_cards
from test_over_nodes import loses_power, nodes_of

# Slice servers of several nodes meet at ports that each pool gives out from the same number on, and each worker's folder is at one place.
pytestmark = pytest.mark.alone

#: Trains with dropout, in batches that travel as bulk data, and looks at a value each step. It says how often it began, and waits half
#: way for as long as somebody holds it: so that a test disturbs it where it means to.
PROGRAM = """
import os, pathlib, sys, time, torch
began = pathlib.Path(sys.argv[2])
began.write_text(began.read_text() + "x" if began.exists() else "x")
held = pathlib.Path(sys.argv[3])
torch.manual_seed(5)
torch.set_num_threads(1)
steps = int(sys.argv[1])
data = torch.randn(16, 64, 256)
model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(64, 256)).to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(steps):
    inputs = data[step % 16].to("tessera")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print("step", step, loss.item().hex(), flush=True)
    while step % 8 == 7 and held.exists() and held.read_text() <= str(step // 8):
        time.sleep(0.01)
print("ends at", *(p.detach().cpu().double().sum().item().hex() for p in model.parameters()), loss.item().hex(), flush=True)
"""
STEPS = 32


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The last line of the same program that nothing disturbs, on one slice."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with serving.Server(folder, "--threads", "1") as server:
        printed = server.run(PROGRAM, STEPS, folder / "began", folder / "held")
    return printed.splitlines()[-1]


#: A node with a large card of one kind, and two with a small one of another: a program with all of the first has two slices of the others.
UNLIKE = with_cards("large", card(16, model="N16", kind="npu", vendor="other")) + "".join(
    with_cards(name, card()) for name in ("small-0", "small-1")
)


@pytest.fixture(scope="module")
def pool():
    # Divided by rows, sums would be rounded otherwise than on one slice.
    with served(inventory=UNLIKE, environment={"TESSERA_SPLIT": "layers"}) as pool:
        yield pool


def processes_on(pool, node):
    """Process ids of all workers on a node, each with its command line. Their folders have the same name everywhere: control groups tell."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cgroup") as groups, open(f"/proc/{pid}/cmdline", "rb") as words:
                if f"/{pool.folder.name}-{node}/" in groups.read():
                    found[int(pid)] = words.read()
        except OSError:
            continue
    return found


def servers_on(pool, node):
    return [pid for pid, words in processes_on(pool, node).items() if b"-m\0tessera.slice\0" in words]


class Unaware:
    """A job with such a program."""

    def __init__(self, pool, folder, **more):
        self.pool, self._began, self._held = pool, folder / "began", folder / "held"
        self._held.write_text("0")
        checkpoint = {"mode": "transparent", "grace": "60s", **more.pop("checkpoint", {})}
        self.job = pool.submit("-c", PROGRAM, STEPS, self._began, self._held, checkpoint=checkpoint, preemptible=True, **more)

    def printed(self):
        """What it has printed so far, in its newest attempt."""
        return self.pool.tessera("job", "logs", self.job).stdout

    def shown(self):
        return self.pool.ask("job", "show", self.job)

    def is_at(self, step):
        def looked():
            shown = self.shown()
            assert shown["state"] not in ("failed", "cancelled"), (shown["history"], self.pool.tessera("job", "logs", self.job, "--stderr").stdout)
            return f"step {step} " in self.printed()

        wait(f"it to come to step {step}", looked, 120)

    def may_come_to(self, part):
        self._held.write_text(str(part))

    def suspended(self):
        self.pool.tessera("job", "suspend", self.job)
        return wait("it to be suspended", lambda: (seen := self.shown())["state"] == "suspended" and seen, 120)

    def runs_in(self, attempt):
        return wait(f"attempt {attempt} to run", lambda: (seen := self.shown())["state"] == "running" and len(seen["history"]) == attempt and seen, 120)

    def comes_to(self, expected):
        self._held.unlink()
        state, printed, errors = self.pool.ends(self.job)
        assert state == "completed", (self.shown()["history"], errors)
        assert printed.splitlines()[-1] == expected, errors

    def began(self):
        return len(self._began.read_text())

    def is_saved_again(self):
        """It is dumped while it runs, from now on, and that is kept on two nodes."""

        def of_this_attempt():
            shown = self.shown()
            assert shown["state"] == "running", "it was not stopped for that"
            attempt = str(len(shown["history"]))
            names = [(checkpoint["name"].split("."), checkpoint["parts"][0]["nodes"]) for checkpoint in shown.get("checkpoints", [])]
            return [(int(number), nodes) for (began, number), nodes in names if began == attempt]

        # One that is being made is not after this.
        before = max((number for number, _ in of_this_attempt()), default=0) + 1
        wait("it to be saved", lambda: any(number > before and len(nodes) == 2 for number, nodes in of_this_attempt()), 120)


def test_suspended_and_drained_it_comes_to_the_same_bits_and_began_once(pool, tmp_path, undisturbed):
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
    program.comes_to(undisturbed)
    assert program.began() == 1


def test_from_one_card_to_two_of_another_kind_on_two_nodes_and_back(pool, tmp_path, undisturbed):
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
    program.comes_to(undisturbed)
    assert program.began() == 1


def test_a_node_that_dies_and_a_server_that_is_killed_cost_what_was_computed_since_the_last_dump(pool, tmp_path, undisturbed):
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
    program.comes_to(undisturbed)
    assert program.began() == 1
