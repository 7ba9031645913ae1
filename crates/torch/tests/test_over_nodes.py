"""Jobs whose devices lie on several nodes of a pool each: what they come to, how they end, and what becomes of them when their parts
are suspended, moved and lost."""

import json
import os
import signal
import socket
import sys

import pytest
import ready

from pools import HELPER, free_port, inventory, served, wait
from test_jobs import SPREAD, TESTS, alone, loss

HOSTS = ["host-0", "host-1"]
#: What a program asks of its host.
ASKED = {"cpus": 1, "memory": "2GiB"}

# Ten processes with PyTorch each: beside others they wait for the processor longer than anybody waits for them.
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def pool():
    with served(inventory=inventory(3)) as pool:
        yield pool


@pytest.fixture(scope="module")
def gangs():
    """A pool in which each of two cards needs two nodes, and three hold both."""
    with served(inventory=inventory(4)) as pool:
        yield pool


@pytest.fixture(scope="module")
def apart():
    """A pool of three nodes with cards, whose hosts have no room for a program, and of two hosts without cards that have."""
    hosts = "".join(f'[[node]]\nname = "{host}"\n' for host in HOSTS)
    cpus = {f"node-{number}": 0.5 for number in range(3)} | dict.fromkeys(HOSTS, 1)
    with served('host_lease = "5s"\n', inventory(3) + hosts, cpus) as pool:
        yield pool


@pytest.fixture(autouse=True)
def nothing_holds_cards_for_the_next_test(request):
    yield
    for pool in {"pool", "gangs", "apart"}.intersection(request.fixturenames):
        request.getfixturevalue(pool).cancel_all()


def nodes_of(pool, job):
    return sorted(worker["node"] for worker in pool.ask("job", "show", job)["allocation"]["workers"])


def processes_on(pool, node):
    """Process ids of all workers on a node, each with its command line."""
    mark = f"TESSERA_WORKER_DIR={pool.folder / node}/".encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as variables:
                if mark in variables.read():
                    found[int(pid)] = words.read()
        except OSError:
            continue
    return found


def supervisors_on(pool, node):
    statuses = [json.loads(file.read_text()) for file in (pool.folder / node / "workers").glob("*/status.json")]
    pids = [status["supervisor"]["pid"] for status in statuses if status.get("supervisor")]
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def kill_supervisors(pool, node):
    for supervisor in supervisors_on(pool, node):
        os.kill(supervisor, signal.SIGKILL)


def loses_power(pool, node):
    """Without a word all of a node ends: the agent, and what ran there. Then it is there again."""
    pool.processes[node].kill()
    pool.processes[node].wait()
    kill_supervisors(pool, node)
    wait("nothing to run there", lambda: not processes_on(pool, node))
    pool.start_node(node)


def servers_on(pool, node):
    return [pid for pid, words in processes_on(pool, node).items() if b"-m\0tessera.slice\0" in words]


def all_servers(pool):
    return [server for node in pool.nodes for server in servers_on(pool, node)]


def test_a_card_over_three_nodes_is_one_device_and_its_end_is_the_programs(pool):
    job = pool.submit("-c", SPREAD, tflops=24, memory="1GiB", span="pool")
    state, printed, errors = pool.ends(job)
    assert printed.split()[:2] == ["same", "3"] and int(printed.split()[2]) >= 1024, errors
    assert state == "failed" and pool.ask("job", "show", job)["exit_code"] == 7
    wait("the servers of the other nodes to be gone", lambda: not all_servers(pool))


def test_the_program_is_alone_and_its_servers_know_one_another(pool):
    program = (
        "import os, torch\nprint(torch.ones(3, device='tessera').sum().item())\n"
        "print(*(os.environ.get(name) for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_PORT')))"
    )
    job = pool.submit("-c", program, tflops=12, span="pool")
    state, printed, errors = pool.ends(job)
    assert state == "completed", errors
    assert printed.split()[:5] == ["3.0", "0", "1", "0", "1"] and int(printed.split()[5]) > 0, printed
    attempt = pool.ask("job", "show", job)["history"][0]
    assert attempt["exit_code"] == 0


def test_a_node_is_drained_and_another_one_dies_and_the_job_goes_on_on_what_there_is(pool, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = pool.submit(
        TESTS / "train.py", "tessera", 60, held, tflops=14, span="pool", preemptible=True,
        checkpoint={"mode": "cooperative", "grace": "50s"},
    )  # fmt: skip
    printed = lambda: pool.tessera("job", "logs", job).stdout
    wait("the job to be half done", lambda: "half" in printed(), 120)
    drained = nodes_of(pool, job)[1]
    # In order: what the program has there is saved first.
    pool.tessera("node", "drain", drained, "--yes")
    wait("it to go on", lambda: "attempt 2 begins at 30" in printed(), 120)
    assert len(nodes_of(pool, job)) == 2 and drained not in nodes_of(pool, job)
    wait("nothing of it to be left there", lambda: not processes_on(pool, drained))
    pool.tessera("node", "uncordon", drained)
    # Without a word, as by a loss of power: the agent, and all that ran there.
    dead = nodes_of(pool, job)[1]
    wait("its part to serve", lambda: servers_on(pool, dead))
    loses_power(pool, dead)
    wait("it to go on again", lambda: "attempt 3 begins at 30" in printed(), 120)
    held.unlink()
    state, printed, errors = pool.ends(job)
    assert state == "completed", errors
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(60)), abs=1e-4)


def test_a_port_that_somebody_has_is_no_fault_of_its_node_and_the_next_attempt_meets_elsewhere(pool):
    program = "import torch\nprint(torch.ones(8, device='tessera').sum().item(), flush=True)"
    # Ports are given out in turn, from one grant to the next.
    before = pool.submit("-c", "import time; time.sleep(1000)", tflops=1)
    allocation = wait("it to be granted", lambda: pool.ask("job", "show", before).get("allocation"))
    taken = []
    for turn in range(1, 4):
        taken.append(socket.create_server(("127.0.0.1", pool.first_port + allocation["id"] + turn)))
    job = pool.submit("-c", program, tflops=14, span="pool")
    reasons = lambda: [(attempt.get("reason") or {}).get("code") for attempt in pool.ask("job", "show", job)["history"]]
    wait("it to be tried again", lambda: "PORT_TAKEN" in reasons(), 120)
    state, printed, errors = pool.ends(job)
    assert (state, printed) == ("completed", "8.0\n"), errors
    assert set(reasons()[:-1]) == {"PORT_TAKEN"}, reasons()
    assert all(node["eligibility"] == "eligible" for node in pool.ask("node", "list"))
    for server in taken:
        server.close()


def test_a_server_of_another_node_that_is_killed_is_one_error_in_the_program(pool):
    program = (
        "import pathlib, sys, time, torch\na = torch.ones(8, device='tessera')\nprint(a.sum().item(), flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "try:\n    print((torch.ones(1 << 20, device='tessera') + 1).sum().item(), a.sum().item())\nexcept RuntimeError as error:\n    print('told')"
    )
    go = pool.folder / "go"
    job = pool.submit("-c", program, go, tflops=14, span="pool")
    wait("it to compute", lambda: "8.0" in pool.tessera("job", "logs", job).stdout, 120)
    # Whichever has no program.
    both = [(node, found) for node in pool.nodes if (found := servers_on(pool, node))]
    first = pool.ask("job", "show", job)["allocation"]["workers"][0]["node"]
    (victim,) = next(servers for node, servers in both if node != first)
    os.kill(victim, signal.SIGKILL)
    wait("it to be gone", lambda: victim not in all_servers(pool))
    go.touch()
    state, printed, errors = pool.ends(job)
    assert (state, printed) == ("completed", "8.0\ntold\n"), errors


def test_a_program_that_computes_while_a_part_of_its_card_dies_goes_on_from_its_checkpoint(pool):
    # It ends with the error, as most programs do that do not expect one.
    job = pool.submit(
        TESTS / "train.py", "tessera", 4000, tflops=14, span="pool", checkpoint={"mode": "cooperative", "grace": "50s", "every": "1s"}
    )  # fmt: skip
    wait("it to be saved", lambda: pool.ask("job", "show", job).get("checkpoints"), 120)
    dead = nodes_of(pool, job)[1]
    kill_supervisors(pool, dead)
    state, printed, errors = pool.ends(job)
    shown = pool.ask("job", "show", job)
    assert state == "completed", (shown["history"], errors)
    first = printed.splitlines()[0].split()
    assert first[:4] == ["attempt", "2", "begins", "at"] and int(first[4]) > 0, printed
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(4000)), abs=1e-3)


def train_gang(pool, steps, held, tflops=10, **more):
    """Two programs that train together, each on a card that no node of eight TFLOPS holds alone."""
    return pool.submit(
        TESTS / "train_gang.py", "tessera", steps, held, tflops=tflops, span="pool", gang=2, preemptible=True,
        checkpoint={"mode": "cooperative", "grace": "50s"}, **more,
    )  # fmt: skip


def ended(printed):
    """Parameters and loss of the last line."""
    words = printed.splitlines()[-1].split()
    return [float(words[1]), float(words[3])]


@pytest.fixture(scope="module")
def undisturbed():
    """What the same training comes to on the processor, in one process without a pool."""
    environment = {
        **os.environ, "PYTHONPATH": HELPER, "TESSERA_SLICES": "", "TESSERA_CHECKPOINT_DIR": "/nonexistent", "RANK": "0", "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    command = [sys.executable, TESTS / "train_gang.py", "cpu", "60"]
    done = ready.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ended(done.stdout)


def workers_of(pool, job):
    """Workers of each virtual card, the one with its program first."""
    workers = pool.ask("job", "show", job)["allocation"]["workers"]
    return [[worker for worker in workers if worker["member"] == member] for member in (0, 1)]


def test_a_gang_trains_on_cards_over_nodes_is_suspended_and_loses_a_part_of_a_card(gangs, undisturbed, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = train_gang(gangs, 60, held)
    printed = lambda: gangs.tessera("job", "logs", job).stdout
    wait("it to be half done", lambda: "half" in printed(), 180)
    assert "as 0 of 2" in printed()
    assert [len(workers) for workers in workers_of(gangs, job)] == [2, 2]
    gangs.tessera("job", "suspend", job)
    wait("it to be suspended", lambda: gangs.ask("job", "show", job)["state"] == "suspended", 180)
    wait("its servers to be gone", lambda: not all_servers(gangs))
    gangs.tessera("job", "resume", job)
    wait("it to go on", lambda: "attempt 2 begins at 30" in printed(), 180)
    # A server of the second card, away from both programs.
    lost = workers_of(gangs, job)[1][1]["node"]
    victim = wait("the servers there to run", lambda: servers_on(gangs, lost), 180)[-1]
    os.kill(victim, signal.SIGKILL)
    wait("it to be gone", lambda: victim not in all_servers(gangs))
    held.unlink()
    state, said, errors = gangs.ends(job)
    shown = gangs.ask("job", "show", job)
    assert state == "completed", (shown["history"], errors)
    assert "attempt 3 begins at 30" in said, said
    assert ended(said) == pytest.approx(undisturbed, abs=1e-3)
    assert all(node["eligibility"] == "eligible" for node in gangs.ask("node", "list")), "no node is blamed"


#: Computes on its device, says so, and has it for as long as a file is there.
URGENT = """
import pathlib, sys, time, torch
print("computes", torch.ones(8, device="tessera").sum().item(), flush=True)
while pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""


def test_a_card_over_three_nodes_of_four_is_drained_preempted_and_killed_and_comes_to_the_same(gangs, tmp_path):
    pool, held, urgent_runs = gangs, tmp_path / "held", tmp_path / "urgent"
    held.touch(), urgent_runs.touch()
    job = pool.submit(
        TESTS / "train.py", "tessera", 60, held, tflops=20, span="pool", priority=20, preemptible=True,
        checkpoint={"mode": "cooperative", "grace": "50s"},
    )  # fmt: skip
    printed = lambda: pool.tessera("job", "logs", job).stdout
    wait("the job to be half done", lambda: "half" in printed(), 120)
    assert len(nodes_of(pool, job)) == 3
    drained = nodes_of(pool, job)[0]
    pool.tessera("node", "drain", drained, "--yes")
    wait("it to go on with another node", lambda: "attempt 2 begins at 30 on tessera" in printed(), 120)
    assert len(nodes_of(pool, job)) == 3 and drained not in nodes_of(pool, job)
    pool.tessera("node", "uncordon", drained)
    urgent = pool.submit("-c", URGENT, urgent_runs, tflops=24, span="pool", priority=90)
    wait("the urgent one to compute", lambda: "computes 8.0" in pool.tessera("job", "logs", urgent).stdout, 120)
    assert pool.ask("job", "show", job)["state"] == "suspended"
    urgent_runs.unlink()
    wait("it to go on when that is over", lambda: "attempt 3 begins at 30 on tessera" in printed(), 120)
    # Where the program is not: a server beside it is no part that is lost, and what its program makes of the error is the job's end.
    last = pool.ask("job", "show", job)["allocation"]["workers"][-1]["node"]
    os.kill(servers_on(pool, last)[0], signal.SIGKILL)
    held.unlink()
    state, printed, errors = pool.ends(job)
    shown = pool.ask("job", "show", job)
    assert state == "completed", (shown["history"], errors)
    assert "attempt 4 begins at 30 on tessera" in printed, printed
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(60)), abs=1e-4)


def test_a_node_of_a_gang_is_drained_and_another_one_dies(gangs, undisturbed, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = train_gang(gangs, 60, held)
    printed = lambda: gangs.tessera("job", "logs", job).stdout
    wait("it to be half done", lambda: "half" in printed(), 180)
    drained = workers_of(gangs, job)[0][1]["node"]
    gangs.tessera("node", "drain", drained, "--yes")
    wait("it to go on", lambda: "attempt 2 begins at 30" in printed(), 180)
    assert drained not in nodes_of(gangs, job)
    gangs.tessera("node", "uncordon", drained)
    # Without a word: the agent, and all that ran there, the second program among it.
    dead = workers_of(gangs, job)[1][0]["node"]
    loses_power(gangs, dead)
    wait("it to go on again", lambda: "attempt 3 begins at 30" in printed(), 180)
    held.unlink()
    state, said, errors = gangs.ends(job)
    assert state == "completed", (gangs.ask("job", "show", job)["history"], errors)
    assert ended(said) == pytest.approx(undisturbed, abs=1e-3)


def where(pool, job):
    """The node of each worker of a job, the one of the program first, and how many slices each has."""
    workers = pool.ask("job", "show", job)["allocation"]["workers"]
    assert [worker["runs_program"] for worker in workers] == [True] + [False] * (len(workers) - 1)
    return [(worker["node"], len(worker["slices"])) for worker in workers]


def test_a_program_on_a_host_without_cards_is_like_any_other(apart):
    program = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n" + SPREAD
    go = apart.folder / "go"
    job = apart.submit("-c", program, go, tflops=24, memory="1GiB", span="pool", host=ASKED)
    wait("it to run", lambda: apart.ask("job", "show", job)["state"] == "running", 180)
    first, *others = where(apart, job)
    assert first in [(host, 0) for host in HOSTS] and sorted(others) == [("node-0", 1), ("node-1", 1), ("node-2", 1)]
    wait("its servers", lambda: [len(servers_on(apart, node)) for node in apart.nodes] == [1, 1, 1, 0, 0], 180)
    go.touch()
    state, printed, errors = apart.ends(job)
    assert printed.split()[:2] == ["same", "3"], errors
    assert state == "failed" and apart.ask("job", "show", job)["exit_code"] == 7
    wait("its servers to be gone", lambda: not all_servers(apart))


def test_a_program_apart_is_told_of_its_only_server_that_dies(apart):
    # It hears of the loss by what it computes next, whether the pool has told it to end by then or not.
    program = (
        "import os, pathlib, signal, sys, time, torch\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nfolder = pathlib.Path(sys.argv[1])\n"
        "a = torch.ones(8, device='tessera')\nprint(a.sum().item(), flush=True)\n"
        "while not (folder / 'dies').exists(): time.sleep(0.01)\n"
        "try:\n    word = (a + 1).sum().item()\nexcept (RuntimeError, ConnectionError) as error:\n    word = 'told'\n"
        "(folder / f'word-{os.environ[\"TESSERA_ATTEMPT\"]}').write_text(str(word))"
    )
    job = apart.submit("-c", program, apart.folder, tflops=6, span="pool", host=ASKED, checkpoint={"grace": "60s"})
    wait("it to compute", lambda: "8.0" in apart.tessera("job", "logs", job).stdout, 120)
    assert [slices for _, slices in where(apart, job)] == [0, 1]
    (victim,) = all_servers(apart)
    os.kill(victim, signal.SIGKILL)
    wait("it to be gone", lambda: victim not in all_servers(apart))
    (apart.folder / "dies").touch()
    state, _, errors = apart.ends(job)
    assert (state, (apart.folder / "word-1").read_text()) == ("completed", "told"), errors
    wait("its servers to be gone", lambda: not all_servers(apart))


def test_a_program_apart_that_does_not_notice_that_its_server_died_is_tried_again(apart):
    program = (
        "import pathlib, sys, time, torch\nprint(torch.ones(8, device='tessera').sum().item(), flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    )
    go = apart.folder / "again"
    job = apart.submit("-c", program, go, tflops=6, span="pool", host=ASKED)
    wait("it to compute", lambda: "8.0" in apart.tessera("job", "logs", job).stdout, 120)
    (victim,) = all_servers(apart)
    os.kill(victim, signal.SIGKILL)
    reasons = lambda: [(attempt.get("reason") or {}).get("code") for attempt in apart.ask("job", "show", job)["history"]]
    wait("it to be tried again", lambda: "NODE_FAULT" in reasons())
    go.touch()
    assert apart.ends(job)[0] == "completed"


def test_a_program_apart_is_stopped_in_order_while_its_server_hangs(apart):
    program = (
        "import signal, sys, torch\nsignal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit(3)))\n"
        "print(torch.ones(8, device='tessera').sum().item(), flush=True)\nsignal.pause()"
    )
    job = apart.submit("-c", program, tflops=6, span="pool", host=ASKED, checkpoint={"grace": "4s"})
    wait("it to compute", lambda: "8.0" in apart.tessera("job", "logs", job).stdout, 120)
    (server,) = all_servers(apart)
    os.kill(server, signal.SIGSTOP)
    apart.tessera("job", "cancel", job, "--yes")
    wait("it to have been asked", lambda: "asked" in apart.tessera("job", "logs", job).stdout)
    wait("nothing of it to be left", lambda: not any(processes_on(apart, node) for node in apart.nodes))


def test_a_program_apart_is_suspended_and_its_host_drained_and_lost_and_a_part_of_its_card(apart, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = apart.submit(
        TESTS / "train.py", "tessera", 60, held, tflops=14, span="pool", preemptible=True, host=ASKED,
        checkpoint={"mode": "cooperative", "grace": "50s"},
    )  # fmt: skip
    printed = lambda: apart.tessera("job", "logs", job).stdout
    wait("the job to be half done", lambda: "half" in printed(), 120)
    assert [slices > 0 for _, slices in where(apart, job)] == [False, True, True]
    apart.tessera("job", "suspend", job)
    wait("it to be suspended", lambda: apart.ask("job", "show", job)["state"] == "suspended", 180)
    wait("nothing of it to be left", lambda: not any(processes_on(apart, node) for node in apart.nodes))
    apart.tessera("job", "resume", job)
    wait("it to go on", lambda: "attempt 2 begins at 30" in printed(), 120)
    drained = where(apart, job)[0][0]
    # In order: what the program has on its card is saved first, and it goes on on the other host.
    apart.tessera("node", "drain", drained, "--yes")
    wait("it to go on elsewhere", lambda: "attempt 3 begins at 30" in printed(), 120)
    host = where(apart, job)[0][0]
    assert {drained, host} == set(HOSTS)
    apart.tessera("node", "uncordon", drained)
    # Without a word: the agent, and the program.
    loses_power(apart, host)
    wait("it to go on after the loss of its host", lambda: "attempt 4 begins at 30" in printed(), 120)
    dead = where(apart, job)[1][0]
    wait("its part to serve", lambda: servers_on(apart, dead))
    loses_power(apart, dead)
    wait("it to go on after the loss of a part", lambda: "attempt 5 begins at 30" in printed(), 120)
    held.unlink()
    state, printed, errors = apart.ends(job)
    assert state == "completed", errors
    assert loss(printed.splitlines()[-1]) == pytest.approx(loss(alone(60)), abs=1e-4)


def test_programs_of_a_gang_train_together_from_hosts_of_their_own(apart, undisturbed, tmp_path):
    held = tmp_path / "held"
    held.touch()
    job = train_gang(apart, 60, held, tflops=8, host=ASKED)
    wait("it to be half done", lambda: "half" in apart.tessera("job", "logs", job).stdout, 180)
    programs = [workers[0] for workers in workers_of(apart, job)]
    assert sorted(program["node"] for program in programs) == HOSTS and not any(program["slices"] for program in programs)
    held.unlink()
    state, said, errors = apart.ends(job)
    assert state == "completed", (apart.ask("job", "show", job)["history"], errors)
    assert ended(said) == pytest.approx(undisturbed, abs=1e-3)
