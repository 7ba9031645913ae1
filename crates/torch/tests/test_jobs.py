"""Jobs of a pool whose programs have their virtual cards as one device: what they come to, what they may hold, how much of a
card's time they get, and that they go on elsewhere."""

import os
import pathlib
import sys
import uuid

import pytest
import ready
from measured import measured

from pools import PATHS, card, served, wait, with_cards

TESTS = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def pool():
    with served() as pool:
        yield pool


def alone(steps):
    """What the program comes to on the processor, without a pool."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "TESSERA_SLICES": "", "TESSERA_CHECKPOINT_DIR": "/nonexistent"}
    done = ready.run(
        [sys.executable, TESTS / "train.py", "cpu", str(steps)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def loss(line):
    return float(line.split()[-1])


def test_a_job_trains_on_its_device_and_comes_to_what_it_comes_to_alone(pool):
    state, printed, errors = pool.ends(pool.submit(TESTS / "train.py", "tessera", 40))
    assert state == "completed", errors
    assert "on tessera" in printed
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(40)), abs=1e-4)


def test_suspended_in_the_middle_it_goes_on_on_another_node(pool, without, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = pool.submit(
        TESTS / "train.py", "tessera", 60, held, checkpoint={"mode": "cooperative", "grace": "50s"}, preemptible=True
    )  # fmt: skip
    wait("the job to be half done", lambda: "half" in pool.tessera("job", "logs", job).stdout, 120)
    before = pool.ask("job", "show", job)["allocation"]["workers"][0]["node"]
    pool.tessera("job", "suspend", job)
    wait("the job to be suspended", lambda: pool.ask("job", "show", job)["state"] == "suspended")
    without(before)
    held.unlink()
    pool.tessera("job", "resume", job)
    state, printed, errors = pool.ends(job)
    assert state == "completed", errors
    assert "attempt 2 begins at 30" in printed
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(60)), abs=1e-4)


def test_more_than_the_memory_of_its_card_is_refused_as_pytorch_refuses_it(pool):
    program = (
        "import torch\nkept = torch.zeros(1 << 20, device='tessera')\n"
        "print(torch.tessera.get_device_properties().total_memory >> 20)\n"
        "try:\n    torch.zeros(1 << 30, device='tessera')\nexcept torch.OutOfMemoryError:\n    print('refused', kept.sum().item())"
    )
    state, printed, errors = pool.ends(pool.submit("-c", program, memory="256MiB"))
    assert state == "completed", errors
    assert printed == "256\nrefused 0.0\n"


@pytest.mark.alone
def test_two_jobs_on_one_card_get_no_more_of_its_time_than_their_sizes(pool, without):
    # Each computes as much as it can for some seconds, and says how much processor time its server took meanwhile.
    program = (
        "import os, pathlib, sys, time, torch\n"
        "own = os.environ['TESSERA_WORKER_DIR'].encode()\n"
        "def is_server(pid):\n"
        "    words = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()\n"
        "    return b'-m\\0tessera.slice\\0' in words and own in words\n"
        "a = torch.ones(400, 400, device='tessera')\n(a @ a).sum().item()\n"
        "server = next(pid for pid in os.listdir('/proc') if pid.isdigit() and is_server(pid))\n"
        "def used():\n"
        "    fields = pathlib.Path(f'/proc/{server}/stat').read_text().rsplit(')', 1)[1].split()\n"
        "    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')\n"
        "print('ready', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "began, before = time.monotonic(), used()\n"
        "while time.monotonic() < began + 5: (a @ a).sum().item()\n"
        "print((used() - before) / (time.monotonic() - began))"
    )
    without("node-1")

    @measured
    def neither_takes_more():
        go = pool.folder / f"go-{uuid.uuid4()}"
        jobs = [pool.submit("-c", program, go, tflops=tflops) for tflops in (6, 2)]
        for job in jobs:
            wait("both to be ready", lambda job=job: "ready" in pool.tessera("job", "logs", job).stdout, 120)
        go.touch()
        large, small = (float(pool.ends(job)[1].split()[-1]) for job in jobs)
        # However busy the machine is, neither takes more than its part; what serving costs beside computing comes on top.
        assert small < 0.25 * 1.3, (large, small)
        assert large < 0.75 * 1.3, (large, small)

    neither_takes_more()


def test_the_server_is_killed_and_the_program_is_told_once(pool):
    program = (
        "import os, signal, torch\na = torch.ones(8, device='tessera')\n"
        "servers = [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != os.getpid()\n"
        "           and b'-m\\0tessera.slice\\0' in open(f'/proc/{pid}/cmdline', 'rb').read()]\n"
        "for pid in servers: os.kill(pid, signal.SIGKILL)\n"
        "try:\n    print((a + 1).sum().item())\nexcept RuntimeError as error:\n    print('told:', len(servers))"
    )
    state, printed, errors = pool.ends(pool.submit("-c", program))
    assert (state, printed) == ("completed", "told: 1\n"), errors
    assert "the slice server for cpu ended" in errors


UNEQUAL = with_cards("node-0", card(5, memory=8), card(3, memory=4))

SPREAD = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
card, x = torch.nn.Linear(64, 64).to("tessera"), torch.randn(16, 64)
card.load_state_dict(layer.state_dict())
def train(layer, x):
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(5):
        loss = layer(x).pow(2).mean(); optimiser.zero_grad(); loss.backward(); optimiser.step()
    return loss.item()
status = torch.tessera.slice_status()
print("same" if abs(train(layer, x) - train(card, x.to("tessera"))) < 1e-6 else "other", len(status["slices"]), status["memory_limit"] >> 20)
raise SystemExit(7)
"""


def test_a_card_of_several_slices_of_a_node_is_one_device():
    with served(inventory=UNEQUAL) as pool:
        job = pool.submit("-c", SPREAD, tflops=8, memory="1GiB", span="node")
        state, printed, errors = pool.ends(job)
        assert printed.split()[:2] == ["same", "2"] and int(printed.split()[2]) >= 1024, errors
        # The end is the program's.
        assert state == "failed" and pool.ask("job", "show", job)["exit_code"] == 7
        # How its slices share the work, a job says itself.
        plan = "import torch; print(torch.tessera.slice_status()['plan'])"
        job = pool.submit("-c", plan, tflops=8, memory="1GiB", span="node", variables={"TESSERA_SPLIT": "batch"})
        assert pool.ends(job)[1].strip() == "batch"
        with pytest.raises(RuntimeError, match="TESSERA_SLOWER.*must be one of warn, refuse, is .*perhaps"):
            pool.submit("-c", plan, tflops=8, memory="1GiB", span="node", variables={"TESSERA_SLOWER": "perhaps"})
