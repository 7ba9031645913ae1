"""A pool whose nodes serve devices: one member, and two nodes with a card each, or what a test wants."""

import contextlib
import os
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

from demo import Pool, control_groups, free_port, job_file, wait


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


class Served(Pool):
    """One member and two nodes that serve devices; `cpus` says how many processors the hosts of some nodes offer."""

    def __init__(self, folder, settings="", inventory=INVENTORY, cpus=None, environment=None):
        super().__init__(os.environ["TESSERA_BIN"], folder)
        self.members = self.members[:1]
        self.environment["TESSERA_SERVER"] = self.members[0]
        (folder / "cards.toml").write_text(inventory)
        self.nodes = re.findall(r'^name = "(.*)"', inventory, re.MULTILINE)
        self.cpus, self.of_servers = cpus or {}, environment or {}
        libraries = os.environ.get("LD_LIBRARY_PATH", "")
        for node in self.nodes:
            self.configure(node, settings, libraries)
        self.libraries = libraries

    def configure(self, node, settings, libraries):
        (self.folder / f"{node}.toml").write_text(
            # Other pools of this machine have nodes and workers of the same names.
            f'cgroup_root = "{control_groups(self.folder, node)}"\n'
            f'[device]\n{settings}python = "{sys.executable}"\nbuild = "{os.environ["TESSERA_BUILD"]}"\n'
            f'[device.environment]\nLD_LIBRARY_PATH = "{libraries}"\n'
            + "".join(f'{name} = "{value}"\n' for name, value in self.of_servers.items())
            + (f'[checkpoints]\ncriu = "{criu}"\n' if (criu := shutil.which("criu")) else "")
            + (f"[host]\ncpus = {self.cpus[node]}\n" if node in self.cpus else "")
        )

    def bring_up(self):
        self.start_member(0)
        wait("the cluster to be made", lambda: self.tessera("cluster", "init", check=False).returncode == 0)
        for node in self.nodes:
            self.start_node(node)
        wait("all nodes to be ready", lambda: len(self.ask("node", "list")) == len(self.nodes))

    def start_node(self, node):
        self.start(
            node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server", self.members[0],
            "--inventory", str(self.folder / "cards.toml"), "--config", str(self.folder / f"{node}.toml"),
        )  # fmt: skip

    def submit(self, *command, tflops=8, memory="1GiB", span="card", models=(), variables=(), **more):
        environment = {**dict(variables), "LD_LIBRARY_PATH": self.libraries, "PYTHONPATH": HELPER, "PYTHONDONTWRITEBYTECODE": "1"}
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
