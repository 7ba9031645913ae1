"""Rules, their unit tests, the routes of Alertmanager, and the runbook of every alert. A pool is not needed."""

import os
import re
import subprocess
import unittest

import runbooks
import yaml
from pool import ROOT

FOLDER = ROOT / "deploy" / "prometheus"


def alerts():
    """Every alert rule."""
    for path in sorted((FOLDER / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from (rule for rule in group["rules"] if "alert" in rule)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


class Rules(unittest.TestCase):
    def test_configuration_and_rules_are_valid(self):
        run("promtool", "check", "config", FOLDER / "prometheus.yml")
        run("amtool", "check-config", FOLDER / "alertmanager.yml")

    def test_rules_do_what_their_unit_tests_say(self):
        run("promtool", "test", "rules", *sorted((FOLDER / "tests").glob("*.yml")))

    def test_every_alert_is_tested_firing_and_quiet(self):
        tests = {
            test["name"]
            for path in (FOLDER / "tests").glob("*.yml")
            for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        }
        for rule in alerts():
            for word in ("fires", "is quiet"):
                name = f"{rule['alert']} ({rule['labels']['severity']}) {word} - "
                self.assertTrue(any(test.startswith(name) for test in tests), f"no test is named {name!r}")
        self.assertEqual(sum(test.startswith("all targets gone") for test in tests), 2)

    def test_every_alert_says_how_bad_it_is_and_what_to_do(self):
        for rule in alerts():
            with self.subTest(alert=rule["alert"]):
                self.assertIn(rule["labels"]["severity"], {"critical", "warning", "info"})
                self.assertLessEqual({"summary", "description", "runbook_url"}, set(rule["annotations"]))
                self.assertTrue(rule["annotations"]["runbook_url"].endswith(f"/runbooks/{rule['alert']}.md"))

    def test_what_is_critical_wakes_somebody_and_nothing_else_does(self):
        for severity, receiver in (("critical", "on-call"), ("warning", "team"), ("info", "team")):
            told = run(
                "amtool",
                "config",
                "routes",
                "test",
                "--config.file",
                FOLDER / "alertmanager.yml",
                "alertname=TesseraNoLeader",
                f"severity={severity}",
            )
            self.assertEqual(told.split(), [receiver])


class Runbooks(unittest.TestCase):
    def test_every_alert_has_one_and_every_one_has_an_alert_or_is_for_a_disaster(self):
        disasters = {"MajorityLost", "MemberDiskDamaged", "RestoreFromBackup"}
        self.assertEqual(set(runbooks.runbooks()), {rule["alert"] for rule in alerts()} | disasters)

    def test_each_says_what_it_means_how_to_look_and_what_to_do(self):
        for name, text in runbooks.runbooks().items():
            with self.subTest(runbook=name):
                self.assertTrue(text.startswith(f"# {name}\n"))
                self.assertEqual(re.findall(r"^## (.*)", text, re.M), ["What it means", "How to look", "What to do"])
                self.assertTrue(any(runbook == name for runbook, _ in runbooks.commands()), "it has no command")

    def test_links_lead_somewhere(self):
        for name, text in runbooks.runbooks().items():
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
                self.assertTrue((runbooks.FOLDER / target).exists(), f"{name} links to {target}")

    def test_every_command_exists_with_its_options(self):
        binary = os.environ["TESSERA_BIN"]
        known = {}
        for name, command in runbooks.commands():
            with self.subTest(runbook=name, command=command):
                words = command.split()[1:]
                path = []
                for word in words:
                    if not re.fullmatch(r"[a-z][a-z-]*", word) or len(path) == 3:
                        break
                    path.append(word)
                key = tuple(path)
                if key not in known:
                    known[key] = run(binary, *path, "--help")
                for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", command):
                    self.assertRegex(known[key], rf"(?m)(^|[\s,]){re.escape(option)}(?![\w-])")


if __name__ == "__main__":
    unittest.main()
