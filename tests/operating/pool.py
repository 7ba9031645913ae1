"""A real pool on loopback for the tests of dashboards, rules and runbooks: three members and four agents that serve
metrics.

The nodes and the way they are started are those of the demo; what is added is work in several queues, of which a
part waits.
"""

import atexit
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "demo"))

from demo import HERE, NODES, Pool, free_port, job_file, wait  # noqa: E402  (the folder has to be known first)

CLUSTER = "loopback"
# Short leases, so that a silent node is declared lost within seconds.
LEASES = [
    "--lease-heartbeat",
    "500ms",
    "--lease-stop-after",
    "2s",
    "--lease-kill-after",
    "3s",
    "--lease-regrant-after",
    "5s",
]
# Queue, number of jobs, TFLOPS of each. The pool has 200 blocks of 1 TFLOPS: the last ones cannot all start.
WORK = [("vision", 4, 10), ("speech", 3, 12), ("default", 2, 6), ("vision", 2, 150), ("batch", 12, 10)]
# A program that counts, and saves how far it came whenever it is asked to.
SAVER = """
import pathlib, time, tessera_control
control = tessera_control.Control()
step = 0
while not control.stopping:
    step += 1
    if control.asked():
        (pathlib.Path(control.folder) / "step").write_text(str(step))
        control.saved(step)
    time.sleep(0.05)
"""


class Operated(Pool):
    """A pool whose members and agents serve metrics."""

    def __init__(self, binary, folder):
        super().__init__(binary, folder)
        # Also when the tests are interrupted: nothing stays behind.
        atexit.register(self.stop)
        self.member_pages = [f"127.0.0.1:{free_port()}" for _ in self.members]
        self.agent_pages = {node: f"127.0.0.1:{free_port()}" for node in NODES}

    def start_member(self, number, *more):
        address = self.members[number]
        self.start(
            f"m{number}",
            "server",
            "--name",
            f"m{number}",
            "--listen",
            address,
            "--data-dir",
            str(self.folder / f"m{number}"),
            "--http",
            self.member_pages[number],
            *more,
        )

    def start_agent(self, node):
        super().start_agent(node, "--http", self.agent_pages[node])

    def bring_up(self):
        """Everything runs, and all nodes are ready."""
        for number in range(len(self.members)):
            self.start_member(number)
        wait("the cluster to be made", lambda: self.tessera("cluster", "init", *LEASES, check=False).returncode == 0)
        for node in NODES:
            self.start_agent(node)
        wait("four nodes to be ready", lambda: len(self.ask("node", "list")) == len(NODES))

    def put_to_work(self):
        """Jobs in several queues, of which some ended, some run and some wait for ever; returns when it rests."""
        for queue, guaranteed in (("vision", 60), ("speech", 40), ("batch", 1)):
            self.tessera(
                "queue",
                "set",
                queue,
                "--guaranteed-tflops",
                str(guaranteed),
                "--max-tflops",
                "500",
                "--max-memory",
                "1TiB",
            )
        for _ in range(3):
            self.tessera("job", "run", "--queue", "speech", "--tflops", "1", "--", "true")
        self.tessera("job", "run", "--queue", "vision", "--tflops", "1", "--", "false", check=False)
        saver = job_file(
            self.folder / "saver.json",
            name="saver",
            queue="speech",
            command=[sys.executable, "-c", SAVER],
            environment={"PYTHONPATH": str(ROOT / "crates" / "agent" / "python")},
            virtual_card={"tflops": 1, "memory": "64MiB"},
            checkpoint={"mode": "cooperative", "every": "1s"},
        )
        self.tessera("job", "submit", saver, "--detach")
        for number, (queue, jobs, tflops) in enumerate(WORK):
            file = job_file(
                self.folder / f"work-{number}.json",
                name=f"{queue}-{tflops}",
                queue=queue,
                command=["sleep", "100000"],
                virtual_card={"tflops": tflops, "memory": "64MiB", "span": "pool", "mixed": True},
            )
            for _ in range(jobs):
                self.tessera("job", "submit", file, "--detach")
        wait("the pool to come to rest", self.at_rest, 90)

    def at_rest(self):
        """Whether all that can run runs: nothing is being started, and some work waits."""
        states = [job["state"] for job in self.ask("job", "list")]
        busy = {"starting", "scheduled", "placed", "stopping", "suspending"}
        return not busy & set(states) and "pending" in states and "running" in states

    def targets(self):
        """What Prometheus scrapes, in the form of its file_sd."""
        members = [
            {"targets": [page], "labels": {"cluster": CLUSTER, "member": f"m{number}"}}
            for number, page in enumerate(self.member_pages)
        ]
        agents = [
            {"targets": [page], "labels": {"cluster": CLUSTER, "node": node}} for node, page in self.agent_pages.items()
        ]
        return {"members": members, "agents": agents}
