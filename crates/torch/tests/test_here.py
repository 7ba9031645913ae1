"""`tessera run --here`: programs of this host compute on cards of a pool, whatever becomes of those meanwhile, and give them back."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from pools import SITE, served, wait

TESTS = pathlib.Path(__file__).parent
STEPS = 40


@pytest.fixture(scope="module")
def pool():
    with served('host_lease = "3s"\n') as pool:
        yield pool


class Here:
    """A command that runs a program here."""

    def __init__(self, pool, *program, name, tflops=8, options=()):
        self.pool, self.name = pool, name
        environment = {
            **pool.environment, "TESSERA_BUILD": os.environ["TESSERA_BUILD"], "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": SITE, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        }  # fmt: skip
        words = ["run", "--here", "--tflops", str(tflops), "--memory", "256MiB", "--name", name, *options, "--"]
        self.printed, self.errors = pool.folder / f"{name}.out", pool.folder / f"{name}.err"
        with open(self.printed, "wb") as out, open(self.errors, "wb") as err:
            self.process = subprocess.Popen(
                [pool.binary, *words, *map(str, program)], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def job(self):
        found = [job for job in self.pool.ask("job", "list", "--all") if job["name"] == self.name]
        return self.pool.ask("job", "show", str(found[0]["id"]))

    def comes_to(self, state):
        return wait(f"the job to be {state}", lambda: (job := self.job())["state"] == state and job, 90)

    def says(self, words):
        wait(f"the program to say {words}", lambda: words in self.printed.read_text() or self.process.poll() is not None, 90)
        assert words in self.printed.read_text(), self.errors.read_text()

    def ends(self):
        """Its exit code, and what it printed."""
        code = self.process.wait(90)
        return code, self.printed.read_text()


@pytest.fixture
def here(pool, request):
    """Runs programs here; what is left of them is ended."""
    begun = []

    def run(*program, **more):
        begun.append(Here(pool, *program, name=f"{request.node.name}-{len(begun)}", **more))
        return begun[-1]

    yield run
    for one in begun:
        try:
            os.killpg(one.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        one.process.wait()


def loss(printed):
    return float(printed.split()[-1])


@pytest.fixture(scope="module")
def undisturbed(pool):
    """What the program comes to with a card of the pool that nothing happens to: another device has other random numbers."""
    program = Here(pool, sys.executable, TESTS / "plain.py", "tessera", STEPS, name="undisturbed")
    code, printed = program.ends()
    assert code == 0, program.errors.read_text()
    return loss(printed)


@pytest.fixture
def training(here, tmp_path):
    """A training that is half done, and what lets it go on."""
    halted = tmp_path / "halted"
    halted.touch()
    program = here(sys.executable, TESTS / "plain.py", "tessera", STEPS, halted)
    program.says("half")
    return program, halted


def node_of(job):
    return job["allocation"]["workers"][0]["node"]


def servers_of(pool):
    """Processes of the slice servers of the pool, those that descend from an agent, with the words they were started with."""
    agents = {process.pid for process in pool.processes.values()}

    def belongs(pid):
        while pid > 1 and pid not in agents:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return pid > 1

    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "tessera.slice" in words and belongs(int(pid)):
                found[int(pid)] = words
        except OSError:  # it has ended
            pass
    return found


def server_of(pool):
    """Process of the only slice server of the pool."""
    (server,) = servers_of(pool)
    return server


def test_a_program_here_trains_on_a_card_of_the_pool_and_gives_it_back(pool, here, undisturbed):
    program = here(sys.executable, TESTS / "plain.py", "tessera", STEPS)
    assert program.ends()[0] == 0, program.errors.read_text()
    job = program.job()
    assert (job["state"], job["exit_code"], job["allocation"]) == ("completed", 0, None)
    assert loss(program.ends()[1]) == undisturbed
    assert "the virtual card" not in program.errors.read_text(), "nothing is said where nobody reads along"


def suspend(pool, program, job):
    pool.tessera("job", "suspend", job)
    program.comes_to("suspended")
    pool.tessera("job", "resume", job)


def drain(pool, program, job):
    node = node_of(program.job())
    pool.tessera("node", "drain", node, "--yes")
    wait("it to be elsewhere", lambda: (job := program.job())["state"] == "running" and node_of(job) != node, 180)
    pool.tessera("node", "uncordon", node)


def move(pool, program, job):
    node = node_of(program.job())
    pool.tessera("job", "move", job, "--yes")
    wait("it to be elsewhere", lambda: (job := program.job())["state"] == "running" and node_of(job) != node, 180)


def kill(pool, program, job):
    os.kill(server_of(pool), signal.SIGKILL)
    again = wait("another attempt", lambda: (job := program.job())["state"] == "running" and len(job["history"]) > 1 and job, 180)
    assert again["history"][0]["reason"]["code"] == "NODE_FAULT"


def lead_anew(pool, program, job):
    pool.processes["m0"].kill()
    pool.processes["m0"].wait()
    pool.start_member(0)


@pytest.mark.parametrize("disturb", [suspend, drain, move, kill, lead_anew])
def test_whatever_becomes_of_its_card_the_program_comes_to_the_same(pool, training, undisturbed, disturb):
    program, halted = training
    disturb(pool, program, str(program.job()["id"]))
    halted.unlink()
    code, printed = program.ends()
    assert code == 0, program.errors.read_text()
    assert loss(printed) == undisturbed
    assert program.comes_to("completed")["exit_code"] == 0


def test_preempted_it_waits_and_goes_on(pool, training, undisturbed, here):
    program, halted = training
    until = f"import pathlib\nwhile pathlib.Path({str(halted)!r}).exists(): time.sleep(0.01)"
    others = [here(sys.executable, "-c", USES + until, options=["--priority", "90"]) for _ in range(2)]
    for other in others:
        other.says("sum")
    assert program.job()["state"] in ("suspended", "pending")
    halted.unlink()
    assert [other.ends()[0] for other in others] == [0, 0]
    code, printed = program.ends()
    assert (code, loss(printed)) == (0, undisturbed), program.errors.read_text()


USES = "import sys, time, torch\na = torch.ones(4, device='tessera')\nprint('sum', a.sum().item(), flush=True)\n"


def test_the_job_ends_with_the_code_of_the_program_and_so_does_the_command(here):
    program = here(sys.executable, "-c", USES + "sys.exit(3)")
    assert program.ends()[0] == 3
    assert program.comes_to("failed")["exit_code"] == 3


def test_a_program_that_is_not_there_leaves_nothing(here):
    program = here("/nowhere/python")
    assert program.ends()[0] == 127
    assert "/nowhere/python" in program.errors.read_text()
    assert program.comes_to("cancelled")


def test_the_card_of_a_host_that_vanished_is_given_back(pool, here):
    program = here(sys.executable, "-c", USES + "time.sleep(900)")
    program.says("sum")
    os.killpg(program.process.pid, signal.SIGKILL)
    job = program.comes_to("failed")
    assert (job["reason"]["code"], job["allocation"]) == ("HOST_LOST", None)
    assert "not heard of" in job["reason"]["sentence"]


def test_an_interrupt_is_the_programs_and_a_second_one_ends_it(here):
    polite = "try:\n    time.sleep(900)\nexcept KeyboardInterrupt:\n    print('heard', a.sum().item(), flush=True)\n    sys.exit(7)"
    program = here(sys.executable, "-c", USES + polite)
    program.says("sum")
    program.process.send_signal(signal.SIGINT)
    assert program.ends() == (7, "sum 4.0\nheard 4.0\n")
    assert program.comes_to("failed")["exit_code"] == 7
    deaf = here(sys.executable, "-c", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + USES + "time.sleep(900)")
    deaf.says("sum")
    deaf.process.send_signal(signal.SIGINT)
    wait("the first to be heard", lambda: "interrupt again" in deaf.errors.read_text())
    deaf.process.send_signal(signal.SIGINT)
    assert deaf.ends()[0] == 130
    assert deaf.comes_to("cancelled")["allocation"] is None


def test_a_program_whose_job_was_cancelled_is_told_so(pool, here):
    told = "try:\n    while True: a.sum().item()\nexcept ConnectionError as error:\n    print('told', 'cancelled' in str(error))"
    program = here(sys.executable, "-c", USES + told)
    program.says("sum")
    pool.tessera("job", "cancel", str(program.job()["id"]), "--yes")
    assert program.ends() == (0, "sum 4.0\ntold True\n"), program.errors.read_text()
    assert "there is no virtual card any more" in program.errors.read_text()


def test_a_card_that_does_not_exist_is_refused_before_anything_runs(pool, here):
    program = here(sys.executable, "-c", "print('never')", tflops=800)
    assert program.ends() == (4, "")
