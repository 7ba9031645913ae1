"""The dashboards as they are committed, and their queries as Grafana would ask them."""

import dataclasses
import json

from pool import CLUSTER, ROOT

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
VALUES = {"$cluster": CLUSTER, "$member": ".*", "$node": ".*", "$queue": ".*", "$job": ".*", "$__rate_interval": "15s"}
MAY_BE_EMPTY = "No data while "


@dataclasses.dataclass(frozen=True)
class Asked:
    board: str
    panel: str
    expr: str
    may_be_empty: bool

    @property
    def filled_in(self):
        expr = self.expr
        for name, value in VALUES.items():
            expr = expr.replace(name, value)
        return expr

    def __str__(self):
        return f"{self.board} / {self.panel}: {self.filled_in}"


def load():
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries():
    """Every query of every panel."""
    return [
        Asked(name, panel["title"], target["expr"], MAY_BE_EMPTY in panel["description"])
        for name, board in load().items()
        for panel in panels(board)
        for target in panel.get("targets") or []
    ]


def query(board, panel, number=0):
    """One query of a panel, by the panel's title."""
    found = [asked for asked in queries() if (asked.board, asked.panel) == (board, panel)]
    return found[number].filled_in
