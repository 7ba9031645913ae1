"""A pool whose nodes serve devices: one member, and two nodes with a card each."""

import contextlib
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

from demo import Pool, free_port, job_file, wait

# Two nodes, each with one simulated card for which a thread of this machine computes.
INVENTORY = "".join(
    f'[[node]]\nname = "{node}"\n[[node.card]]\nkind = "gpu"\nvendor = "acme"\nmodel = "G8"\nmemory_gib = 16\ntflops = {{ fp16 = 8 }}\n'
    for node in ("node-0", "node-1")
)
HELPER = str(ROOT / "crates" / "agent" / "python")


class Served(Pool):
    """One member and two nodes that serve devices."""

    def __init__(self, folder, settings=""):
        super().__init__(os.environ["TESSERA_BIN"], folder)
        self.members = self.members[:1]
        self.environment["TESSERA_SERVER"] = self.members[0]
        (folder / "cards.toml").write_text(INVENTORY)
        libraries = os.environ.get("LD_LIBRARY_PATH", "")
        (folder / "agent.toml").write_text(
            f'[device]\n{settings}python = "{sys.executable}"\nbuild = "{os.environ["TESSERA_BUILD"]}"\n'
            f'[device.environment]\nLD_LIBRARY_PATH = "{libraries}"\n'
        )
        self.libraries = libraries

    def bring_up(self):
        self.start_member(0)
        wait("the cluster to be made", lambda: self.tessera("cluster", "init", check=False).returncode == 0)
        for node in ("node-0", "node-1"):
            self.start(
                node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server", self.members[0],
                "--inventory", str(self.folder / "cards.toml"), "--config", str(self.folder / "agent.toml"),
            )  # fmt: skip
        wait("both nodes to be ready", lambda: len(self.ask("node", "list")) == 2)

    def submit(self, *command, tflops=8, memory="1GiB", **more):
        environment = {"LD_LIBRARY_PATH": self.libraries, "PYTHONPATH": HELPER, "PYTHONDONTWRITEBYTECODE": "1"}
        card = {"tflops": tflops, "memory": memory, "access": "device"}
        file = job_file(
            self.folder / f"job-{free_port()}.json", command=[sys.executable, *map(str, command)], environment=environment,
            virtual_card=card, **more,
        )  # fmt: skip
        return str(self.ask("job", "submit", file, "--detach")["id"])

    def ends(self, job):
        """What a job printed, once it is over."""
        shown = wait("the job to end", lambda: (seen := self.ask("job", "show", job))["state"] in ("completed", "failed") and seen, 120)
        printed = self.tessera("job", "logs", job).stdout
        errors = self.tessera("job", "logs", job, "--stderr").stdout
        return shown["state"], printed, errors


@contextlib.contextmanager
def served(settings=""):
    """Such a pool, as long as it is needed; `settings` go into the agents' `[device]`."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        pool = Served(pathlib.Path(folder), settings)
        try:
            pool.bring_up()
            yield pool
        finally:
            pool.stop()
