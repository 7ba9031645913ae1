"""Dashboards, rules and runbooks against a real pool: what they ask for is there, and the numbers are those of the
pool itself.
"""

import collections
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import boards
import runbooks
from pool import Operated, wait
from served import Served, get


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-operating-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.pool = Operated(os.environ["TESSERA_BIN"], cls.folder)
        cls.addClassCleanup(cls.pool.stop)
        cls.pool.bring_up()
        cls.served = Served(cls.folder)
        cls.addClassCleanup(cls.served.stop)
        # Before there is work, so that it sees the counters rise.
        cls.served.prometheus(cls.pool)
        wait("Prometheus to be ready", cls.served.ready)
        wait("all targets to be scraped", cls.served.scrapes_all)
        cls.pool.put_to_work()

    def has_data(self, expr):
        return any(not math.isnan(value) for _, value in self.served.ask(expr))

    def test_every_panel_shows_something(self):
        for asked in boards.queries():
            with self.subTest(query=str(asked)):
                if asked.may_be_empty:
                    self.served.ask(asked.filled_in)
                else:
                    wait(f"data of {asked}", lambda asked=asked: self.has_data(asked.filled_in), 20)

    def test_cards_are_joined_with_what_exporters_say_of_them(self):
        for asked in boards.queries():
            if "tessera_card_info" in asked.expr and ("DCGM" in asked.expr or "gpu_uuid" in asked.expr):
                with self.subTest(query=str(asked)):
                    found = wait(str(asked), lambda asked=asked: self.served.ask(asked.filled_in), 20)
                    self.assertEqual(
                        {labels["node"] for labels, _ in found}, {"node-0" if "DCGM" in asked.expr else "node-1"}
                    )
                    self.assertTrue(all(labels["card"] and labels["model"] for labels, _ in found))

    def becomes(self, board, panel, label, expected, number=0):
        """Waits until a panel shows exactly the numbers that the command line does; zeros need no series."""
        expr = boards.query(board, panel, number)
        expected = {name: float(value) for name, value in expected.items() if value}
        shown = {}

        def equal():
            shown.clear()
            shown.update({labels.get(label, ""): value for labels, value in self.served.ask(expr) if value})
            return shown == expected

        try:
            wait(f"{panel} to be right", equal, 30)
        except RuntimeError:
            self.assertEqual(shown, expected, f"{board} / {panel}: {expr}")

    def test_blocks_are_those_that_the_pool_shows(self):
        shown = self.pool.ask("pool", "show")
        states = {state: blocks for state, blocks in shown["blocks"].items() if state != "total"}
        self.becomes("pool", "Blocks", "state", states)
        self.becomes(
            "pool",
            "Blocks in use",
            "kind",
            {
                kind["kind"]: (kind["blocks"]["held"] + kind["blocks"]["running"]) / kind["blocks"]["total"]
                for kind in shown["kinds"]
            },
        )
        models = collections.Counter()
        for card in self.pool.ask("card", "list"):
            models[card["model"]] += card["blocks"]["total"]
        self.becomes("cards", "Blocks by model", "model", models)

    def test_jobs_and_nodes_are_those_that_the_pool_shows(self):
        shown = self.pool.ask("pool", "show")
        over = {"completed", "failed", "cancelled", "timeout"}
        self.becomes(
            "pool", "Jobs that are not over", "state", {s: n for s, n in shown["jobs"].items() if s not in over}
        )
        self.becomes("pool", "Nodes ready", "", {"": shown["nodes"]["ready"]})
        status = self.pool.ask("cluster", "status")
        self.becomes("pool", "Leaders", "", {"": 1})
        self.becomes("control-plane", "Term", "", {"": status["term"]})
        self.becomes("control-plane", "Voters", "", {"": status["voters"]})

    def test_queues_are_those_that_the_pool_shows(self):
        queues = self.pool.ask("queue", "list")
        self.assertGreater(len(queues), 3)
        for number, of in enumerate(
            (
                lambda q: q["jobs"],
                lambda q: q["used"]["tflops"],
                lambda q: q["guaranteed"]["tflops"],
                lambda q: (q["maximum"] or {}).get("tflops"),
            )
        ):
            self.becomes("queues", "Queues now", "queue", {queue["name"]: of(queue) for queue in queues}, number)
        self.becomes("queues", "Jobs that are not over", "queue", {queue["name"]: queue["jobs"] for queue in queues})

    def test_what_jobs_hold_and_use_is_what_the_pool_shows(self):
        jobs = {str(job["id"]): job["used"] for job in self.pool.ask("job", "top") if job["used"]}
        self.assertGreater(len(jobs), 5)
        self.becomes("job", "Blocks that it holds", "job_id", {job: used["blocks"] for job, used in jobs.items()})
        held = {job: used["memory_held_mib"] << 20 for job, used in jobs.items()}
        self.becomes("job", "Card memory", "job_id", held, 1)
        # Simulated cards keep all memory in use that is granted.
        self.becomes("job", "Card memory", "job_id", held)
        use = boards.query("job", "Use")
        wait(
            "each job to have been measured where it runs",
            lambda: {labels["job_id"] for labels, _ in self.served.ask(use)} == set(jobs),
            30,
        )
        # No worker is shown as idle before it was measured.
        used = self.served.ask(f"min_over_time({use}[5m])")
        self.assertTrue(all(0.8 < value <= 1 for _, value in used), used)

    def test_pages_follow_the_conventions_of_prometheus(self):
        members, agents = self.pool.member_pages, self.pool.agent_pages.values()
        for page in (*(f"{page}/metrics{of}" for page in members for of in ("", "/detail/jobs")), *(f"{page}/metrics" for page in agents)):
            done = subprocess.run(
                ["promtool", "check", "metrics"],
                input=get(f"http://{page}"),
                text=True,
                capture_output=True,
                check=False,
            )
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), page)

    def test_rules_evaluate_and_a_pool_at_work_is_no_reason_to_wake_anybody(self):
        recorded = "cluster_state:tessera_blocks:sum"
        wait(recorded, lambda: self.served.ask(recorded), 20)
        self.assertEqual(self.served.ask('ALERTS{severity="critical"}'), [])

    def test_commands_of_runbooks_that_only_look_do_work(self):
        jobs = self.pool.ask("job", "list")
        words = {
            "NODE": "node-0",
            "QUEUE": "vision",
            "CARD": "node-0/0",
            "ADDRESS": self.pool.members[0],
            "JOB": str(next(job["id"] for job in jobs if job["state"] == "pending")),
        }
        commands = {command for _, command in runbooks.commands() if runbooks.only_looks(command)}
        self.assertGreater(len(commands), 10)
        for command in sorted(commands):
            with self.subTest(command=command):
                done = self.pool.tessera(*(words.get(word, word) for word in command.split()[1:]), check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)

    def test_queries_of_runbooks_are_answered(self):
        for name, expr in runbooks.expressions():
            with self.subTest(runbook=name, expr=expr):
                self.served.ask(expr)


if __name__ == "__main__":
    unittest.main()
