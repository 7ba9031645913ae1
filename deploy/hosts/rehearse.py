#!/usr/bin/env python3
"""Rehearses a deployment on three hosts, in namespaces of this machine: rehearse.py --binary BINARY [--round-trip MS]

Each host is a namespace of network, mounts, processes and names, with an address, a host name and a file system of its own
(an overlay above this machine's). `rollout.py` installs the Debian package there and writes the configuration; a stand-in for
systemd starts the installed units. Then, under a stream of submissions:

1. the inventory changes, rollout.py restarts the pool member by member, is killed on the way, and is run again,
2. the inventory names a member that is none, which may cost one agent its work and no more, and is mended,
3. the host of the leader is lost, all of it at once, and comes back.

Nothing acknowledged may be lost or done twice. Needs root and cargo-deb, or a package that is built (--package).
"""

import argparse
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from namespaces import HERE, PATIENCE_S, Host, call, check, say, until

NAMES = ["host-1", "host-2", "host-3"]
# Shorter than a pool has by itself, so that the loss of a node is over sooner.
LEASES = {"lease-heartbeat": "500ms", "lease-stop-after": "2s", "lease-kill-after": "3s", "lease-regrant-after": "5s"}


class Stream:
    """A client that submits jobs, one after the other, and sends each again until it is acknowledged."""

    def __init__(self, tessera, job):
        self.tessera, self.job = tessera, job
        self.acknowledged, self.waits_s = [], []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.end.is_set():
            begun, request = time.monotonic(), request_id()
            while True:
                arguments = ["job", "submit", "--detach", "-o", "json", "--request-id", request, str(self.job)]
                done = subprocess.run([*self.tessera, *arguments], capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    self.acknowledged.append(json.loads(done.stdout)["id"])
                    break
                if time.monotonic() > begun + PATIENCE_S:
                    return
            self.waits_s.append(time.monotonic() - begun)
            time.sleep(0.1)

    def more(self, count):
        """Waits until so many more were acknowledged."""
        enough = len(self.acknowledged) + count
        until(f"{count} more submissions are acknowledged", lambda: len(self.acknowledged) >= enough)

    def taken(self):
        """The longest time from a submission to its acknowledgement since this was asked last."""
        waits, self.waits_s = self.waits_s, []
        return f"{max(waits):.2f} s"


def request_id():
    """A UUID of version 7: the pool wants to know when a request was made."""
    number = int(time.time() * 1000) << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def round_trip_ms(address):
    """How long a ping of HTTP/2 takes to a member and back."""
    ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + secrets.token_bytes(8)
    with socket.create_connection((address, 7400), timeout=PATIENCE_S) as way:
        way.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        # What it says to greet comes first.
        heard = way.recv(4096)
        begun = time.monotonic()
        way.sendall(ping)
        while ping[9:] not in heard:
            heard += way.recv(4096)
        return (time.monotonic() - begun) * 1000


class Rehearsal:
    def __init__(self, arguments, work):
        self.work, self.binary = work, arguments.binary
        (work / "disks").mkdir()
        call("mount", "-t", "tmpfs", "tmpfs", str(work / "disks"))
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "switch", "type", "bridge")
        call("ip", "address", "add", "10.77.0.254/24", "dev", "switch")
        call("ip", "link", "set", "switch", "up")
        self.hosts = [Host(place, name, work, arguments.round_trip) for place, name in enumerate(NAMES, start=1)]
        for host in self.hosts:
            host.start()
        servers = ",".join(f"{host.address}:7400" for host in self.hosts)
        self.tessera = [str(self.binary)]
        os.environ["TESSERA_SERVER"] = servers
        shutil.copy(arguments.package, work / "tessera.deb")
        (work / "enter").write_text(
            "#!/bin/bash\n# enter NAME COMMAND: what ssh does elsewhere.\n"
            f'exec nsenter --target "$(cat {work}/$1/pid)" --net --uts --mount --pid chroot {work}/$1/root sh -c "$2"\n'
        )
        (work / "enter").chmod(0o755)
        (work / "cards.toml").write_text(
            "".join(
                f'[[node]]\nname = "{name}"\n[[node.card]]\nkind = "gpu"\nvendor = "acme"\nmodel = "G"\ncount = 4\n'
                "memory_gib = 16\ntflops = { fp16 = 25 }\n"
                for name in NAMES
            )
        )
        for host in self.hosts:
            host.run(
                "mkdir -p /etc/tessera && cat >/etc/tessera/cards.toml <<'END'\n"
                f"{(work / 'cards.toml').read_text()}END\n"
            )

    def inventory(self, log, *agent):
        """Writes the inventory, with what is to be logged, and further settings of agents."""
        lines = [
            'package = "tessera.deb"',
            f'shell = ["{self.work}/enter", "{{name}}"]',
            "[cluster]",
            *(f'{key} = "{value}"' for key, value in LEASES.items()),
            "[member]",
            f'log = {{ filter = "{log}" }}',
            "[agent]",
            f'log = {{ filter = "{log}" }}',
            'inventory = "/etc/tessera/cards.toml"',
            *agent,
        ]
        for host in self.hosts:
            group = f"tessera/{self.work.name}/{os.environ.get('TESSERA_SUITE', 'run')}/{host.name}"
            lines += [
                "[[host]]",
                f'name = "{host.name}"',
                f'address = "{host.address}"',
                'roles = ["member", "agent"]',
                f'agent = {{ cgroup_root = "{group}" }}',
            ]
        (self.work / "hosts.toml").write_text("\n".join(lines))

    def command(self):
        return [str(HERE / "rollout.py"), "apply", "--inventory", str(self.work / "hosts.toml")]

    def rollout(self):
        done = subprocess.run(self.command(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"rehearsal: FAILED: {done.stdout}{done.stderr}{self.logs()}")
        return done.stdout

    def interrupted_rollout(self, word):
        """A rollout that is killed as soon as it says this; what it said."""
        said = []
        with subprocess.Popen(self.command(), stdout=subprocess.PIPE, text=True) as rollout:
            for line in rollout.stdout:
                said.append(line)
                if word in line:
                    rollout.kill()
                    break
        return "".join(said)

    def refused_rollout(self):
        """A rollout that must be refused; why it was."""
        done = subprocess.run([*self.command(), "--patience", "8"], capture_output=True, text=True, check=False)
        check("a rollout that does harm is stopped", done.returncode != 0)
        return done.stderr

    def logs(self):
        files = sorted((self.work / "disks").glob("*/upper/var/log/tessera-*.log"))
        return "".join(f"\n== {file}\n" + "\n".join(file.read_text().splitlines()[-5:]) for file in files)

    def ask(self, *arguments):
        """What the command line says, as JSON; `None` when it fails."""
        done = subprocess.run([*self.tessera, *arguments, "-o", "json"], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def leader(self):
        status = self.ask("cluster", "status")
        return (
            status
            and status["leader"]
            and next(host for host in self.hosts if status["leader"]["address"].startswith(f"{host.address}:"))
        )

    def pids(self):
        names = "cd /run && echo $(cat tessera-controller.pid) $(cat tessera-agent.pid)"
        return [host.run(names).split() for host in self.hosts]

    def replaced(self, before):
        """The roles of the processes that are others than these, host by host."""
        pairs = [pair for old, new in zip(before, self.pids()) for pair in zip(old, new, ("member", "agent"))]
        return [role for old, new, role in pairs if old != new]

    def all_nodes(self, state):
        nodes = self.ask("node", "list") or []
        return len(nodes) == len(self.hosts) and all(node["state"] == state for node in nodes)

    def play(self):
        self.inventory("info,openraft=warn")
        begun = time.monotonic()
        self.rollout()
        until("every node is ready", lambda: self.all_nodes("ready"))
        say(f"three empty hosts became a pool in {time.monotonic() - begun:.1f} s")
        before = self.pids()
        said = self.rollout()
        check("a second rollout changes nothing", self.pids() == before and len(said.splitlines()) == 1)
        said = call(*self.tessera, "job", "run", "--tflops", "100", "--span", "node", "--", "hostname")
        check("a job ran on one of the hosts", said.strip() in NAMES)

        job = self.work / "job.yaml"
        job.write_text("command: ['true']\nvirtual_card: { tflops: 1 }\nretry: { max_retries: 5 }\n")
        stream = Stream(self.tessera, job)
        stream.more(5)
        apart_ms = min(round_trip_ms(host.address) for host in self.hosts)
        check(
            f"hosts are as far apart as they are to be: {apart_ms:.1f} ms to and fro",
            apart_ms >= self.hosts[0].round_trip_ms,
        )
        stream.taken()
        self.inventory("info,openraft=error")
        restarted = re.compile(r"(host-\d): restarted the member")
        first = restarted.findall(self.interrupted_rollout("restarted the member"))
        check("a rollout was killed when the first member was restarted", len(first) == 1)
        said = self.rollout()
        check(
            "a change of the inventory restarted every member, one after the other, over two runs",
            sorted(first + restarted.findall(said)) == NAMES,
        )
        check("what was written before the interruption was not written again", "wrote" not in said)
        check("every process is another one", self.replaced(before) == ["member", "agent"] * len(NAMES))
        stream.more(5)
        say(f"longest wait for an acknowledgement during the rolling restart: {stream.taken()}")
        before = self.pids()
        check("then there is nothing left to do", len(self.rollout().splitlines()) == 1 and not self.replaced(before))
        self.misdirect()

        lost = until("somebody leads", self.leader)
        lost.lose()
        stream.more(10)
        say(f"longest wait for an acknowledgement around the loss of {lost.name}, which led: {stream.taken()}")
        node = until(
            "its node is lost",
            lambda: next(
                (n for n in self.ask("node", "list") or [] if n["name"] == lost.name and n["state"] == "lost"), None
            ),
        )
        check(f"{node['name']} is declared lost, and its work is done elsewhere", True)
        lost.start()
        self.rollout()
        until("every node is ready again", lambda: self.all_nodes("ready"))
        status = until(
            "the member that was away is current",
            lambda: (s := self.ask("cluster", "status"))
            and all(
                not m["error"] and m["applied_index"] >= s["members"][0]["applied_index"] - 50 for m in s["members"]
            )
            and s,
        )
        check("the host that was lost is a member again", len(status["members"]) == 3)

        stream.more(5)
        stream.end.set()
        stream.thread.join()
        self.judge(stream)

    def misdirect(self):
        """Tells agents of a member that is none."""
        before = self.pids()
        self.inventory("info,openraft=error", 'server = ["10.77.0.99:7400"]')
        why = self.refused_rollout()
        check("it says which agent, and what to look at", "host-1: no leader has welcomed the agent" in why)
        check("one agent was restarted with it, and nothing else", self.replaced(before) == ["agent"])
        why = self.refused_rollout()
        check("run again, it stops at the same one", "host-1:" in why and self.replaced(before) == ["agent"])
        self.inventory("info,openraft=error")
        self.rollout()
        check("mended, every agent is restarted, and no member", self.replaced(before) == ["agent"] * len(NAMES))
        until("every node is ready with the right members", lambda: self.all_nodes("ready"))

    def judge(self, stream):
        """What must hold at the end."""
        numbers = stream.acknowledged
        check(
            f"{len(numbers)} submissions were acknowledged, each with a number of its own",
            len(set(numbers)) == len(numbers),
        )
        until("all of them are over", lambda: not self.open_jobs(), self.open_jobs)
        jobs = {job["id"] for job in self.jobs()}
        # The first job was that of `job run`.
        check("every job that was acknowledged completed, and there is no other", jobs == {1, *numbers})
        check("every law holds", subprocess.run([*self.tessera, "pool", "verify"], capture_output=True).returncode == 0)

    def open_jobs(self):
        return [(job["id"], job["state"], job["reason"]) for job in self.jobs() if job["state"] != "completed"]

    def jobs(self):
        return self.ask("job", "list", "--all") or [{"id": 0, "state": "unknown", "reason": "no answer"}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--package", type=pathlib.Path, help="the Debian package of the binary; built when not given")
    parser.add_argument(
        "--round-trip", type=float, default=0, metavar="MS", help="between hosts, on top of what there is"
    )
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        Rehearsal(arguments, arguments.inside).play()
        return
    arguments.binary = arguments.binary.resolve()
    with tempfile.TemporaryDirectory(prefix="tessera-rehearsal-") as work:
        if not arguments.package:
            build = [str(HERE.parent / "package" / "build.sh"), str(arguments.binary), work]
            arguments.package = call(*build, env={**os.environ, "PACKAGE_COMPRESSION": "gz"}).strip()
        # Everything ends with this namespace of processes, however the rehearsal ends.
        spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        again = [
            sys.executable,
            __file__,
            "--binary",
            str(arguments.binary),
            "--package",
            str(arguments.package),
            "--round-trip",
            str(arguments.round_trip),
            "--inside",
            work,
        ]
        try:
            code = subprocess.run([*spaces, *again], check=False, timeout=280).returncode
        finally:
            for group in pathlib.Path("/sys/fs/cgroup").glob(f"**/tessera/{pathlib.Path(work).name}"):
                subprocess.run(["find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
