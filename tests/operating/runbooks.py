"""Runbooks as a test reads them: the commands and queries in them, which must be true."""

import re

from pool import ROOT

FOLDER = ROOT / "docs" / "runbooks"
# What changes nothing, and can be run against any pool at any time.
LOOKING = re.compile(
    r"tessera (cluster (status|member list)|pool (show|map|verify|config show|compact$|compact --status|what-if)"
    r"|node (list|show)|card (list|show)|queue (list|show)|job (list|show|why|events( |$)))"
)


def runbooks():
    return {
        path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path.stem != "README"
    }


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands():
    """Every command line of `tessera` with the runbook that has it, without its comment."""
    for name, text in runbooks().items():
        for block in blocks(text, "sh"):
            for line in block.splitlines():
                if line.startswith("tessera "):
                    yield name, re.sub(r"\s+#.*", "", line)


def expressions():
    """Every query of Prometheus, one a line."""
    for name, text in runbooks().items():
        for block in blocks(text, "promql"):
            yield from ((name, line) for line in block.splitlines() if line)


def only_looks(command):
    return bool(LOOKING.match(command))
