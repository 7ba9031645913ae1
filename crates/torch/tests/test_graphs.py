"""Recorded steps: what replays come to, what is refused and why, and what they hold."""

import os
import signal
import struct

import pytest
import serving
import test_slices
import torch
from measured import measured
from torch import nn

CARD = torch.device("tessera")


def network(seed=0):
    torch.manual_seed(seed)
    layers = nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(32), nn.Linear(32, 5)
    return nn.Sequential(*layers).to(CARD)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, capturable=True)


def stepped(optimiser_of):
    """A step, and the tensors that it reads a batch from."""
    model = network()
    optimiser = optimiser_of(model.parameters())
    inputs, targets = torch.zeros(16, 12, device=CARD), torch.zeros(16, dtype=torch.long, device=CARD)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimiser.step()
        return loss

    return model, step, inputs, targets


def batches(count):
    generator = torch.Generator().manual_seed(4)
    return [
        (torch.randn(16, 12, generator=generator), torch.randint(0, 5, (16,), generator=generator)) for _ in range(count)
    ]  # fmt: skip


def trained(optimiser_of, recorded, steps=8):
    model, step, inputs, targets = stepped(optimiser_of)
    torch.manual_seed(7)
    losses, graph = [], None
    for number, (x, y) in enumerate(batches(steps)):
        inputs.copy_(x)
        targets.copy_(y)
        if recorded and number == 2:
            graph = torch.tessera.Graph()
            with torch.tessera.graph(graph):
                loss = step()
        if graph:
            graph.replay()
        else:
            loss = step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("optimiser_of", [sgd, adamw])
def test_replayed_training_with_dropout_equals_training_op_by_op_in_each_bit(optimiser_of):
    losses, parameters = trained(optimiser_of, recorded=False)
    replayed, recorded_parameters = trained(optimiser_of, recorded=True)
    assert replayed == losses
    assert len(set(losses)) == len(losses)
    for one, other in zip(recorded_parameters, parameters, strict=True):
        assert torch.equal(one, other)


def test_a_replay_is_one_small_message_and_waits_for_nothing():
    _, step, _, _ = stepped(sgd)
    step(), step()
    graph = torch.tessera.Graph()
    with torch.tessera.graph(graph):
        step()
    torch.tessera.synchronize()
    before = torch.tessera.statistics()
    for _ in range(10):
        graph.replay()
    after = torch.tessera.statistics()
    assert after["operations"] - before["operations"] == 10 * graph.operations > 100
    assert (after["replays"] - before["replays"], after["frames"] - before["frames"], after["waits"] - before["waits"]) == (10, 10, 0)
    assert after["bytes"] - before["bytes"] == 50


class Decoder(nn.Module):
    """One step of greedy decoding over keys and values of a fixed length."""

    def __init__(self, width=16, heads=2, length=24, vocabulary=40):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, width // heads))
        self.register_buffer("places", torch.arange(length))

    def forward(self, token, position):
        x = self.embedding(token)
        query, key, value = self.mix(self.norm(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        hidden = self.places > position
        scores = (query @ self.keys.transpose(2, 3)).masked_fill(hidden, -1e9)
        x = x + self.out((scores.softmax(-1) @ self.values).transpose(1, 2).reshape(1, 1, -1))
        token.copy_(self.head(x).argmax(-1))
        position.add_(1)


@torch.no_grad()
def test_a_decoder_with_a_static_cache_says_the_same():
    torch.manual_seed(0)
    here = Decoder()
    there = Decoder().to(CARD)
    there.load_state_dict(here.state_dict())

    def start(device):
        return torch.tensor([[7]]).to(device), torch.zeros(1, dtype=torch.long).to(device)

    expected, (token, position) = [], start("cpu")
    for _ in range(20):
        here(token, position)
        expected.append(token.item())
    token, position = start(CARD)
    there(token, position)
    graph = torch.tessera.Graph()
    with torch.tessera.graph(graph):
        there(token, position)
    token.fill_(7), position.zero_()
    said = []
    for _ in range(20):
        graph.replay()
        said.append(token.item())
    assert said == expected


def recorded(work):
    graph = torch.tessera.Graph()
    with torch.tessera.graph(graph):
        work()
    return graph


REFUSED = {
    "a value": (lambda x: x.sum().item(), "the program needs a value"),
    "a condition": (lambda x: bool(x.sum() > 0), "the program needs a value"),
    "a copy to the host": (lambda x: x.cpu(), "the program needs a value: a copy to the processor"),
    "a copy from the host": (lambda x: x.copy_(torch.ones(4)), "copies from the program"),
    "a constant of the host": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0], device=CARD), "copies from the program"),
    "shapes that depend on data": (lambda x: x.nonzero(), "aten::nonzero gives is not known ahead: it depends on data"),
    "a mask": (lambda x: x[x > 0], "aten::index gives is not known ahead: it depends on data"),
    "waiting": (lambda x: torch.tessera.synchronize(), "waits for the card"),
    "a seed": (lambda x: torch.manual_seed(1), "sets the seed"),
    "a state": (lambda x: torch.tessera.get_rng_state(), "asks the slice server"),
    "more memory": (lambda x: x.resize_(1 << 20), "a tensor gets more memory"),
    "layers that never ran": (lambda x: nn.functional.layer_norm(x.view(1, 1, 1, 4), (4,)), "run the step before you record it"),
    "another graph": (lambda x: recorded(lambda: None), "a step is being recorded already"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED, ids=str)
def test_what_would_not_be_the_same_each_time_is_refused_with_the_reason(what):
    work, reason = REFUSED[what]
    x = torch.zeros(4, device=CARD)
    with pytest.raises(RuntimeError, match=reason):
        recorded(lambda: work(x))
    assert not torch.tessera.is_current_stream_capturing()
    assert x.sum().item() == 0  # nothing has happened, and the card goes on


def test_a_refusal_names_the_line_and_cannot_be_passed_over():
    x = torch.zeros(4, device=CARD)

    def careless():
        try:
            x.sum().item()  # this line
        except RuntimeError:
            x.add_(1)

    line = careless.__code__.co_firstlineno + 2
    with pytest.raises(RuntimeError, match=rf"nothing was recorded: .*test_graphs.py:{line} in careless"):
        recorded(careless)
    assert x.sum().item() == 0


def test_optimisers_that_count_their_steps_at_the_program_are_refused():
    layer = nn.Linear(4, 4).to(CARD)
    optimiser = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2, 4, device=CARD)).sum().backward()
    optimiser.step()
    with pytest.raises(RuntimeError, match=r"AdamW counts its steps at the program.*AdamW\(\.\.\., capturable=True\)"):
        recorded(optimiser.step)


def test_optimisers_must_have_what_they_keep_before():
    layer = nn.Linear(4, 4).to(CARD)
    optimiser = sgd(layer.parameters())
    layer(torch.ones(2, 4, device=CARD)).sum().backward()
    with pytest.raises(RuntimeError, match="SGD makes its 'momentum_buffer' in this step.*take a step before"):
        recorded(optimiser.step)


def with_gradients(value=1.0):
    parameter = torch.zeros(4, device=CARD, requires_grad=True)
    parameter.grad = torch.full((4,), value, device=CARD)
    return parameter


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_a_learning_rate_that_was_changed_since_is_not_passed_over(rate):
    parameter = with_gradients()
    optimiser = torch.optim.SGD([parameter], lr=rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1)
    graph = recorded(optimiser.step)
    graph.replay()
    schedule.step()
    with pytest.raises(RuntimeError, match="SGD has lr=0.05.* now, and the step was recorded with 0.5"):
        graph.replay()
    recorded(optimiser.step).replay()
    torch.testing.assert_close(parameter.detach().cpu(), torch.full((4,), -0.55))


def test_a_learning_rate_on_the_card_is_what_it_is_when_the_step_is_replayed():
    parameter = with_gradients()
    rate = torch.tensor(0.5, device=CARD)
    optimiser = torch.optim.Adam([parameter], lr=rate, capturable=True)
    optimiser.step()
    graph = recorded(optimiser.step)
    before = parameter.detach().cpu()
    rate.fill_(0)
    graph.replay()
    assert torch.equal(parameter.detach().cpu(), before)
    rate.fill_(0.25)
    graph.replay()
    torch.testing.assert_close(parameter.detach().cpu(), before - 0.25)


def test_a_number_at_the_program_is_what_it_was_or_an_error():
    x, factor = torch.ones(4, device=CARD), torch.tensor(2.0)
    graph = recorded(lambda: x.mul_(factor))
    graph.replay()
    factor.fill_(3)
    with pytest.raises(RuntimeError, match="a tensor on the processor has another number now than when the step was recorded"):
        graph.replay()
    factor.fill_(2)
    graph.replay()
    assert x.tolist() == [4.0] * 4


def test_an_error_in_a_replay_names_the_line_that_was_recorded_and_the_one_that_replayed():
    table, at = torch.arange(5.0, device=CARD), torch.zeros(1, dtype=torch.long, device=CARD)

    def look():
        nonlocal found
        found = table.index_select(0, at) + 1  # this line

    found = None
    graph = recorded(look)
    at.fill_(77)
    graph.replay()
    line = look.__code__.co_firstlineno + 2
    with pytest.raises(IndexError, match=rf"recorded at .*test_graphs.py:{line} in look, replayed at .*in test_an_error"):
        found.cpu()
    at.fill_(3)
    graph.replay()
    assert found.item() == 4  # and the graph goes on


def test_tensors_of_a_step_outlive_their_names_in_the_program():
    x = torch.zeros(4, device=CARD)
    made = None

    def step():
        nonlocal made
        made = x + 1
        x.copy_(made)

    graph = recorded(step)
    del made  # the graph makes it all the same
    held = x
    del x
    graph.replay(), graph.replay()
    assert held.sum().item() == 8
    used = torch.tessera.memory_allocated()
    del held
    assert torch.tessera.memory_allocated() == used  # replays work on it
    graph.replay()
    torch.tessera.synchronize()
    graph.reset()
    assert torch.tessera.memory_allocated() < used


def test_memory_of_a_graph_counts_and_is_given_back(folder):
    with serving.Server(folder, memory="8MiB") as server:
        out = server.run("""
import torch
x = torch.zeros(1 << 18, device="tessera")
def step():
    y = x + 1
    z = y * 2
    del y
    x.copy_(z)
    return x.sum()
def told():
    torch.tessera.synchronize()
    return torch.tessera.memory_allocated(), torch.tessera.slice_status()["memory_used"]
before = told()
graph = torch.tessera.Graph()
with torch.tessera.graph(graph): total = step()
graph.replay()
recorded = told()
print(before[0] == before[1], recorded[0] == recorded[1], (recorded[0] - before[0]) >> 20)
kept = [torch.zeros(1 << 18, device="tessera") for _ in range(4)]
try: torch.zeros(1 << 19, device="tessera")
except torch.OutOfMemoryError: print("full")
for _ in range(2): graph.replay()
print(total.item() / (1 << 18))
again = torch.tessera.Graph()  # one after the other: it needs no more
with torch.tessera.graph(again): step()
again.replay(); print(x[0].item())
del graph, again, total, kept
print(told() == before)
try:
    with torch.tessera.graph(torch.tessera.Graph()):
        many = [torch.zeros(1 << 18, device="tessera") for _ in range(9)]
except torch.OutOfMemoryError as error: print("over" if "Tried to allocate" in str(error) else error)
many = None
print(told() == before)
""")
    assert out.splitlines() == ["True True 2", "full", "14.0", "30.0", "True", "over", "True"]


def test_graphs_go_on_where_a_snapshot_is_restored(folder):
    with serving.Server(folder, "--snapshots", folder) as first:
        program = first.start("""
import torch
x = torch.zeros(4, device="tessera")
def step():
    y = x + 1
    x.copy_(y)
    return y * 2
graph = torch.tessera.Graph()
with torch.tessera.graph(graph): doubled = step()
graph.replay()
torch.tessera.snapshot("half")
print("saved", flush=True)
address, token, epoch = input().split()
torch.tessera.reconnect(address, token, int(epoch))
print(doubled.sum().item())
graph.replay()
torch.tessera.synchronize()
print(x.sum().item(), doubled.sum().item())
torch.tessera.synchronize()
print(torch.tessera.memory_allocated() == torch.tessera.slice_status()["memory_used"])
""")
        assert program.stdout.readline() == "saved\n"
        os.kill(first.process.pid, signal.SIGKILL)
        with serving.Server(folder, "--restore", f"{folder}/half", epoch=8) as second:
            out, err = program.communicate(f"{second.address} {second.token} 8\n", timeout=120)
    assert program.returncode == 0, err
    assert out.splitlines() == ["8.0", "8.0 16.0", "True"]


BUSY = """
import time, torch
x = torch.ones(192, 192, device="tessera")
def step():
    y = x
    for _ in range(60): y = (y @ x) / 192
    return y
step()
graph = torch.tessera.Graph()
with torch.tessera.graph(graph): step()
graph.replay(); torch.tessera.synchronize(); start = time.monotonic()
for _ in range(6): graph.replay()
torch.tessera.synchronize(); print(time.monotonic() - start)
"""


@pytest.mark.alone
@measured
def test_the_gate_pays_for_each_operation_of_a_replay(folder):
    one_thread = {"OMP_NUM_THREADS": "1"}
    with serving.Server(folder, "--share", 0.2, environment=one_thread) as part, serving.Server(folder, environment=one_thread) as whole:
        assert float(part.run(BUSY)) > 2 * float(whole.run(BUSY))


def test_graphs_are_bounded_in_number(folder):
    with serving.Server(folder) as server:
        out = server.run("""
import torch
x, graphs = torch.zeros(2, device="tessera"), []
try:
    while True:
        graphs.append(torch.tessera.Graph())
        with torch.tessera.graph(graphs[-1]): x.add_(1)
except RuntimeError as error: print(len(graphs), "can have 1024 graphs" in str(error))
del graphs[5:]
with torch.tessera.graph(torch.tessera.Graph()): x.add_(1)
for graph in graphs: graph.replay()
print(x[0].item())
""")
    assert out.splitlines() == ["1025 True", "5.0"]


def recording(commands, id=1):
    return struct.pack("<BI", 16, id) + test_slices.text(commands)


REPLAY = struct.pack("<BI", 17, 1)
ADD = test_slices.define(b"aten::neg", b"T" + test_slices.layout([2], [1]), results=struct.pack("<IB", 1, 1) + test_slices.layout([2], [1]) + struct.pack("<Q", 8))
HOSTILE = {
    "a graph that nobody recorded": REPLAY,
    "a recording that is cut short": struct.pack("<BII", 16, 1, 1 << 31),
    "commands cut short": recording(b"\x05\x01"),
    "a command that is no operation": recording(b"\x08"),
    "a graph in a graph": recording(REPLAY),
    "a read in a graph": recording(struct.pack("<BQ", 7, 1) + test_slices.layout([1], [1])),
    "memory beyond the slice": recording(struct.pack("<BQQ", 5, 1, 1 << 62)),
    "memory that overflows": recording(struct.pack("<BQQBQQ", 5, 1, (1 << 64) - 1, 5, 2, 1 << 62)),
    "the same storage twice": recording(struct.pack("<BQQBQQ", 5, 1, 64, 5, 1, 64)),
    "a template that is not defined": recording(struct.pack("<BIIII", 2, 1, 0, 0, 0)),
    "an operation unlike its template": recording(ADD + struct.pack("<BIIII", 2, 1, 0, 0, 0)),
    "fewer names than results": recording(ADD + struct.pack("<BIIIIQ", 2, 1, 1, 0, 0, 1)),
    "storages that are not there": recording(ADD + struct.pack("<BIIIIQQ", 2, 1, 1, 0, 1, 99, 100)) + REPLAY,
    "a storage that is there already": struct.pack("<BQQ", 5, 1, 8) + recording(ADD + struct.pack("<BIIIIQQ", 2, 1, 1, 0, 1, 1, 1)) + REPLAY * 2,
    "an operator that reads files": recording(test_slices.define(b"aten::from_file", b"s" + test_slices.text(b"/etc/passwd") + b"NiNNNN")),
    "the same graph twice": recording(b"") + recording(b""),
}  # fmt: skip


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder, memory="64MiB") as server:
            yield server


@pytest.mark.parametrize("attack", HOSTILE, ids=str)
def test_hostile_graphs_end_nothing_but_their_program(attacked, attack):
    for _ in range(200):
        try:
            connection = test_slices.raw(attacked)
            break
        except ConnectionError as error:
            if "already" not in str(error):
                raise
    connection.send(HOSTILE[attack] + b"\x08")
    answers = []
    try:
        # A recording is answered for itself; a synchronisation comes last.
        for _ in range(1 + HOSTILE[attack].count(struct.pack("<BI", 16, 1))):
            if (reply := connection.receive()) is None:
                break
            answers.append(reply[0])
    except ConnectionError:
        pass
    # Told that it is wrong, or shown the door; never answered as if all were well.
    assert not answers or any(answers)
    connection.close()
    assert attacked.lives()
