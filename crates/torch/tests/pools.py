"""A pool whose nodes serve devices: one member, and two nodes with a card each, or what a test wants."""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

import ready
from demo import Pool, control_groups, free_port, job_file, wait


@functools.cache
def checked():
    """What the slice server here says of itself."""
    return ready.run([sys.executable, "-m", "tessera.slice", "--check"], capture_output=True, text=True, check=True).stdout


def card(tflops=8, memory=16, model=None, kind="gpu", vendor="acme"):
    """A simulated card, for which a thread of this machine computes."""
    return (
        f'[[node.card]]\nkind = "{kind}"\nvendor = "{vendor}"\nmodel = "{model or f"G{tflops}"}"\n'
        f"memory_gib = {memory}\ntflops = {{ fp16 = {tflops} }}\n"
    )


def with_cards(name, *cards):
    """A node."""
    return f'[[node]]\nname = "{name}"\n' + "".join(cards)


def inventory(nodes):
    """Nodes with one card each."""
    return "".join(with_cards(f"node-{number}", card()) for number in range(nodes))


INVENTORY = inventory(2)
HELPER = str(ROOT / "crates" / "agent" / "python")
#: What programs of jobs find besides: they are quick to start.
SITE = str(pathlib.Path(__file__).parent / "site")
PATHS = f"{SITE}:{HELPER}"
#: Of the ports at which workers of several nodes meet, the first of each part that a pool gives out: all pools of tests are on this host.
#: Before them are those that a pool gives out unless it is told otherwise.
MEETINGS = range(21_000, 30_000, 100)

#: What servers and programs of a pool are started with, as those of other tests are (`conftest.py`).
VARIABLES = {"OMP_WAIT_POLICY": "passive", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


def meeting_ports():
    """The first of some ports that no other pool gives out, and what keeps them: a socket at the one before."""
    for place in itertools.islice(itertools.count(os.getpid()), len(MEETINGS)):
        mark, before = socket.socket(), MEETINGS[place % len(MEETINGS)]
        try:
            mark.bind(("127.0.0.1", before))
            return before + 1, mark
        except OSError:
            mark.close()
    raise RuntimeError("all ports at which workers may meet are given out by other pools")


class Served(Pool):
    """One member and two nodes that serve devices; `cpus` says how many processors the hosts of some nodes offer."""

    def __init__(self, folder, settings="", inventory=INVENTORY, cpus=None, environment=None):
        super().__init__(os.environ["TESSERA_BIN"], folder)
        self.members = self.members[:1]
        self.environment["TESSERA_SERVER"] = self.members[0]
        self.first_port, self._mark = meeting_ports()
        (folder / "cards.toml").write_text(inventory)
        self.nodes = re.findall(r'^name = "(.*)"', inventory, re.MULTILINE)
        self.cpus, self.of_servers = cpus or {}, environment or {}
        self.python = folder / "python"
        answers = "".join(f"{words}) echo {shlex.quote(answer)};;\n" for words, answer in self.answers().items())
        self.python.write_text(f"#!/bin/sh\ncase \"$*\" in\n{answers}*) exec {shlex.quote(sys.executable)} \"$@\";;\nesac\n")
        self.python.chmod(0o755)
        for node in self.nodes:
            self.configure(node, settings)

    def answers(self):
        """What the Python of agents says at once when it is asked so; for an answer that is always the same it would load PyTorch."""
        return {"'-m tessera.slice --check'": checked()}

    def configure(self, node, settings):
        (self.folder / f"{node}.toml").write_text(
            # Other pools of this machine have nodes and workers of the same names.
            f'cgroup_root = "{control_groups(self.folder, node)}"\n'
            f'[device]\n{settings}python = "{self.python}"\nbuild = "{os.environ["TESSERA_BUILD"]}"\n'
            "[device.environment]\n"
            + "".join(f'{name} = "{value}"\n' for name, value in {**VARIABLES, **self.of_servers}.items())
            + (f'[checkpoints]\ncriu = "{criu}"\n' if (criu := shutil.which("criu")) else "")
            + (f"[host]\ncpus = {self.cpus[node]}\n" if node in self.cpus else "")
        )

    def bring_up(self):
        self.start_member(0)
        wait("the cluster to be made", lambda: self.tessera("cluster", "init", check=False).returncode == 0)
        self.meets_at_its_ports()
        for node in self.nodes:
            self.start_node(node)
        wait("all nodes to be ready", lambda: len(self.ask("node", "list")) == len(self.nodes))

    def meets_at_its_ports(self):
        place = f"http://{self.members[0]}/v1/pool/config"
        with urllib.request.urlopen(place, timeout=10) as read:
            config = json.load(read)["config"] | {"firstMasterPort": self.first_port, "masterPorts": MEETINGS.step - 1}
        asked = urllib.request.Request(place, json.dumps({"config": config}).encode(), {"content-type": "application/json"}, method="PUT")
        urllib.request.urlopen(asked, timeout=10).close()

    def stop(self):
        super().stop()
        self._mark.close()

    def start_node(self, node):
        self.start(
            node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server", self.members[0],
            "--inventory", str(self.folder / "cards.toml"), "--config", str(self.folder / f"{node}.toml"),
        )  # fmt: skip

    def submit(self, *command, tflops=8, memory="1GiB", span="card", models=(), variables=(), **more):
        environment = {**dict(variables), **VARIABLES, "PYTHONPATH": PATHS, "PYTHONDONTWRITEBYTECODE": "1"}
        card = {"tflops": tflops, "memory": memory, "span": span, "access": "device", "models": models}
        file = job_file(
            self.folder / f"job-{free_port()}.json", command=[sys.executable, *map(str, command)], environment=environment,
            virtual_card=card, **more,
        )  # fmt: skip
        return str(self.ask("job", "submit", file, "--detach")["id"])

    def cancel_all(self):
        held = lambda: [str(job["id"]) for job in self.ask("job", "list") if job["state"] not in ("completed", "failed", "cancelled")]
        if jobs := held():
            # One that ends meanwhile can no longer be cancelled.
            self.tessera("job", "cancel", *jobs, "--yes", check=False)
            wait("them to be over", lambda: not held())

    def ends(self, job):
        """What a job printed, once it is over."""
        shown = wait("the job to end", lambda: (seen := self.ask("job", "show", job))["state"] in ("completed", "failed") and seen, 120)
        printed = self.tessera("job", "logs", job).stdout
        errors = self.tessera("job", "logs", job, "--stderr").stdout
        return shown["state"], printed, errors


@contextlib.contextmanager
def served(settings="", inventory=INVENTORY, cpus=None, environment=None):
    """Such a pool, as long as it is needed; `settings` go into the agents' `[device]`, and `environment` is that of slice servers."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        pool = Served(pathlib.Path(folder), settings, inventory, cpus, environment)
        try:
            pool.bring_up()
            yield pool
        finally:
            pool.stop()
