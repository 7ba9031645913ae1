#!/usr/bin/env python3
"""Holds every setting of pool, queue, job, member and agent against a test that changes it and sees its effect (tests/settings.txt).

    settings.py                  fails for a setting without a row, a row without a setting, and a test that cannot be the one
    settings.py --tests PATTERN  prints the tests that name a setting, for those whose paths the expression finds

The settings are those of the sources: fields of the messages of the API, and of the structures that files of configuration are read
into. A row names the setting, then `FILE::TEST`, then, if the test says another word than the setting's last one, `by WORD`: a field
or an option beside which a line of the sources has the setting's word, or a function whose body has it. `none REASON` in place of a
test says why there can be none; a member's or agent's field also needs its value in the test that reads it from a file.
"""

import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "settings.txt"
#: Owners of settings: the message or structure of each, and words that a test of it says where another has a setting of the same name.
OWNERS = {
    "pool": ("PoolConfig", {"pool", "config"}),
    "queue": ("QueueSettings", {"queue", "queues"}),
    "job": ("JobSpec", {"job", "jobs", "spec", "submit"}),
    "member": ("ServerFile", {"member", "members", "server", "config", "limits"}),
    "agent": ("AgentFile", {"agent", "agents", "node", "config", "limits"}),
}
PROTOCOL = "proto/tessera/v1/*.proto"
FILES = "crates/cli/src/daemon/config_file*.rs"
#: The test that gives each field of a file a value, in a table of its settings.
READ_FROM_A_FILE = "crates/cli/src/daemon/config_file_tests.rs"
#: Sources in which a field has other names: conversions, configurations, flags, job files.
NAMED_AGAIN = ("crates/ledger/src", "crates/api/src", "crates/cli/src", "crates/agent/src/config.rs", "crates/server/src/config.rs")
FIELD = re.compile(r"^ +(?:repeated |optional )?(map<.*>|[\w.]+) (\w+) = \d+;", re.M)
STRUCTURE = re.compile(r"((?:^#\[.*\]\n)*)^(?:pub )?struct (\w+)(?: \{\n([\s\S]*?)^\}|\(.*\);)", re.M)
TEST = re.compile(r"^( *)#\[(?:test|tokio::test.*)\]$")
FUNCTION = re.compile(r"^( *)(?:pub(?:\(\w+\))? )?(?:const )?(?:async )?(?:fn|def) (\w+)")


@functools.cache
def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    return {name: (ROOT / name).read_text() for name in listed.stdout.split() if (ROOT / name).exists()}


def messages():
    """The fields of each message, with their types."""
    found = {}
    for text in files(PROTOCOL).values():
        for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            found[name] = [(field, kind) for kind, field in FIELD.findall(body)]
    return found


def structures():
    """The fields of each structure that files of configuration are read into, with their types."""
    found = {}
    for name, text in files(FILES).items():
        if "serde(flatten" in text or "serde(rename =" in text:
            sys.exit(f"{name}: fields that are flattened or renamed are not understood here")
        for attributes, structure, fields in STRUCTURE.findall(text):
            if "Deserialize" in attributes:
                other = re.search(r'try_from = "(\w+)"', attributes)
                found[structure] = other[1] if other else re.findall(r"^    (?:pub )?(\w+): (.*),$", fields, re.M)
    return found


def leaves(path, kind, known):
    """The settings below a field: those that are no section themselves."""
    kind = re.sub(r"^(?:Option|Vec)<(.*)>$", r"\1", kind)
    fields = known.get(kind)
    if isinstance(fields, str):
        return leaves(path, fields, known)
    if fields is None:
        return [path]
    return [leaf for field, inner in fields for leaf in leaves(f"{path}.{field}", inner, known)]


def settings():
    sources = (messages(), structures())
    return [leaf for owner, (kind, _) in OWNERS.items() for known in sources if kind in known for leaf in leaves(owner, kind, known)]


def functions(text):
    """The functions of a file, formatted as ours are: name, body, and whether each is a test."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if begun := FUNCTION.match(line):
            indent, python = begun[1], "def " in line
            end = number
            while not line.endswith("}") and end + 1 < len(lines):
                end += 1
                if lines[end] == f"{indent}}}" or python and lines[end].strip() and not lines[end].startswith(f"{indent} "):
                    break
            above = number - 1
            while above >= 0 and lines[above].startswith(f"{indent}#["):
                above -= 1
            marked = any(TEST.match(attribute) for attribute in lines[above + 1 : number])
            yield begun[2], "\n".join(lines[number:end + 1]), marked or python and begun[2].startswith("test_")


@functools.cache
def written(name):
    """The functions of a file by their names."""
    path = ROOT / name
    return {function: (body, test) for function, body, test in functions(path.read_text())} if path.is_file() else {}


@functools.cache
def all_functions():
    found = {}
    for name in files("*.rs", "*.py"):
        for function, (body, _) in written(name).items():
            found.setdefault(function, []).append(body)
    return found


@functools.cache
def words(text):
    """The names in a text but for comments, those of options and of JSON as Rust writes them."""
    text = re.sub(r"^ *(?://|#).*$", "", text, flags=re.M)
    # A new line within quotes begins no name.
    text = text.replace("\\n", " ")
    names = {name.replace("-", "_") for name in re.findall(r"\w+(?:-\w+)*", text)} | set(re.findall(r"\w+", text))
    return names | {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower() for name in names}


def is_word_for(word, field, name):
    """True if a line of the sources has both words, or the function of the former name, of this file or of others, has the latter."""
    own = written(name).get(word)
    if any(field in words(body) for body in ([own[0]] if own else all_functions().get(word, []))):
        return True
    sources = (text for name, text in files("*.rs").items() if name.startswith(NAMED_AGAIN))
    return any(word in line and {word, field} <= words(line) for text in sources for line in text.splitlines())


def wrong(setting, row, shared):
    """The fault of the row of a setting; nothing if it has none."""
    field = setting.rpartition(".")[2]
    test, _, word = row.partition(" by ")
    if test.startswith("none "):
        return None if len(test.split()) > 3 else "gives no reason"
    name, _, function = test.partition("::")
    body, is_test = written(name).get(function, ("", False))
    if not is_test:
        return f"names {test}, which is no test"
    if (word or field) not in words(body):
        return f"names {test}, which does not say {word or field}"
    if word and not is_word_for(word, field, name):
        return f"has `{word}` for `{field}`, and nothing in the sources joins them"
    section = setting.split(".")[-2]
    said = {part for name in words(body) for part in name.lower().split("_")} | words(body)
    if field in shared and not said & ({section} | OWNERS[setting.split(".")[0]][1]):
        return f"names {test}, which may be about another `{field}`: it does not say {section}"
    return None


def rows():
    found = {}
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            setting, _, row = line.partition(" ")
            if setting in found:
                sys.exit(f"tests/settings.txt:{number}: {setting} is there twice")
            found[setting] = row.strip()
    return found


def show(wanted):
    """Prints the tests that name a setting, each setting whose path has what is wanted."""
    for setting in filter(re.compile(wanted).search, settings()):
        print(setting)
        for name in files("*.rs", "*.py"):
            for function, (body, is_test) in written(name).items():
                if is_test and setting.rpartition(".")[2] in words(body):
                    print(f"    {name}::{function}")


def main():
    if sys.argv[1:2] == ["--tests"]:
        return show(sys.argv[2])
    known, table = settings(), rows()
    fields = [setting.rpartition(".")[2] for setting in known]
    shared = {field for field in fields if fields.count(field) > 1}
    read = set(re.findall(r'"((?:member|agent)[\w.]+)"', (ROOT / READ_FROM_A_FILE).read_text()))
    of_files = [setting for setting in known if setting.startswith(("member.", "agent."))]
    faults = [f"{setting} has no row: name the test that changes it and sees its effect" for setting in known if setting not in table]
    faults += [f"{setting} is no setting" for setting in table if setting not in known]
    faults += [f"{setting} {fault}" for setting in known if setting in table and (fault := wrong(setting, table[setting], shared))]
    faults += [f"{setting} has no value in {READ_FROM_A_FILE}" for setting in of_files if setting not in read]
    for fault in faults:
        print(f"tests/settings.txt: {fault}")
    return bool(faults)


sys.exit(main())
