"""Jobs of a pool whose programs have a device and know nothing of checkpoints, when others need their cards, when they lie on several cards
of a node, and when agent and control plane die meanwhile: each comes in every bit to what it comes to undisturbed."""

import json
import os
import socket
import urllib.error
import urllib.request

import pytest

from pools import card, job_file, served, wait, with_cards
from test_over_nodes import URGENT, nodes_of
from unaware import BEGINS, TRAINING, Unaware, processes_on, servers_on

#: Two and three cards at a node each, and a single one that is like those two.
SEVERAL = with_cards("pair", card(), card()) + with_cards("three", card(5), card(5), card(5)) + with_cards("single", card())


@pytest.fixture(scope="module")
def pool():
    # Divided by rows, sums would be rounded otherwise than on one slice.
    with served(inventory=SEVERAL, environment={"TESSERA_SPLIT": "layers"}) as pool:
        yield pool


@pytest.fixture(autouse=True)
def nothing_holds_cards_for_the_next_test(pool):
    yield
    pool.cancel_all()


def fills(pool, tflops):
    """A job without a device that holds part of one of the larger cards until the test is over."""
    file = job_file(pool.folder / f"fills-{tflops}.json", command=["sleep", "600"], virtual_card={"tflops": tflops, "memory": "64MiB", "models": ["G8"]})
    job = str(pool.ask("job", "submit", file, "--detach")["id"])
    wait("it to run", lambda: pool.ask("job", "show", job)["state"] == "running")


def reason_of_end(shown, attempt):
    return shown["history"][attempt - 1]["reason"]["code"]


def test_a_job_of_higher_priority_has_its_card_meanwhile(pool, without, tmp_path):
    without("pair")
    program = Unaware(pool, tmp_path, priority=20)
    program.is_at(7)
    assert nodes_of(pool, program.job) == ["single"]
    before = set(processes_on(pool, "single"))
    urgent_runs = tmp_path / "urgent"
    urgent_runs.touch()
    urgent = pool.submit("-c", URGENT, urgent_runs, priority=90)
    wait("the urgent one to compute", lambda: "computes 8.0" in pool.tessera("job", "logs", urgent).stdout, 120)
    shown = program.shown()
    assert shown["state"] == "suspended" and reason_of_end(shown, 1) == "PREEMPTED", shown["history"]
    assert nodes_of(pool, urgent) == ["single"] and not before & set(processes_on(pool, "single")), "nothing of it is left there"
    urgent_runs.unlink()
    program.runs_in(2)
    assert pool.ends(urgent)[0] == "completed"
    program.comes_to_the_same()
    assert program.began() == 1


def test_compaction_moves_it_to_make_room_for_a_job_that_waits(pool, without, tmp_path):
    without("pair")
    program = Unaware(pool, tmp_path, tflops=4, models=["G8"])
    program.is_at(7)
    assert nodes_of(pool, program.job) == ["single"]
    pool.tessera("node", "cordon", "single")
    pool.tessera("node", "uncordon", "pair")
    fills(pool, 8), fills(pool, 4)
    pool.tessera("node", "uncordon", "single")
    # Four are free here and four there.
    waits = pool.submit("-c", URGENT, tmp_path / "not there", tflops=8, models=["G8"])
    (planned,) = pool.ask("pool", "compact")["moves"]
    assert str(planned["job_id"]) == program.job and str(planned["makes_room_for"]) == waits, planned
    assert planned["checkpoint_mode"] == "transparent"
    pool.tessera("pool", "compact", "--apply")
    program.runs_in(2)
    assert nodes_of(pool, program.job) == ["pair"]
    state, printed, errors = pool.ends(waits)
    assert (state, printed) == ("completed", "computes 8.0\n"), errors
    program.comes_to_the_same()
    assert program.began() == 1


def test_a_card_of_several_cards_of_a_node_goes_on_in_another_number_of_slices(pool, without, tmp_path):
    without("three")
    program = Unaware(pool, tmp_path, tflops=14, span="node")
    program.is_at(7)
    assert nodes_of(pool, program.job) == ["pair"] and len(servers_on(pool, "pair")) == 2
    pool.tessera("node", "uncordon", "three")
    without("pair")
    program.runs_in(2)
    assert nodes_of(pool, program.job) == ["three"] and len(servers_on(pool, "three")) == 3
    assert not processes_on(pool, "pair")
    program.comes_to_the_same()
    assert program.began() == 1


#: Cannot be dumped while somebody listens at a Unix socket when it begins, and writes what it needs to go on when it is told to stop.
FALLS_BACK = f"""{BEGINS}{TRAINING}
import signal, socket
kept = pathlib.Path(os.environ["TESSERA_CHECKPOINT_DIR"]) / "state.pt"
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
if os.path.exists(sys.argv[4]):
    stranger = socket.socket(socket.AF_UNIX)
    stranger.connect(sys.argv[4])
first = 0
if kept.exists():
    state = torch.load(kept, weights_only=True)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    torch.tessera.set_rng_state(state["random"])
    first = state["step"]
for step in range(first, steps):
    loss = trained(step)
    while is_held(step):
        if told:
            random = torch.tessera.get_rng_state()
            torch.save({{"model": model.state_dict(), "optimiser": optimiser.state_dict(), "random": random, "step": step + 1}}, kept)
            sys.exit(0)
        time.sleep(0.01)
says(loss)
"""


def test_one_that_cannot_be_dumped_goes_on_from_what_it_wrote_and_is_dumped_when_it_can_be(pool, tmp_path, folder):
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(f"{folder}/stranger")
        stranger.listen()
        stranger.settimeout(60)
        program = Unaware(pool, tmp_path, FALLS_BACK, [f"{folder}/stranger"], checkpoint={"fallback": "cooperative"})
        program.is_at(7)
        with stranger.accept()[0]:
            suspended = program.suspended()
    assert [checkpoint["mode"] for checkpoint in suspended["checkpoints"]] == ["cooperative"], suspended["history"]
    assert suspended["history"][0]["not_saved"].startswith("its processes cannot be dumped: "), suspended["history"]
    assert not any(processes_on(pool, node) for node in pool.nodes)
    os.unlink(f"{folder}/stranger")
    program.may_come_to(1)
    pool.tessera("job", "resume", program.job)
    program.is_at(15)
    assert program.began() == 2
    suspended = program.suspended()
    assert suspended["checkpoints"][0]["mode"] == "transparent", suspended["history"]
    pool.tessera("job", "resume", program.job)
    program.comes_to_the_same()
    assert program.began() == 2


def dies(pool, name):
    """The agent of a node, or a member, ends without a word."""
    pool.processes[name].kill()
    pool.processes[name].wait()


def test_an_agent_that_dies_does_not_disturb_it_nor_its_dump_when_the_control_plane_dies_too(pool, tmp_path):
    program = Unaware(pool, tmp_path)
    program.is_at(7)
    (home,) = nodes_of(pool, program.job)
    before = processes_on(pool, home)
    outputs = lambda: [file.read_text() for file in (pool.folder / home / "workers").glob("*/stdout.*")]
    others = sum("step 15 " in output for output in outputs())
    dies(pool, home)
    program.may_come_to(1)
    wait("it to go on without an agent", lambda: sum("step 15 " in output for output in outputs()) > others)
    pool.start_node(home)
    program.is_at(15)
    assert processes_on(pool, home) == before and len(program.shown()["history"]) == 1
    pool.tessera("job", "suspend", program.job)
    dies(pool, home)
    dies(pool, "m0")
    pool.start_member(0)
    pool.start_node(home)
    assert len(program.is_suspended()["checkpoints"]) == 1
    assert not processes_on(pool, home)
    pool.tessera("job", "resume", program.job)
    program.runs_in(2)
    program.comes_to_the_same()
    assert program.began() == 1


def test_a_gang_is_refused_before_it_waits_with_the_field_that_is_wrong(pool, tmp_path):
    numbers_of_jobs = lambda: [job["id"] for job in pool.ask("job", "list")]
    before = numbers_of_jobs()
    with pytest.raises(RuntimeError, match="checkpoint.mode: cannot be transparent for several workers: .*; use cooperative"):
        Unaware(pool, tmp_path, gang=2)
    # Programs are told so, too.
    card = {"milliTflops": "8000", "memoryMib": "1024", "access": "device"}
    spec = {"command": ["true"], "gang": 2, "virtualCard": card, "checkpoint": {"mode": "transparent", "grace": "60s"}}
    asked = urllib.request.Request(
        f"http://{pool.members[0]}/v1/jobs", json.dumps({"spec": spec}).encode(), {"content-type": "application/json"}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=10)
    assert refused.value.code == 400
    details = {detail["@type"].rsplit(".", 1)[1]: detail for detail in json.load(refused.value)["details"]}
    assert details["ErrorInfo"]["reason"] == "INVALID_FIELD"
    assert [wrong["field"] for wrong in details["BadRequest"]["fieldViolations"]] == ["spec.checkpoint.mode"]
    assert numbers_of_jobs() == before
