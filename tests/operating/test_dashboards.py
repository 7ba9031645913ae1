"""What must hold for every dashboard before anybody looks at it. No server is needed."""

import re
import subprocess
import sys
import unittest

import boards
from pool import ROOT

FOREIGN = {"up", "ALERTS"}
EXPORTERS = ("DCGM_FI_", "gpu_")
TARGET_LABELS = {"cluster", "instance", "job", "member", "node", "le", "UUID", "gpu_uuid"}
VARIABLES = {"datasource", "cluster", "docs", "console"}


def documented():
    """The labels of each metric that docs/metrics.md names, by the names of its series."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \|[^|]*\|([^|]*)\|", text, re.M):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            names.setdefault(name + suffix, set()).update(re.findall(r"`(\w+)`", labels))
    return names


def metrics(expr):
    """The metrics that an expression names, with the labels it selects by."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    bare = re.sub(r"\b(?:by|on|ignoring|group_left|group_right|without)\s*\([^)]*\)", " ", bare)
    for name, selector in re.findall(
        r"\b([A-Za-z_:][\w:]*)\b(?!\s*\()(?:\{([^}]*)\})?", re.sub(r"\[[^\]]*\]", "", bare)
    ):
        if name not in {"and", "or", "unless", "bool", "offset", "label_replace"}:
            yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))


class Dashboards(unittest.TestCase):
    def test_files_are_what_the_programs_write(self):
        subprocess.run([sys.executable, ROOT / "deploy" / "grafana" / "generate.py", "--check"], check=True)

    def test_there_are_five_with_ids_of_their_own(self):
        uids = [board["uid"] for board in boards.load().values()]
        self.assertEqual(len(uids), 5)
        self.assertEqual(len(set(uids)), 5)

    def test_every_dashboard_refreshes_and_asks_for_the_pool_it_shows(self):
        for name, board in boards.load().items():
            with self.subTest(board=name):
                variables = {variable["name"]: variable for variable in board["templating"]["list"]}
                self.assertEqual(board["refresh"], "30s")
                self.assertLessEqual(VARIABLES, set(variables))
                self.assertEqual(variables["datasource"]["type"], "datasource")
                self.assertTrue(board["description"])
                self.assertTrue(board["editable"])
                self.assertGreaterEqual(board["schemaVersion"], 36)
                for variable in variables.values():
                    if variable["type"] == "query":
                        self.assertEqual(variable["datasource"]["uid"], "${datasource}")

    def test_every_panel_says_what_it_shows_in_which_unit(self):
        for name, board in boards.load().items():
            self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]), name)
            for panel in boards.panels(board):
                with self.subTest(board=name, panel=panel["title"]):
                    self.assertTrue(panel["title"] and panel["description"])
                    if panel["type"] == "text":
                        continue
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                    self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                    for target in panel["targets"]:
                        self.assertEqual(target["datasource"]["uid"], "${datasource}")
                        self.assertTrue(target["legendFormat"])

    def test_panels_lie_beside_and_not_upon_each_other(self):
        for name, board in boards.load().items():
            taken = {}
            for panel in board["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24, f"{name} / {panel['title']}")
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        other = taken.setdefault((x, y), panel["title"])
                        self.assertEqual(other, panel["title"], name)

    def test_every_query_names_metrics_that_exist_and_labels_that_they_have(self):
        known = documented()
        for asked in boards.queries():
            for metric, labels in metrics(asked.expr):
                with self.subTest(query=str(asked)):
                    if metric in FOREIGN or metric.startswith(EXPORTERS):
                        continue
                    self.assertIn(metric, known, "docs/metrics.md does not know it")
                    self.assertLessEqual(labels, known[metric] | TARGET_LABELS)

    def test_rates_follow_the_zoom_and_every_query_is_of_one_pool(self):
        for asked in boards.queries():
            with self.subTest(query=str(asked)):
                self.assertTrue("$cluster" in asked.expr)
                for window in re.findall(r"\brate\([^\[]*\[([^\]]*)\]", asked.expr):
                    self.assertIn(window, {"$__rate_interval", "1h"})
                for counter in re.findall(r"(?<!rate\()(?<!increase\()\b(\w+_total)\b", asked.expr):
                    self.assertEqual(counter, "tessera_state_hash_mismatch_total", "a counter is shown without a rate")

    def test_every_metric_is_on_a_panel_or_in_a_rule(self):
        shown = {name for asked in boards.queries() for name, _ in metrics(asked.expr)}
        for path in (ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"):
            shown |= set(re.findall(r"\b(?:tessera|grpc)_\w+", path.read_text(encoding="utf-8")))
        families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
        # Told by agents for looking at one node; sums over nodes say nothing.
        by_hand = {
            "tessera_agent_term",
            "tessera_sessions_opened_total",
            "tessera_quarantines_total",
            "tessera_request_floor_timestamp_seconds",
        }
        wanted = {re.sub(r"_(bucket|sum|count)$", "", name) for name in documented()}
        self.assertEqual(wanted - families - by_hand, set())
        self.assertEqual(by_hand & families, set(), "no longer looked at by hand only")

    def test_runbooks_that_panels_link_to_are_there(self):
        for name, board in boards.load().items():
            for panel in boards.panels(board):
                for link in panel.get("links") or []:
                    path = link["url"].replace("${docs}", str(ROOT / "docs"))
                    with open(path, encoding="utf-8") as file:
                        self.assertIn(" ", file.read(), f"{name} / {panel['title']}")

    def test_every_board_leads_to_its_view_of_the_console(self):
        views = (ROOT / "crates" / "console" / "assets" / "app.js").read_text(encoding="utf-8")
        for name, board in boards.load().items():
            [link] = [link["url"] for link in board["links"] if link["title"] == "Console"]
            view = re.fullmatch(r"\$\{console\}/#/(\w*)(?:/\$(\w+))?", link)
            self.assertIn(f'["{view[1]}", ', views, name)
            if view[2]:
                self.assertIn(view[2], {variable["name"] for variable in board["templating"]["list"]}, name)


if __name__ == "__main__":
    unittest.main()
