"""What several unequal slices bring together: the speed-up of one training over the fastest of them, against the ideal.

    python together.py [--processors COUNT] [--first] [--out FILE]     # make device-together

Every slice is a server of its own with one thread, and its gate holds it to its share of that thread's time. The shares are small enough
that all servers together need no more processors than the machine has, so that a slice which waits for its gate takes nothing from
another: what is measured is the division of the work and what the servers tell each other, on loopback.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

CARDS = ((1, 1), (1, 0.5), (1, 0.33), (1, 0.6, 0.25))
WIDTH, BATCH, RUNS = 512, 4096, 8


def program():
    """Trains and prints the milliseconds of its steps and what the card says, as JSON."""
    import time

    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 10)
    model = nn.Sequential(*layers).to("tessera")
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    inputs, targets = torch.randn(BATCH, WIDTH).to("tessera"), torch.randint(0, 10, (BATCH,)).to("tessera")

    def step():
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    for _ in range(12):  # by then the planner has seen enough to predict, and the rows are divided by what they took
        step().item()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        value = step().item()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"milliseconds": statistics.median(times), "loss": value, "status": torch.tessera.slice_status()}))


def hurry(pid):
    """Has all threads of a process go before what else this machine does."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(5))


def run(card, split, first):
    import groups

    slices = [("1GiB", "--threads", 1, "--share", f"{share:.4f}") for share in card]
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder, groups.Group(folder, slices, split=split) as group:
        environment = {**group.environment(), "OMP_NUM_THREADS": "1"}
        for server in (group, *group.others) if first else ():
            hurry(server.process.pid)
        done = subprocess.run([sys.executable, __file__, "--program"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)


def report(processors, first):
    rows = []
    for card in CARDS:
        # The fastest slice has the same part of a processor for all cards: what the card with most slices leaves to each.
        whole = 0.8 * processors / max(sum(other) for other in CARDS)
        shares = [whole * part for part in card]
        alone, together = run(shares, "one", first), run(shares, "batch", first)
        speed_up, ideal = alone["milliseconds"] / together["milliseconds"], sum(card) / card[0]
        expected = together["status"]["expected_speed_up"]
        rows_of_each = " : ".join(f"{slice['part_of_rows']:.2f}" for slice in together["status"]["slices"])
        apart = abs(alone["loss"] - together["loss"])
        rows.append(
            f"| {' : '.join(f'{part:g}' for part in card)} | {alone['milliseconds']:.0f} ms | {together['milliseconds']:.0f} ms | {speed_up:.2f} "
            f"| {ideal:.2f} | {speed_up / ideal:.0%} | {f'{expected:.2f}' if expected else 'not yet known'} | {rows_of_each} | {apart:.0e} |"
        )
        print(rows[-1], flush=True)
    head = (
        "# Several slices as one device: figures", "",
        f"`python crates/torch/bench/together.py --processors {processors:g}{' --first' if first else ''}` (`make device-together`): a training step of an MLP of width {WIDTH} over a batch of {BATCH}, split by batch. Slower slices are emulated by "
        f"their gates: the fastest has {whole:.2f} of one thread in each row, the others their part of that, so that all together need no "
        f"more than 80 % of {processors:g} processor(s){', and go before what else the machine does' if first else ''}. Asked for: at least 85 % of the ideal.", "",
        "| slices | fastest alone | together | speed-up | ideal | of the ideal | predicted | rows of each | losses apart |", "|---|---|---|---|---|---|---|---|---|",
    )  # fmt: skip
    return "\n".join([*head, *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", action="store_true")
    parser.add_argument("--processors", type=float, default=min(os.cpu_count() or 1, 2), help="processors that the slices may need in all")
    parser.add_argument("--first", action="store_true", help="servers go before what else the machine does; for one that is busy")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.program:
        return program()
    text = report(options.processors, options.first)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
