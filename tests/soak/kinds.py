"""The kinds of jobs of a soak: what each is, what is done with it while it waits or runs, and the end that it must have.

A job is written as job files write it. Whatever members and agents go through meanwhile, its end is that of its kind; only the number
of its attempts may be larger, by those that a fault of ours interrupted.
"""

import dataclasses
import hashlib

from pool import OUTPUT_FILE, OUTPUT_FILES, RARE
from work import rests

#: Debian's, which every account finds.
PYTHON = "/usr/bin/python3"
#: Jobs of an array.
SMALL = 12
STEPS, HALF = 2_000, 1_000
#: A program that computes a chain of hashes, of which each step needs the one before, and stands still half-way until it may go on.
CHAIN = f"""#!{PYTHON}
import hashlib, os, pathlib, sys, time, tessera_control
control = tessera_control.Control()
state, marks = pathlib.Path(control.folder) / "state", pathlib.Path(os.environ["MARKS"])
step, chain = 0, b""
if state.exists():
    word, chain = state.read_bytes().split(b" ", 1)
    step = int(word)
with open(marks / "runs", "a") as runs:
    runs.write(f"{{step}}\\n")
while step < {STEPS}:
    if step == {HALF} and not (marks / "go").exists():
        (marks / "half").touch()
        time.sleep(0.01)
    else:
        step, chain = step + 1, hashlib.sha256(chain + str(step).encode()).digest()
    if control.asked():
        state.write_bytes(str(step).encode() + b" " + chain)
        control.saved(step)
        if control.stopping:
            sys.exit(0)
print(chain.hex())
"""
#: Bytes of output, of which the agent keeps about a half.
MUCH = 2 * OUTPUT_FILE * OUTPUT_FILES


def undisturbed():
    """Returns what the chain of hashes comes to when nobody disturbs it."""
    chain = b""
    for step in range(STEPS):
        chain = hashlib.sha256(chain + str(step).encode()).digest()
    return chain.hex()


@dataclasses.dataclass(frozen=True)
class End:
    """The end that a job must have. Attempts and retries are those of a job that no fault touches."""

    state: str
    reason: str
    exit_code: int | None = None
    signal: int | None = None
    attempts: int = 1
    retries: int = 0
    decisive_rank: int | None = None
    #: Reasons with which attempts before the last may have ended by what the kind itself does.
    between: tuple = ()


DONE = End("COMPLETED", "EXITED", exit_code=0)
CANCELLED = End("CANCELLED", "CANCELLED", signal=15)


def shell(line, **more):
    return {"command": ["/bin/sh", "-c", line], "virtual_card": {"tflops": 1, "memory": "64MiB", "kinds": ["gpu"]}, **more}


def works(work):
    work.ends(work.submit(shell("exit 0"), DONE))


def exits_with_code(work):
    job = work.submit(shell("echo to the log; exit 7"), End("FAILED", "NON_ZERO_EXIT", exit_code=7, decisive_rank=0))
    code = work.pool.tessera("job", "wait", str(job), "--timeout", "120s", check=False).returncode
    work.expect(code == 7, f"job wait ends with {code} for a job that ended with 7")
    work.ends(job)
    work.expect(work.output(job) == "to the log\n", "its output is another one")


def is_killed(work):
    work.ends(work.submit(shell("kill -9 $$"), End("FAILED", "SIGNALLED", signal=9, decisive_rank=0)))


def has_no_interpreter(work):
    job = {**shell(""), "command": None, "script": "#!/no/such/interpreter\n"}
    work.ends(work.submit(job, End("FAILED", "START_FAILED", decisive_rank=0)))


def runs_out_of_memory(work):
    job = {**shell(""), "command": [PYTHON, "-c", "x = b'x' * (1 << 30)"], "host": {"memory": "64MiB"}}
    work.ends(work.submit(job, End("FAILED", "OUT_OF_MEMORY", signal=9, decisive_rank=0)))


def is_cancelled_waiting(work):
    job = work.submit(shell("exit 0", node_labels={"node": "nowhere"}), End("CANCELLED", "CANCELLED", attempts=0))
    work.comes_to(job, "PENDING")
    work.steer(job, "cancel")
    work.ends(job)


def is_cancelled_running(work):
    job = work.submit(shell("exec sleep 1000"), CANCELLED)
    work.comes_to(job, "RUNNING")
    work.steer(job, "cancel")
    work.ends(job)


def runs_too_long(work):
    work.ends(work.submit(shell("exec sleep 1000", time_limit="1s"), End("TIMEOUT", "TIME_LIMIT", signal=15, decisive_rank=0)))


def is_tried_again(work):
    line = f"[ -e {work.marks}/tried ] && exit 0; touch {work.marks}/tried; exit 3"
    job = shell(line, retry={"max_retries": 2, "backoff": "1s"})
    end = dataclasses.replace(DONE, attempts=2, retries=1, between=("NON_ZERO_EXIT",))
    work.ends(work.submit(job, end))


def is_a_gang_of_which_one_fails(work):
    end = End("FAILED", "NON_ZERO_EXIT", exit_code=9, decisive_rank=1)
    work.ends(work.submit(shell("[ $RANK = 1 ] && exit 9; exec sleep 1000", gang=3, affinity={"spread": "node"}), end))


def says_much(work):
    job = work.submit(shell(f"head -c {MUCH} /dev/zero | tr '\\0' x; echo; echo end"), DONE)
    work.ends(job)
    text = work.output(job)
    work.expect(text.endswith("x\nend\n"), f"its output ends with {text[-20:]!r}")
    work.expect(OUTPUT_FILE < len(text) <= OUTPUT_FILE * OUTPUT_FILES, f"{len(text)} bytes of its output are kept")


def says_nothing(work):
    job = work.submit(shell(":"), DONE)
    work.ends(job)
    work.expect(work.output(job) == "", "it has output")


def is_held(work):
    job = work.submit(shell("exit 0", hold=True), DONE)
    work.expect(work.comes_to(job, "PENDING")["held"], "it is not on hold")
    work.steer(job, "release")
    work.ends(job)


def chain(work, **more):
    """A job that saves itself, and is told to stop half-way."""
    return {
        **shell(""), "command": None, "script": CHAIN,
        "environment": {"MARKS": str(work.marks), "PYTHONPATH": str(work.pool.programs), "PYTHONDONTWRITEBYTECODE": "1"},
        "checkpoint": {"mode": "cooperative", "grace": "60s", "every": "1s"}, **more,
    }  # fmt: skip


def goes_on(work, job):
    """The chain ends as if nothing had been, and each attempt went on where the one before had been saved."""
    ended = work.ends(job)
    work.expect(work.output(job) == undisturbed() + "\n", "it came to something else than undisturbed")
    began = [int(step) for step in (work.marks / "runs").read_text().split()]
    work.expect(began == [0, HALF] or work.was_hit(ended), f"its attempts began at the steps {began}")


def is_suspended_and_resumed(work):
    job = work.submit(chain(work), dataclasses.replace(DONE, attempts=2, between=("SUSPENDED_BY_USER",)))
    work.until(job, "half of it to be done", (work.marks / "half").exists)
    work.steer(job, "suspend")
    work.comes_to(job, "SUSPENDED")
    (work.marks / "go").touch()
    work.steer(job, "resume")
    goes_on(work, job)


def is_moved(work):
    job = work.submit(chain(work), dataclasses.replace(DONE, attempts=2, between=("MOVING",)))
    work.until(job, "half of it to be done", (work.marks / "half").exists)
    work.steer(job, "move")

    def has_moved():
        found = work.get(job)
        if not rests(found):
            return False
        # A drain of its target, or the end of a node, may have stopped the move.
        if found["attempts"] < 2 and found["reason"]["code"] == "MOVE_FAILED":
            work.steer(job, "move")
        return found["attempts"] > 1

    work.until(job, "it to have moved", has_moved)
    (work.marks / "go").touch()
    goes_on(work, job)


def is_preempted(work):
    rare = {"tflops": 16, "memory": "64MiB", "kinds": [RARE]}
    # The one card of its kind, for one pair at a time.
    with work.rare_card:
        victim = work.submit(
            chain(work, virtual_card=rare, priority=1), dataclasses.replace(DONE, attempts=2, between=("PREEMPTED",))
        )
        work.until(victim, "half of it to be done", (work.marks / "half").exists)
        urgent = work.submit(shell("exit 0", virtual_card=rare, priority=90), DONE)
        work.ends(urgent)
        (work.marks / "go").touch()
        goes_on(work, victim)


def is_an_array(work):
    jobs = work.submit_all([shell(f"echo run >> {work.marks}/{number}", name=f"{number}") for number in range(SMALL)], DONE)
    for number, job in enumerate(jobs):
        ended = work.ends(job)
        runs = (work.marks / f"{number}").read_text().count("run")
        work.expect(runs == 1 or work.was_hit(ended), f"it ran {runs} times")


#: In the order in which a warm-up has them; the slow ones first.
KINDS = [
    is_preempted, is_suspended_and_resumed, is_moved, runs_out_of_memory, is_tried_again, runs_too_long, is_a_gang_of_which_one_fails,
    is_an_array, is_cancelled_running, is_cancelled_waiting, is_held, exits_with_code, says_much, has_no_interpreter, is_killed,
    works, says_nothing,
]  # fmt: skip
