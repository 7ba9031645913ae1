"""The figures of the device: `make device-bench` runs it; docs/benchmarks/device.md holds what it printed last.

    python measure.py [--out FILE]      # starts its own slice servers, prints tables in Markdown, and missed goals first
    TESSERA_TEST_DEVICE=cuda:0 python measure.py        # on that device instead of a processor

What is timed is in programs.py.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import delay
import serving
import torch

ONE_THREAD = {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
ISSUE = 5.0  # microseconds of each operation
ROUND_TRIP = 15.0  # microseconds
COPIES = 2.0  # GiB/s at least
STEPS = 1.15  # of a step on the processor itself
CARDS = ((0.5, 0.5), (0.75, 0.25), (0.4, 0.3, 0.2, 0.1))  # shares of tenants of a card
OFF = 0.05  # of its share that a tenant may get more or less
MEMORY_MIB = 256  # of a tenant
BUSY = 8  # seconds
MOVES = {64: 0.3, 1024: 3.0}  # seconds of a move of so many MiB
DELAYS_MS = (0.2, 2.0)  # that the way there and back takes longer


class Table:
    """Rows with a goal each, and which of them were missed."""

    def __init__(self, title, about, *columns):
        self.lines = [f"## {title}", "", about, "", "| " + " | ".join((*columns, "goal", "")) + " |", "|---" * (len(columns) + 2) + "|"]
        self.missed = []

    def row(self, name, value, unit, *others, least=None, most=None):
        """`most`, or `least`: what is asked of it, if something is."""
        goal = f"< {most:.4g}" if most is not None else f">= {least:.4g}" if least is not None else ""
        fine = not (most is not None and value >= most or least is not None and value < least)
        if not fine:
            self.missed.append(f"{name}: {value:.4g} {unit}, asked for {goal}")
        shown = f"{value:.4g} {unit}".strip()
        self.lines.append("| " + " | ".join((name, shown, *others, goal, "" if not goal else "met" if fine else "**missed**")) + " |")


def start(what, device, *arguments, environment, **more):
    command = [sys.executable, str(HERE / "programs.py"), what, device, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, **environment, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, **more)


def figures_of(program):
    printed, _ = program.communicate(timeout=600)
    if program.returncode:
        raise SystemExit(f"a program of the benchmark ended with {program.returncode}; its error is above")
    return json.loads(printed.splitlines()[-1])


@contextlib.contextmanager
def serves(*options, memory="4GiB", **more):
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(pathlib.Path(folder), *options, memory=memory, environment=ONE_THREAD, **more) as server:
            yield server


def alone(what):
    """The figures on a card that is all of the processor."""
    with serves() as server:
        return figures_of(start(what, "tessera", environment=server.environment()))


def near():
    """On the host of the slice server."""
    local = figures_of(start("everything", serving.DEVICE, environment=ONE_THREAD))
    card = alone("everything")
    table = Table("On the host", "Program and server on one host, over a Unix socket.", "what", "virtual card", "local")
    for name, value in card.items():
        beside = f"{local[name]:.4g}" if name in local else ""
        if name.startswith("issue"):
            table.row(name, value, "us", beside, most=ISSUE)
        elif name in ("round trip", "item"):
            table.row(name, value, "us", beside, most=ROUND_TRIP if name == "round trip" else None)
        elif name.startswith("copy"):
            table.row(name, value, "GiB/s", beside, least=COPIES)
        elif name.startswith(("bytes", "operations")):
            table.row(name, value, "", "")
        elif name.startswith("recorded"):
            table.row(name, value, "ms", beside, most=local[name.removeprefix("recorded ")])
        else:
            # A decoder is asked for only when it is recorded: nobody decodes op by op who is in a hurry.
            table.row(name, value, "ms", beside, most=None if "decoder" in name else STEPS * local[name])
    return table


def far():
    """From other hosts, as far as their distance goes."""
    table = Table(
        "From another host",
        "Over TCP through a proxy that makes everything later (bench/delay.py). Each step is waited for; a recorded one may take the round trip longer than on the host.",
        "what", "virtual card", "on the host",
    )  # fmt: skip
    here = alone("far")
    for added in (0.0, *DELAYS_MS):
        with serves(listen="tcp:127.0.0.1:0") as server, delay.Delay(server.address, added / 2e3) as proxy:
            there = figures_of(start("far", "tessera", environment={**server.environment(), "TESSERA_SLICES": proxy.address}))
        lost = there["round trip"] / 1e3
        for name, value in there.items():
            if name == "round trip":
                table.row(f"{name}, {added:g} ms added", value, "us", f"{here[name]:.4g}")
            else:
                table.row(f"{name}, {added:g} ms added", value, "ms", f"{here[name]:.4g}", most=here[name] + lost if name.startswith("recorded") else None)
    return table


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tenants():
    """Of one card, all busy at once."""
    table = Table(
        "Tenants",
        "Servers with one thread each, whose shares are those of one device. What each gets is the time of the processor that the system counts for its server, by "
        "the time that passed, and on other devices what it computed, by what it computes alone; memory is what a program could have before its error, of "
        f"{MEMORY_MIB} MiB. Goal: off by less than {OFF:.0%} of its share.",
        "shares", "off at most", "time that each got", "MiB that each got",
    )  # fmt: skip
    alone = None if serving.DEVICE == "cpu" else busy([1.0])[1][0]["steps"]
    for shares in CARDS:
        used, figures = busy(shares)
        got = [seconds / BUSY for seconds in used] if alone is None else [one["steps"] / alone for one in figures]
        off = max(abs(one - share) / share for one, share in zip(got, shares))
        memory = ", ".join(f"{one['MiB']}" for one in figures)
        table.row(" : ".join(f"{share:g}" for share in shares), 100 * off, "%", ", ".join(f"{one:.3f}" for one in got), memory, most=100 * OFF)
    return table


def busy(shares):
    """What tenants with these shares of a device get of it: seconds of the processor, and what they say of themselves."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tessera-")))
        servers = [stack.enter_context(serves("--share", share, "--card", folder / "card", memory=f"{MEMORY_MIB}MiB")) for share in shares]
        # Products that take a while on the device, and not only to begin.
        width = 256 if serving.DEVICE == "cpu" else 2048
        programs = [start("tenant", "tessera", BUSY, width, environment=server.environment(), stdin=subprocess.PIPE) for server in servers]
        for program in programs:
            assert program.stdout.readline() == "ready\n"
        before = [processor_seconds(server.process.pid) for server in servers]
        for program in programs:
            program.stdin.write("\n")
            program.stdin.flush()
        figures = [figures_of(program) for program in programs]
        return [processor_seconds(server.process.pid) - since for server, since in zip(servers, before)], figures


def moves():
    """To another server, which has loaded everything but what is moved."""
    table = Table(
        "Moves",
        "From the call that saves the card until the program has a value of it from another server, which had loaded everything else (`--standby`); "
        "the snapshot lies on disk, with fsync, or in memory.",
        "what", "takes",
    )  # fmt: skip
    for where in (None, "/dev/shm"):
        for mib, most in MOVES.items():
            with tempfile.TemporaryDirectory(prefix="tessera-", dir=where) as folder:
                seconds = min(move(mib, pathlib.Path(folder)) for _ in range(3))
            table.row(f"{mib} MiB, {'on disk' if where is None else 'in memory'}", seconds, "s", most=most)
    return table


def move(mib, folder):
    with serves("--snapshots", folder, epoch=7) as first:
        token, socket = "0" * 31 + "1", folder / "second.sock"
        command = [sys.executable, "-m", "tessera.slice", "--device", serving.DEVICE, "--memory", "4GiB", "--standby", "--listen", f"unix:{socket}"]
        environment = {**os.environ, **ONE_THREAD, "TESSERA_TOKEN": token, "TESSERA_EPOCH": "8"}
        second = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert second.stdout.readline() == "standing by\n"
            program = start("moved", "tessera", mib, environment=first.environment(), stdin=subprocess.PIPE)
            assert program.stdout.readline() == "saved\n"
            second.stdin.write(f"{folder}/moved\n")
            second.stdin.flush()
            address = second.stdout.readline().split()[-1]
            program.stdin.write(f"{address} {token} 8\n")
            program.stdin.flush()
            return figures_of(program)["seconds"]
        finally:
            second.kill()
            second.wait()


def described():
    """What the slices are of."""
    return "a processor" if serving.DEVICE == "cpu" else torch.get_device_module(serving.DEVICE).get_device_name(serving.DEVICE)


TABLES = {"near": near, "far": far, "tenants": tenants, "moves": moves}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", choices=[*TABLES], default=[*TABLES], help="tables that are wanted (default: all)")
    options = parser.parse_args()
    tables = [TABLES[name]() for name in options.only]
    missed = [row for table in tables for row in table.missed]
    lines = ["# The device: figures", "", f"`make device-bench`, one thread on each side, on {described()}.", ""]
    lines += ["Missed: " + ("; ".join(missed) if missed else "none of the goals below."), ""]
    lines += [line for table in tables for line in (*table.lines, "")]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
