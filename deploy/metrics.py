"""Writes docs/metrics.md from the sources, so that no metric is undocumented: python3 deploy/metrics.py

With --check nothing is written; the exit code says whether the document is current.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ["crates/actor/src/meters.rs"]
MEMBER = [
    "crates/controller/src/metrics.rs",
    "crates/controller/src/metrics/backups.rs",
    "crates/controller/src/metrics/scrape.rs",
    "crates/server/src/services/watch/meter.rs",
    "crates/server/src/grpc/meter.rs",
    "crates/server/src/limits.rs",
    "crates/consensus/src/metrics.rs",
]
AGENT = ["crates/agent/src/metrics.rs"]
HEAD = """# Metrics

Members and agents serve `/metrics` on `--http`: OpenMetrics where the reader asks for it, else Prometheus' text format, in which the
names below stand. No metric has a series per job, and of members none has one per node, so that the pages stay small. Histograms have
`_bucket`, `_sum` and `_count`. What a leader alone knows is 0 or absent on the others: look at the member whose
`tessera_raft_is_leader` is 1. [Operations](operations.md) says which to look at first; [traces](traces.md) how they are sent to a collector. This page is made from the sources by
`python3 deploy/metrics.py`.

"""
UNITS = {"seconds": "seconds", "bytes": "bytes", "ratio": "ratio", "tflops": "TFLOPS", "celsius": "°C", "watts": "watts", "entries": "entries"}
TEXT = r'"((?:[^"\\]|\\.)*)"'


def product(kind):
    """A Rust type of a metric as its Prometheus type, and the name of its label set."""
    if family := re.match(r"Family<(\w+), (\w+)", kind):
        return product(family.group(2))[0], family.group(1)
    for word in ("Counter", "Gauge", "Histogram", "Info"):
        if kind.removeprefix("Const").startswith(word):
            return word.lower(), None
    sys.exit(f"deploy/metrics.py knows no metric of the type {kind}")


def metrics(path):
    """Name, type, labels and help of all metrics that a file registers."""
    text = (ROOT / path).read_text(encoding="utf-8").split("#[cfg(test)]")[0]
    sets = {
        name: re.findall(r"^\s*(?:pub )?(?:r#)?(\w+):", fields, re.M)
        for name, fields in re.findall(r"EncodeLabelSet\)\]\s*(?:pub(?:\(\w+\))? )?struct (\w+) \{(.*?)\}", text, re.S)
    }
    aliases = {name: re.sub(r"\s+", " ", kind) for name, kind in re.findall(r"^type (\w+) = ([^;]+);", text, re.M)}
    # Of several structs the first one holds the metrics; others hold single series of them.
    kinds = dict(reversed(re.findall(r"^    (\w+): ([A-Z].*),$", text, re.M)))
    kinds |= {name: f"Family<{kind}>" for name, kind in re.findall(r"let (\w+) = Family::<([^;]+)>::default\(\)", text)}
    kinds |= dict(re.findall(r"let (\w+) = (ConstCounter|Info)::new\(", text))

    def typed(value):
        if value.startswith("gauge("):
            return "gauge", []
        kind = kinds[re.sub(r"^(?:self|meters)\.|\.clone\(\)$", "", value.strip())]
        for name, meaning in aliases.items():
            kind = re.sub(rf"\b{name}\b", meaning, kind)
        kind, labels = product(kind)
        return kind, sets.get(labels, ["version"] if kind == "info" else [])

    call = rf'\.register(?:_with_unit)?\(\s*"(\w+)",\s*{TEXT},\s*(?:Unit::(\w+),\s*)?(.+?),?\s*\);'
    for name, said, unit, value in re.findall(call, text, re.S):
        kind, labels = typed(value)
        yield name + (f"_{unit.lower()}" if unit else ""), kind, labels, said
    for name, said in re.findall(rf'\bgauge\(\s*(?:&mut )?encoder,\s*"(\w+)",\s*{TEXT},', text):
        yield name, "gauge", [], said
    parts = re.split(r"encode_descriptor\(", text)
    for before, part in zip(parts, parts[1:]):
        found = re.match(rf'\s*"(\w+)",\s*(?:{TEXT}|help),\s*None,\s*MetricType::(\w+)', part)
        if not found:
            continue
        name, said, kind = found.groups()
        said = said or re.findall(rf"let help = {TEXT};", before)[-1]
        labels = []
        if "encode_family(" in part:
            given = re.search(r"let labels = \[(.*?)\];", part, re.S) or re.search(r"encode_family\(&\[(.*?)\]\)", part, re.S)
            labels = re.findall(r'\("(\w+)",', given.group(1))
        yield name, kind.lower(), labels, said


def rows(paths):
    shown = {"counter": "_total", "info": "_info"}
    for name, kind, labels, said in sorted(row for path in paths for row in metrics(path)):
        unit = next((unit for suffix, unit in UNITS.items() if name.endswith("_" + suffix)), "")
        labels = ", ".join(f"`{label}`" for label in labels)
        yield f"| `{name}{shown.get(kind, '')}` | {'gauge' if kind == 'info' else kind} | {unit} | {labels} | {said} |\n"


def document():
    writes = re.compile(r"\.register(?:_with_unit)?\(\s*\"|encode_descriptor\(\s*\"")
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = str(path.relative_to(ROOT))
        source = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        if writes.search(source) and name not in SHARED + MEMBER + AGENT:
            sys.exit(f"{name} registers metrics that deploy/metrics.py does not read")
    head = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
    return "".join([
        HEAD,
        f"## Of members\n\n{head}",
        *rows(MEMBER + SHARED),
        f"\n## Of agents\n\n{head}",
        *rows(AGENT + SHARED),
    ])


def check_names(page):
    """Refuses documents that name metrics which nobody publishes."""
    known = set(re.findall(r"^\| `(\w+)`", page, re.M))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        named = re.findall(r"`(tessera_\w+)(?:\{[^`]*)?`", path.read_text(encoding="utf-8"))
        if strange := {re.sub("_(bucket|sum|count)$", "", name) for name in named} - known:
            sys.exit(f"{path.relative_to(ROOT)} names metrics that do not exist: {', '.join(sorted(strange))}")


def main():
    path = ROOT / "docs/metrics.md"
    if "--check" in sys.argv:
        check_names(document())
        if not path.exists() or path.read_text(encoding="utf-8") != document():
            sys.exit("docs/metrics.md is not current: run python3 deploy/metrics.py")
        return
    path.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
