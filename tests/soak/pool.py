"""The pool that is soaked: three members and three agents on loopback, with simulated cards, and the ways to ask it.

Its nodes have an accelerator each, and the first has a second one, of another kind, which one job takes whole at a time.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

import demo  # noqa: E402  (the folder has to be known first)

#: Blocks of the accelerator of each node, and of the one card of the kind RARE, which is on the first node.
BLOCKS, RARE = 16, "fpga"
#: Small files, so that a job with much output has some of it dropped.
OUTPUT_FILE, OUTPUT_FILES = 64 << 10, 4
AGENT = f"""cgroup_root = "{{group}}"
[limits]
output_file = "{OUTPUT_FILE >> 10}KiB"
output_files = {OUTPUT_FILES}
"""
CARD = """[[node.card]]
kind = "{kind}"
vendor = "acme"
model = "{kind}-{blocks}"
memory_gib = 64
tflops = {{ fp16 = {blocks} }}
"""
#: The longest wait for what must come, on a machine that is busy with other things.
PATIENCE_S = 120
#: The time for one answer of a member; one that stands still, or has just been killed, gives none.
ANSWER_S = 10
#: Long leases, so that no work ends because a busy machine let an agent wait.
LEASES = ("--lease-heartbeat=1s", "--lease-stop-after=60s", "--lease-kill-after=75s", "--lease-regrant-after=100s")
#: The end of the run, whatever its hands are waiting for.
OVER = threading.Event()


class Refused(Exception):
    """A request that no repetition makes good."""


class Over(Exception):
    """The run was told to end."""


def rest(seconds=0.05):
    """Waits a moment before something is looked at again."""
    if OVER.wait(seconds):
        raise Over


def request_id():
    """A UUID of version 7, by which a request that is sent again is carried out once."""
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6], raw[8] = raw[6] & 0x0F | 0x70, raw[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


def until(what, condition, patience=PATIENCE_S):
    """Waits until the condition answers something true, and returns it."""
    deadline = time.monotonic() + patience
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s in vain for {what}")
        rest()
    return answer


class Pool(demo.Pool):
    """The processes of the pool; all of them, and only they and what they started, are ended by pid."""

    def __init__(self, binary, folder):
        super().__init__(binary, folder)
        self.environment["TESSERA_CONFIG"] = str(folder / "no-contexts.toml")
        # Names of nodes and control groups that no other pool of this host has.
        self.nodes = [f"{folder.name}-{number}" for number in range(3)]
        self.pages = {name: f"127.0.0.1:{demo.free_port()}" for name in [*self.member_names(), *self.nodes]}
        self.groups = demo.control_groups(folder, "soak")
        self.programs = folder / "python"

    def member_names(self):
        return [f"m{number}" for number in range(len(self.members))]

    def data(self, name):
        return self.folder / name

    def start_member(self, number):
        name = f"m{number}"
        self.start(name, "server", "--name", name, "--listen", self.members[number], "--http", self.pages[name],
                   "--data-dir", str(self.data(name)))

    def start_agent(self, node):
        self.start(node, "agent", "--name", node, "--data-dir", str(self.data(node)), "--server", ",".join(self.members),
                   "--http", self.pages[node], "--inventory", str(self.folder / "cards.toml"),
                   "--config", str(self.folder / f"{node}.toml"))

    def bring_up(self):
        """Starts everything and waits until each node is ready."""
        # Workers have identities of their own, pass through the folder, and read programs.
        self.folder.chmod(0o755)
        shutil.copytree(ROOT / "crates" / "agent" / "python", self.programs, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (self.programs, *self.programs.iterdir()):
            path.chmod(0o755)
        cards = {node: [("gpu", BLOCKS)] for node in self.nodes}
        cards[self.nodes[0]].append((RARE, BLOCKS))
        (self.folder / "cards.toml").write_text("".join(
            f'[[node]]\nname = "{node}"\n' + "".join(CARD.format(kind=kind, blocks=blocks) for kind, blocks in own)
            for node, own in cards.items()))
        for number in range(len(self.members)):
            self.start_member(number)
        until("the cluster to be made", lambda: self.tessera("cluster", "init", *LEASES, check=False).returncode == 0)
        for node in self.nodes:
            (self.folder / f"{node}.toml").write_text(AGENT.format(group=f"{self.groups}/{node}"))
            self.start_agent(node)
        until("the nodes to be ready", self.ready)

    def ready(self):
        """Returns whether every node takes work."""
        nodes = self.get("/v1/nodes")["nodes"]
        return sum(node["state"] == "NODE_STATE_READY" for node in nodes) == len(self.nodes)

    def dead(self):
        """The processes that have ended although nobody ended them."""
        ended = {name: process.poll() for name, process in self.processes.items()}
        return [f"{name} with code {code}" for name, code in ended.items() if code is not None]

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def end(self, name, number):
        """Ends a process by a signal and waits until it is gone."""
        self.signal(name, number)
        self.processes[name].wait(PATIENCE_S)

    def command(self, *arguments):
        """Runs a command until it succeeds, as whoever meets a fault does; returns what it printed."""
        said = ""

        def succeeds():
            nonlocal said
            done = self.tessera(*arguments, check=False)
            said = done.stderr.strip()
            return (done,) if done.returncode == 0 else None

        try:
            return until(f"tessera {' '.join(arguments)} to succeed", succeeds)[0].stdout
        except AssertionError as error:
            raise AssertionError(f"{error}: {said}") from None

    def get(self, path, member=None):
        return self.call("GET", path, member=member)

    def post(self, path, body):
        """Has one member carry out a change, once, however often it is asked."""
        return self.call("POST", path, {"requestId": request_id(), **body})

    def call(self, method, path, body=None, member=None):
        """Asks one member, or whichever answers, until there is an answer; raises `Refused` when it is no."""
        members = self.members if member is None else [self.members[member]]
        deadline, tries = time.monotonic() + PATIENCE_S, 0
        while True:
            address = members[tries % len(members)]
            request = urllib.request.Request(f"http://{address}{path}", method=method)
            if body is not None:
                request.data = json.dumps(body).encode()
                request.add_header("content-type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                if error.code < 500 and error.code != 429:
                    raise Refused(f"{method} {path}: {error.code} {said}") from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                said = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(f"{method} {path}: no answer within {PATIENCE_S} s, the last of {address}: {said}")
            tries += 1
            rest()

    def jobs(self, member=None):
        """All jobs that the ledger has, by number."""
        jobs, token = {}, ""
        while True:
            page = self.get(f"/v1/jobs?page_size=1000&page_token={token}", member)
            jobs |= {int(job["id"]): job for job in page["jobs"]}
            if not (token := page["nextPageToken"]):
                return jobs

    def series(self, name):
        """The series that a process shows, with their values."""
        with urllib.request.urlopen(f"http://{self.pages[name]}/metrics", timeout=ANSWER_S) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}

    def connected(self, node):
        """Returns whether an agent has started and is connected to the leader."""
        try:
            return self.series(node)["tessera_agent_connected"] == 1
        except (OSError, http.client.HTTPException):
            return False

    def leader(self):
        """The number of the member that leads, as soon as a majority knows one."""

        def found():
            address = (self.get("/v1/cluster").get("leader") or {}).get("address")
            return [address] if address in self.members else None

        return self.members.index(until("a leader", found)[0])

    def agrees(self):
        """Returns whether every member has applied what the others have, under one leader."""
        try:
            return len({self.get("/v1/cluster", number)["leader"]["address"] for number in range(len(self.members))}) == 1
        except (KeyError, TypeError):
            return False

    def left(self):
        """The processes that belong to this pool and are not ours to wait for: supervisors, and what their workers started."""
        own = {process.pid for process in self.processes.values() if process.poll() is None} | {os.getpid()}
        mark, found = str(self.folder).encode(), {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                if pid not in own and mark + b"/" in words + pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = words.replace(b"\0", b" ").decode(errors="replace")[:200]
        return found

    def stop(self):
        """Ends everything; returns what was left of it when its processes had ended in order."""
        for process in self.processes.values():
            # One that stands still would not hear it.
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        super().stop()
        left = [f"process {pid}: {words}" for pid, words in self.left().items()]
        deadline = time.monotonic() + 20
        while (found := self.left()) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return left
