"""What is timed on the device, each in a process of its own that prints its figures as JSON:

    python programs.py NAME DEVICE [ARGUMENT...]

Issue costs are the best of several runs of many operations, so that a busy machine does not hide them; steps are medians.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
device = sys.argv[2]
on_card = device == "tessera"
figures = {}


def wait():
    if device != "cpu":
        torch.get_device_module(device).synchronize()


def seconds_of(work):
    """From a device that has nothing to do until it has nothing to do again."""
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def best(name, work, count, runs=9):
    """Microseconds of each of so many, without the wait for what they do."""
    times = []
    for _ in range(runs):
        wait()
        start = time.perf_counter()
        for _ in range(count):
            work()
        times.append((time.perf_counter() - start) / count)
    figures[name] = min(times) * 1e6


def median_of(step, runs=9, at_a_time=10):
    """Milliseconds of a step, of so many at a time."""
    return statistics.median(seconds_of(lambda: [step() for _ in range(at_a_time)]) / at_a_time for _ in range(runs)) * 1e3


def training(model, inputs, targets, loss_of=nn.functional.cross_entropy):
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step():
        loss = loss_of(model(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    for _ in range(5):
        step()
    return step


def recorded(step):
    graph = torch.tessera.Graph()
    with torch.tessera.graph(graph):
        step()
    return graph.replay


def mlp(width):
    torch.manual_seed(0)
    layers = nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    return training(nn.Sequential(*layers).to(device), torch.randn(256, width).to(device), torch.randint(0, 10, (256,)).to(device))


def transformer():
    """Two layers of width 64 that tell which of ten kinds a text of 32 words is."""
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(100, 64)
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True) for _ in range(2))
            self.head = nn.Linear(64, 10)

        def forward(self, text):
            seen = self.words(text)
            for layer in self.layers:
                seen = layer(seen)
            return self.head(seen.mean(1))

    return training(Model().to(device), torch.randint(0, 100, (8, 32)).to(device), torch.randint(0, 10, (8,)).to(device))


def decoder():
    """One word after the other by a decoder of four layers of width 128, which keeps what it has seen."""
    torch.manual_seed(0)
    width, heads, longest, vocabulary, depth = 128, 4, 64, 200, 4
    words = nn.Embedding(vocabulary, width).to(device)
    layers = nn.ModuleList(
        nn.ModuleDict({
            "norm": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "norm2": nn.LayerNorm(width),
            "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
        }) for _ in range(depth)
    ).to(device)  # fmt: skip
    head = nn.Linear(width, vocabulary).to(device)
    seen = torch.zeros(depth, 2, heads, longest, width // heads).to(device)
    word, place, places = torch.zeros(1, dtype=torch.long).to(device), torch.zeros(1, dtype=torch.long).to(device), torch.arange(longest).to(device)

    @torch.no_grad()
    def step():
        now = words(word)
        for layer, (keys, values) in zip(layers, seen):
            q, k, v = layer["qkv"](layer["norm"](now)).view(3, heads, 1, width // heads)
            keys.index_copy_(1, place, k)
            values.index_copy_(1, place, v)
            weights = (q @ keys.transpose(1, 2)) / (width // heads) ** 0.5
            weights = weights.masked_fill(places > place, float("-inf")).softmax(-1)
            now = now + layer["out"]((weights @ values).reshape(1, width))
            now = now + layer["down"](nn.functional.gelu(layer["up"](layer["norm2"](now))))
        word.copy_(head(now).argmax(-1))
        place.add_(1).remainder_(longest)

    for _ in range(5):
        step()
    return step


STEPS = {"an MLP of width 64": lambda: mlp(64), "an MLP of width 512": lambda: mlp(512), "an MLP of width 1024": lambda: mlp(1024),
         "a small transformer": transformer, "a small decoder": decoder}  # fmt: skip


def everything():
    """What operations, copies and steps cost."""
    x, y = torch.randn(8, 8).to(device), torch.randn(8, 8).to(device)
    with torch.no_grad():
        operations = {
            "add": lambda: x + y, "mul scalar": lambda: x * 0.5, "view": lambda: x.view(64), "mm": lambda: x @ y,
            "softmax": lambda: torch.softmax(x, -1), "relu": lambda: torch.relu(x),
        }  # fmt: skip
        for name, work in operations.items():
            work()
            best(f"issue {name}", work, 1000)
    if on_card:
        best("round trip", wait, 500)
        best("item", lambda: x[0, 0].item(), 500)
        copies()
    for name, make in STEPS.items():
        step = make()
        figures[f"step of {name}"] = median_of(step)
        if on_card:
            before = torch.tessera.statistics()
            step()
            wait()
            after = torch.tessera.statistics()
            for what in ("bytes", "operations"):
                figures[f"{what} of a step of {name}"] = after[what] - before[what]
        if on_card:
            figures[f"recorded step of {name}"] = median_of(recorded(step))


def copies():
    """GiB/s of a quarter of one, the best of several."""
    host = torch.randn(1 << 26)
    card = host.to(device)
    figures["copy to the card"] = max(0.25 / seconds_of(lambda: card.copy_(host)) for _ in range(7))
    figures["copy from the card"] = max(0.25 / seconds_of(lambda: host.copy_(card)) for _ in range(7))


def far():
    """What a step costs that is waited for."""
    torch.ones(1).to(device)  # the first use of the card connects to it
    best("round trip", wait, 50)
    for name in ("an MLP of width 64", "a small transformer", "a small decoder"):
        step = STEPS[name]()
        figures[f"step of {name}"] = median_of(step, 15, 1)
        figures[f"recorded step of {name}"] = median_of(recorded(step), 15, 1)


def tenant():
    """Always busy for some seconds after a line says so, once it has all the memory that it can have."""
    held = []
    try:
        while True:
            held.append(torch.empty(1 << 20, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError:
        figures["MiB"] = len(held)
    held.clear()
    width = int(sys.argv[4])
    x = torch.randn(width, width).to(device)
    x = x @ x / width
    wait()
    print("ready", flush=True)
    input()
    end, figures["steps"] = time.monotonic() + float(sys.argv[3]), 0
    while time.monotonic() < end:
        for _ in range(5):
            x = (x @ x) / width
        wait()
        figures["steps"] += 5


def moved():
    """Has its card saved, goes on with another slice server, and looks at what it has there."""
    card = torch.arange(int(sys.argv[3]) << 18, dtype=torch.int32).to(device)
    wait()
    start = time.perf_counter()
    torch.tessera.snapshot("moved")
    print("saved", flush=True)
    address, token, epoch = input().split()
    torch.tessera.reconnect(address, token, int(epoch))
    last = card[-1].item()
    figures["seconds"] = time.perf_counter() - start
    assert last == card.numel() - 1


{"everything": everything, "far": far, "tenant": tenant, "moved": moved}[sys.argv[1]]()
print(json.dumps(figures))
