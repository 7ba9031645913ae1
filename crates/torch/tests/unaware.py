"""Programs with a device that know nothing of checkpoints, as jobs that a test disturbs, and what they come to undisturbed."""

import functools
import os
import tempfile

import serving
from pools import wait

#: Says how often it began.
BEGINS = """
import os, pathlib, sys, time, torch
began = pathlib.Path(sys.argv[2])
began.write_text(began.read_text() + "x" if began.exists() else "x")
steps, held = int(sys.argv[1]), pathlib.Path(sys.argv[3])
"""
#: A training with dropout, in batches that travel as bulk data, that looks at a value each step.
TRAINING = """
torch.manual_seed(5)
torch.set_num_threads(1)
data = torch.randn(16, 64, 256)
model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(64, 256)).to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
def trained(step):
    inputs = data[step % 16].to("tessera")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print("step", step, loss.item().hex(), flush=True)
    return loss
def is_held(step):
    return step % 8 == 7 and held.exists() and int(held.read_text() or 0) <= step // 8
def says(loss):
    print("ends at", *(p.detach().cpu().double().sum().item().hex() for p in model.parameters()), loss.item().hex(), flush=True)
"""
#: Knows nothing of checkpoints. It waits at every eighth step for as long as somebody holds it: so that a test disturbs it where it means to.
PROGRAM = f"""{BEGINS}{TRAINING}
for step in range(steps):
    loss = trained(step)
    while is_held(step):
        time.sleep(0.01)
says(loss)
"""
STEPS = 24


@functools.cache
def undisturbed():
    """The last line of the same program that nothing disturbs, on one slice."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder, serving.Server(folder, "--threads", "1") as server:
        printed = server.run(PROGRAM, STEPS, f"{folder}/began", f"{folder}/held")
    return printed.splitlines()[-1]


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
    """A job with such a program, or with one that saves itself when it cannot be dumped and is told to stop."""

    def __init__(self, pool, folder, program=PROGRAM, arguments=(), **more):
        self.pool, self._began, self._held = pool, folder / "began", folder / "held"
        self.may_come_to(0)
        checkpoint = {"mode": "transparent", "grace": "60s", **more.pop("checkpoint", {})}
        words = ["-c", program, STEPS, self._began, self._held, *arguments]
        self.job = pool.submit(*words, checkpoint=checkpoint, preemptible=True, **more)

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
        return self.is_suspended()

    def is_suspended(self):
        return wait("it to be suspended", lambda: (seen := self.shown())["state"] == "suspended" and seen, 120)

    def runs_in(self, attempt):
        def looked():
            seen = self.shown()
            return seen["state"] == "running" and len(seen["history"]) == attempt and seen

        return wait(f"attempt {attempt} to run", looked, 120)

    def comes_to_the_same(self):
        self.may_come_to(STEPS)
        state, printed, errors = self.pool.ends(self.job)
        assert state == "completed", (self.shown()["history"], errors)
        assert printed.splitlines()[-1] == undisturbed(), errors

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
