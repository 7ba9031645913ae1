#!/usr/bin/env python3
"""Runs the parts of the suite, says what each of them cost, and makes sure that nothing is left of them: suite.py [PART ...]

A part is a target of the Makefile; without one all are run, in the order of `PARTS`. Parts go on after one that failed, so that
one run tells everything. What they write besides goes into a folder of this run (`TMPDIR`), and what they name outside of it
(control groups, networks) carries the word in `TESSERA_SUITE`; both are looked for at the end, as is every process that a part
started. Whatever is found is ended or removed, and fails the run. The same is done when the run is ended by Ctrl-C or SIGTERM.

    suite.py --budgets     prints the table of CONTRIBUTING.md; --check compares it with what stands there
"""

import argparse
import collections
import contextlib
import ctypes
import math
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: What a part does, and how many seconds it may take on a machine that adds ten million numbers in Python in `SLOW_S`, with the
#: dependencies compiled or not.
PARTS = {
    "setup": ("installs what the suite needs, compiles RocksDB once", 420),
    "compile": ("compiles everything, the tests and the binary, by clippy", 720),
    "lint": ("format, documents, protocol files", 60),
    "unit": ("unit, property, model and end-to-end tests", 300),
    "soak": ("a pool under jobs of all kinds and faults: ends, and what grows", 100),
    "packages": ("the Debian package, units, an image, three hosts", 90),
    "operating": ("dashboards, alerts, runbooks", 90),
    "console": ("the web console in a browser", 60),
    "simulation-compile": ("compiles the simulation", 240),
    "simulation": ("whole pools under faults that seeds decide", 120),
    "wheel": ("the wheel of the device and its dispatcher", 120),
    "device": ("the device for PyTorch, by itself and in jobs", 480),
}
SLOW_S = 1.7
#: Parts that work for so long by the clock, on whatever machine.
BY_CLOCK = {"soak"}
#: Nothing that goes on well is silent for so long.
SILENCE_S = 1800
#: How long what was told to end may take, and what nobody told.
GRACE_S = 40
CLOSING_S = 10
SLOWEST = 10
#: Tests that say how long they took: Rust's, and pytest's.
TIMED = (re.compile(r"^test (\S+) \.\.\. ok <([\d.]+)s>"), re.compile(r"^([\d.]+)s (?:call|setup) +(\S+)"))
#: Tests that say that they failed: pytest's, with why; Rust's, whose threads say why where they panic, on the line after.
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.*)|^test (\S+) \.\.\. FAILED")
PANICKED = re.compile(r"^thread '(.+?)' .*panicked at (.*)$")
#: What is told of failures at the end: so many of them, or so many lines of a part that names none.
TOLD = 20
LAST_LINES = 8
PR_SET_CHILD_SUBREAPER = 36


def say(text):
    print(f"suite: {text}", flush=True)


def speed_s():
    """Seconds for ten million additions, of a variable as a program has it outside of functions."""
    begun = time.perf_counter()
    exec("number = 0\nfor _ in range(10_000_000): number += 1", {})
    return time.perf_counter() - begun


def budgets():
    rows = "".join(f"| `{part}` | {what} | {seconds} |\n" for part, (what, seconds) in PARTS.items())
    total = sum(seconds for _, seconds in PARTS.values())
    return f"| part | what it does | seconds |\n|---|---|---|\n{rows}| all | | {total} |\n"


class Interrupted(Exception):
    """The run was told to end, by a signal."""


class Run:
    """One run of some parts, and what it may leave behind."""

    def __init__(self):
        self.name = f"s{os.getpid()}"
        # Short: paths of Unix sockets lie below it. Workers have identities of their own, and enter it.
        self.folder = place() / f"tessera-{self.name}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        self.environment = {**os.environ, "TMPDIR": str(self.folder), "TESSERA_SUITE": self.name, "COLUMNS": "300"}
        self.costs, self.busy, self.slowest = {}, {}, []
        # What failed, by part; what panicked, by thread; and the last that the present part printed.
        self.failed, self.panics, self.last = {}, {}, collections.deque(maxlen=LAST_LINES)
        # Whatever a part starts and forgets becomes a child of this process, and is found; its end is noted at once, as by the first
        # process of a host.
        self.make, self.starting = None, False
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGCHLD, lambda *_: self.reap())

    def part(self, part):
        begun, worked = time.monotonic(), worked_s()
        say(f"{part} begins: {PARTS[part][0]}")
        self.failures = []
        self.last.clear()
        self.starting = True
        make = self.make = subprocess.Popen(
            ["make", "--no-print-directory", part], cwd=ROOT, env=self.environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.starting = False
        try:
            ended = self.follow(make, SILENCE_S)
            if not ended:
                say(f"{part} was silent for {SILENCE_S} s and is ended")
                self.end(make)
        except BaseException:
            self.end(make)
            raise
        self.costs[part] = time.monotonic() - begun
        self.busy[part] = (worked_s() - worked) / self.costs[part] / os.cpu_count()
        self.make = None
        if not ended or make.returncode:
            self.failed[part] = self.failures or list(self.last)
            say(f"{part} FAILED after {self.costs[part]:.0f} s")

    def reap(self):
        """Takes note of the ends of processes that nobody else waits for: not of `make`, whose end says whether a part failed."""
        with contextlib.suppress(ChildProcessError):
            while not self.starting and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                if self.make and ended.si_pid == self.make.pid:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def follow(self, make, patience_s, bound_s=math.inf):
        """Passes on what a part prints until it ends; answers whether it did before it was silent for so long, and within the
        bound. What it has left running may hold its output open for ever, and is not waited for."""
        line, begun = b"", time.monotonic()
        heard = begun
        while (now := time.monotonic()) - heard < patience_s and now - begun < bound_s:
            ended = make.poll() is not None
            ready, _, _ = select.select([make.stdout], [], [], 0 if ended else 1)
            some = os.read(make.stdout.fileno(), 65_536) if ready else b""
            if not some:
                if ended:
                    return True
                if ready:
                    time.sleep(0.1)
                continue
            heard = time.monotonic()
            sys.stdout.buffer.write(some)
            sys.stdout.buffer.flush()
            *lines, line = (line + some).split(b"\n")
            for text in lines:
                self.hear(text.decode(errors="replace"))
        return False

    def hear(self, line):
        self.time(line)
        if self.last and (panicked := PANICKED.match(self.last[-1])):
            self.panics[panicked[1]] = f"{panicked[2]} {line}"
        if failed := FAILED.match(line):
            self.failures.append(failed[1] or failed[2])
        self.last.append(line)

    def time(self, line):
        rust, pytest = (pattern.match(line) for pattern in TIMED)
        if rust:
            self.slowest.append((float(rust[2]), rust[1]))
        elif pytest:
            self.slowest.append((float(pytest[1]), pytest[2]))

    def end(self, make):
        """Tells a part to end as Ctrl-C does; kills what does not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(make.pid, signal.SIGINT)
        if not self.follow(make, GRACE_S, GRACE_S):
            kill(descendants())

    def clean(self):
        """Ends and removes what is left of the parts; answers what that was."""
        # What was told to end may be about to.
        until(time.monotonic() + CLOSING_S, lambda: not descendants())
        left = [f"process {pid}: {words}" for pid, words in descendants().items()]
        kill(descendants())
        for mount in reversed([mount for mount in mounts() if self.is_ours(mount)]):
            left.append(f"mount {mount}")
            subprocess.run(["umount", "--lazy", mount], check=False)
        for device, file in loop_devices():
            if self.is_ours(file):
                left.append(f"loop device {device} of {file}")
                subprocess.run(["losetup", "--detach", device], check=False)
        for name in networks():
            if self.is_ours(name):
                left.append(f"network namespace {name}")
                subprocess.run(["ip", "netns", "delete", name], check=False)
        if self.failed:
            self.keep_logs()
        if not any(self.is_ours(mount) for mount in mounts()):
            # What libraries keep for the next time is no fault of a test.
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            left.append(f"folder {self.folder}")
        # Those of agents and supervisors that a test kills have nobody who removes them; what lived in them was found above.
        for group in self.groups():
            with contextlib.suppress(OSError):
                os.rmdir(group)
        left += [f"control group {group}" for group in self.groups()]
        return left

    def keep_logs(self):
        kept = ROOT / "target" / "failed"
        shutil.rmtree(kept, ignore_errors=True)
        for log in self.folder.rglob("*.log"):
            with contextlib.suppress(OSError):
                copy = kept / log.relative_to(self.folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(log, copy)
        say(f"logs of what was left standing are in {kept}")

    def groups(self):
        """Our control groups, the deepest first."""
        return [folder for folder, _, _ in os.walk("/sys/fs/cgroup", topdown=False) if self.is_ours(folder)]

    def is_ours(self, name):
        return self.name in re.split(r"[^a-z0-9]+", name)

    def report(self, speed):
        say(f"ten million additions take {speed:.2f} s here (budgets are for {SLOW_S} s)")
        over = []
        for part, cost in self.costs.items():
            budget = PARTS[part][1] * (1 if part in BY_CLOCK else max(speed / SLOW_S, 0.5))
            failed = "  FAILED" if part in self.failed else ""
            say(f"{part:20} {cost:6.0f} s of {budget:5.0f} s, processors busy {self.busy[part]:4.0%}{failed}")
            if cost > budget:
                over.append(f"OVER BUDGET: {part} took {cost:.0f} s, and may take {budget:.0f} s (CONTRIBUTING.md)")
        say(f"{'all':20} {sum(self.costs.values()):6.0f} s")
        if self.slowest:
            say(f"the {SLOWEST} slowest tests:")
            for seconds, test in sorted(self.slowest, reverse=True)[:SLOWEST]:
                say(f"  {seconds:6.1f} s  {test}")
        for line in over:
            say(line)

    def report_failures(self):
        """Says last what failed and why: whoever sees the end of a long log sees that."""
        told = [f"{part}: {test}: {self.panics.get(test, '')}" for part, tests in self.failed.items() for test in tests]
        for line in told[:TOLD]:
            say(f"FAILED in {line.rstrip(': ')}"[:400])
        if len(told) > TOLD:
            say(f"and {len(told) - TOLD} more failed")
        if self.failed:
            say(f"FAILED: {', '.join(self.failed)}")


def place():
    """The folder for temporary ones: one that every account can enter, if this is root, whose workers have identities of their own."""
    named = pathlib.Path(tempfile.gettempdir()).resolve()
    private = os.geteuid() == 0 and any(not folder.stat().st_mode & 0o001 for folder in (named, *named.parents))
    return pathlib.Path("/tmp") if private else named


def worked_s():
    """Seconds for which the processors of this machine worked, of all of them together."""
    user, nice, system = map(int, pathlib.Path("/proc/stat").read_text().split(maxsplit=4)[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def until(deadline, condition):
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def kill(processes):
    """Kills these, and what they start meanwhile."""

    def gone():
        found = descendants()
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return not found

    if processes:
        until(time.monotonic() + GRACE_S, gone)


def descendants():
    """What runs below this process, by process id, with its command line. Zombies do not run."""
    parents, words = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[pid] = int(parent)
                words[pid] = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    found, further = set(), {os.getpid()}
    while further:
        found |= further
        further = {pid for pid, parent in parents.items() if parent in found} - found
    return {pid: words[pid] for pid in found - {os.getpid()}}


def mounts():
    lines = pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines()
    places = (re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), line.split()[4]) for line in lines)
    return [os.fsdecode(place) for place in places]


def loop_devices():
    for file in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            yield f"/dev/{file.parts[3]}", file.read_text().strip()


def networks():
    with contextlib.suppress(OSError):
        yield from os.listdir("/run/netns")


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt(number, _):
    # Once: what follows is the cleaning up.
    answer_endings(signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def answer_endings(by):
    for number in ENDINGS:
        signal.signal(number, by)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--budgets", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.budgets or options.check:
        said = budgets()
        if options.check and said not in (ROOT / "CONTRIBUTING.md").read_text():
            sys.exit("CONTRIBUTING.md has other budgets than tests/suite.py: copy the table that tests/suite.py --budgets prints")
        if options.budgets:
            print(said, end="")
        return 0
    speed, run, ended, left = speed_s(), Run(), None, []
    try:
        answer_endings(interrupt)
        for part in options.parts or PARTS:
            run.part(part)
    except Interrupted as signalled:
        ended = str(signalled)
    finally:
        answer_endings(signal.SIG_IGN)
        left = run.clean()
    if ended:
        say(f"ended by {ended}")
    run.report(speed)
    for what in left:
        say(f"LEFT BEHIND: {what}")
    run.report_failures()
    return 1 if run.failed or left or ended else 0


if __name__ == "__main__":
    sys.exit(main())
