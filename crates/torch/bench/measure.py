"""The figures of the device: `make device-bench` runs it; docs/benchmarks/device.md holds what it printed last.

    python measure.py [--out FILE]      # starts its own slice servers, prints a table in Markdown, and missed goals first

Issue costs are the best of several runs of many operations, so that a busy machine does not hide them; steps are medians.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

# What is measured, and what is asked of it: name, goal (a number, or a factor of the local figure), unit.
GOALS = {
    "issue add": 5.0, "issue mul scalar": 5.0, "issue mm": 5.0, "issue softmax": 5.0, "issue relu": 5.0, "round trip": 15.0,
}  # fmt: skip
IN_PYTHON = 40.0  # each operation of the dispatcher in Python, in microseconds
LEAST = {"copy to the card": 2.0, "copy from the card": 2.0}
STEPS = 1.15


def program(device):
    """Runs inside a process of its own; prints JSON."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    wait = torch.tessera.synchronize if device == "tessera" else lambda: None
    figures = {}

    def best(name, work, count, runs=9):
        times = []
        for _ in range(runs):
            wait()
            start = time.perf_counter()
            for _ in range(count):
                work()
            times.append((time.perf_counter() - start) / count)
        figures[name] = min(times) * 1e6

    x, y = torch.randn(8, 8).to(device), torch.randn(8, 8).to(device)
    with torch.no_grad():
        operations = {
            "add": lambda: x + y, "mul scalar": lambda: x * 0.5, "view": lambda: x.view(64), "mm": lambda: x @ y,
            "softmax": lambda: torch.softmax(x, -1), "relu": lambda: torch.relu(x),
        }  # fmt: skip
        for name, work in operations.items():
            work()
            best(f"issue {name}", work, 1000)
    if device == "tessera":
        best("round trip", wait, 500)
        best("item", lambda: x[0, 0].item(), 500)
        host = torch.randn(1 << 26)
        up, down = [], []
        card = host.to(device)
        for _ in range(7):
            wait()
            start = time.perf_counter()
            card.copy_(host)
            wait()
            up.append(0.25 / (time.perf_counter() - start))
            start = time.perf_counter()
            host.copy_(card)
            down.append(0.25 / (time.perf_counter() - start))
        figures["copy to the card"], figures["copy from the card"] = max(up), max(down)
        del host, card

    def step_of(model, optimiser, inputs, targets):
        def step():
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

        return step

    for width in (64, 512, 1024):
        torch.manual_seed(0)
        layers = nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
        model = nn.Sequential(*layers).to(device)
        inputs, targets = torch.randn(256, width).to(device), torch.randint(0, 10, (256,)).to(device)
        step = step_of(model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9), inputs, targets)
        for _ in range(5):
            step()
        wait()
        figures[f"step of width {width}"] = median_of(step, wait)
        if device == "tessera":
            before = torch.tessera.statistics()
            step()
            wait()
            after = torch.tessera.statistics()
            figures[f"bytes of a step of width {width}"] = after["bytes"] - before["bytes"]
            figures[f"operations of a step of width {width}"] = after["operations"] - before["operations"]
        if device == "tessera" and os.environ.get("TESSERA_DISPATCHER") != "python":
            graph = torch.tessera.Graph()
            with torch.tessera.graph(graph):
                step()
            figures[f"recorded step of width {width}"] = median_of(graph.replay, wait)
    print(json.dumps(figures))


def median_of(step, wait):
    """Milliseconds of a step, of ten at a time."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(10):
            step()
        wait()
        times.append((time.perf_counter() - start) / 10)
    return statistics.median(times) * 1e3


def run(device, dispatcher="compiled"):
    import serving

    command = [sys.executable, __file__, "--program", device]
    if device == "cpu":
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder, memory="4GiB", environment={"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) as server:
            environment = {**server.environment(), "OMP_NUM_THREADS": "1", "TESSERA_DISPATCHER": dispatcher}
            return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report(local, card, in_python):
    missed, rows = [], []
    for name, value in card.items():
        goal, fine, unit = "", True, "us"
        if name in GOALS:
            goal, fine = f"< {GOALS[name]:g}", value < GOALS[name]
        elif name in LEAST:
            goal, fine, unit = f">= {LEAST[name]:g}", value >= LEAST[name], "GiB/s"
        elif name.startswith("step"):
            most = STEPS * local[name]
            goal, fine, unit = f"< {most:.2f}", value < most, "ms"
        elif name.startswith("recorded"):
            most = local[name.removeprefix("recorded ")]
            goal, fine, unit = f"< {most:.2f}", value < most, "ms"
        elif name.startswith(("bytes", "operations")):
            unit = ""
        beside = f"{local[name]:.2f}" if name in local else ""
        rows.append(f"| {name} | {value:.2f} {unit} | {beside} | {goal} | {'' if not goal else 'met' if fine else '**missed**'} |")
        missed += [] if fine else [f"{name}: {value:.2f} {unit}, asked for {goal}"]
    for name, value in in_python.items():
        if not name.startswith(("issue", "step")):
            continue
        beside = f"{local[name]:.2f}" if name in local else ""
        of_issue, fine, name = name.startswith("issue"), value < IN_PYTHON, f"{name}, dispatcher in Python"
        goal, met = (f"< {IN_PYTHON:g}", "met" if fine else "**missed**") if of_issue else ("", "")
        rows.append(f"| {name} | {value:.2f} {'us' if of_issue else 'ms'} | {beside} | {goal} | {met} |")
        missed += [] if fine or not of_issue else [f"{name}: {value:.2f} us, asked for {goal}"]
    head = ["# The device: figures", "", "`make device-bench`, one thread on each side, program and server on one host over a Unix socket.", ""]
    head += ["Missed: " + ("; ".join(missed) if missed else "none of the goals below."), ""]
    return head + ["| what | virtual card | local | goal | |", "|---|---|---|---|---|", *rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.program:
        return program(options.program)
    text = "\n".join(report(run("cpu"), run("tessera"), run("tessera", "python")))
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
