"""Alerts arrive: real faults in a real pool, real Prometheus and Alertmanager, and whoever is to be told hears of it.

One pool suffers one fault after the other; the order is part of the test.
"""

import os
import pathlib
import shutil
import signal
import tempfile
import unittest

from pool import CLUSTER, Operated, wait
from served import Served, answers

FIRING = f'alertstate="firing", cluster="{CLUSTER}"'
FULL = 'disk_reserve = "1000TiB"\n'


class Alerts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-alerts-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.pool = Operated(os.environ["TESSERA_BIN"], cls.folder)
        cls.addClassCleanup(cls.pool.stop)
        cls.pool.bring_up()
        cls.served = Served(cls.folder)
        cls.addClassCleanup(cls.served.stop)
        cls.receiver = cls.served.page()
        alertmanager = cls.served.alertmanager(cls.receiver)
        cls.served.prometheus(cls.pool, alertmanager, patience="1s")
        wait("Alertmanager to be ready", lambda: answers(f"http://{alertmanager}/-/ready"))
        wait("Prometheus to be ready", cls.served.ready)
        wait("all targets to be scraped", cls.served.scrapes_all)
        wait("alerts to be asked for", lambda: cls.served.ask("cluster_state:tessera_nodes:sum"))

    def told(self, receiver, status, **labels):
        """The alert with these labels, if it was posted to a receiver with that status."""
        for path, post in list(self.receiver.posts):
            for alert in post["alerts"] if path == f"/{receiver}" else []:
                if alert["status"] == status and labels.items() <= alert["labels"].items():
                    return alert
        return None

    def arrives(self, receiver, status="firing", **labels):
        what = f"{labels} to be {status} at {receiver}"
        return wait(what, lambda: self.told(receiver, status, cluster=CLUSTER, **labels), 60)

    def kill(self, number):
        process = self.pool.processes[f"m{number}"]
        process.kill()
        process.wait()

    def test_each_fault_is_heard_of(self):
        with self.subTest("nothing is wrong"):
            self.assertEqual([post for path, post in self.receiver.posts if path == "/on-call"], [])

        with self.subTest("a node falls silent, and is heard again"):
            agent = self.pool.processes["node-2"]
            agent.send_signal(signal.SIGSTOP)
            try:
                self.arrives("team", alertname="TesseraNodesSilent")
                self.arrives("team", alertname="TesseraAgentDown", node="node-2")
                self.arrives("team", alertname="TesseraNodesLost")
            finally:
                agent.send_signal(signal.SIGCONT)
            self.arrives("team", "resolved", alertname="TesseraAgentDown", node="node-2")
            self.arrives("team", "resolved", alertname="TesseraNodesLost")

        leader = self.pool.leader()
        with self.subTest("the leader is killed; another one leads before anybody is woken"):
            self.kill(leader)
            alert = self.arrives("team", alertname="TesseraMemberDown", member=f"m{leader}")
            self.assertTrue(alert["annotations"]["runbook_url"].endswith("/docs/runbooks/TesseraMemberDown.md"))
            self.assertNotIn("docs_url", alert["labels"])
            wait("another leader", lambda: self.pool.leader() != leader)

        with self.subTest("the disk of a member is full"):
            (self.folder / "full.toml").write_text(FULL)
            self.pool.start_member(leader, "--config", str(self.folder / "full.toml"))
            alert = self.arrives("on-call", alertname="TesseraDiskFull", member=f"m{leader}")
            self.assertEqual(alert["labels"]["severity"], "critical")
            self.arrives("team", "resolved", alertname="TesseraMemberDown", member=f"m{leader}")

        with self.subTest("the majority is lost"):
            for number in {0, 1, 2} - {leader}:
                self.kill(number)
            self.arrives("on-call", alertname="TesseraQuorumLost")
            self.arrives("team", alertname="TesseraMemberDown")

        with self.subTest("all members are gone, and silence is no good news"):
            self.kill(leader)
            wait("TesseraNoLeader to fire", lambda: self.served.ask(f'ALERTS{{alertname="TesseraNoLeader", {FIRING}}}'))
            down = f'ALERTS{{alertname="TesseraMemberDown", {FIRING}}}'
            wait("all three to be missed", lambda: len(self.served.ask(down)) == 3)

        with self.subTest("members are back, and all is well"):
            for number in (0, 1, 2):
                self.pool.start_member(number)
            self.arrives("on-call", "resolved", alertname="TesseraQuorumLost")
            self.arrives("on-call", "resolved", alertname="TesseraDiskFull")


if __name__ == "__main__":
    unittest.main()
