"""`torch.compile(backend="tessera")`: what is compiled gives what it gave before, a call of it is one message, and what cannot be one
message says so and is right all the same."""

import copy
import subprocess
import sys
import warnings

import pytest
import ready
import serving
import torch
from elsewhere import Asked, Kept
from torch import nn

DEVICE = "tessera"


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        # What is executed op by op would pass, too.
        warnings.filterwarnings("error", message=".*op by op.*")
        yield
    torch._dynamo.reset()


def compiled(of, **more):
    return torch.compile(of, backend="tessera", **more)


class Block(nn.Module):
    """A layer of a small decoder, with what it has seen so far."""

    def __init__(self, width=32, heads=4, longest=24):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("keys", torch.zeros(1, heads, longest, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, longest, width // heads))

    def forward(self, x, place):
        parts = self.into(self.norms[0](x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, parts[1])
        self.values.index_copy_(2, place, parts[2])
        seen = (torch.arange(self.keys.shape[2], device=x.device) <= place).view(1, 1, 1, -1)
        mixed = nn.functional.scaled_dot_product_attention(parts[0], self.keys, self.values, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, 1, -1))
        return x + self.feed(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, token, place):
        x = self.embed(token)
        for block in self.blocks:
            x = block(x, place)
        return self.head(x)[:, -1].argmax(-1, keepdim=True)


def perceptron():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16))


def convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 16)
    )  # fmt: skip


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 16)), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten())


def train(model, call, steps=4):
    torch.manual_seed(3)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.randn(steps, 8, 16, generator=torch.Generator().manual_seed(1))
    losses = []
    for inputs in data.to(DEVICE):
        optimiser.zero_grad()
        loss = (call(inputs) - inputs).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses + [parameter.detach().double().sum().item() for parameter in model.state_dict().values()]


@pytest.mark.parametrize("make", [perceptron, convolutions, transformer])
def test_a_model_trains_as_it_does_uncompiled(make):
    torch.manual_seed(0)
    one = make().to(DEVICE)
    other = copy.deepcopy(one)
    expected = train(one, one)
    replays = torch.tessera.statistics()["replays"]
    assert train(other, compiled(other)) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    # Forward and backward, each time but perhaps the first.
    assert torch.tessera.statistics()["replays"] - replays >= 6


def decode(model, count=16):
    token, said = torch.tensor([[7]], device=DEVICE), []
    with torch.no_grad():
        for number in range(count):
            token = model(token, torch.tensor([number], device=DEVICE))
            said.append(token)
    return torch.cat(said).flatten().tolist()


def test_a_decoder_says_the_same():
    torch.manual_seed(0)
    one = Decoder().to(DEVICE).eval()
    other = copy.deepcopy(one)
    said = decode(compiled(other))
    assert said == decode(one)
    assert len(set(said)) > 1


def test_a_call_is_one_message():
    torch.manual_seed(0)
    model = perceptron().to(DEVICE).eval()
    inputs = torch.randn(8, 16, device=DEVICE)
    fast = compiled(model)
    with torch.no_grad():
        expected = fast(inputs).cpu()
        torch.tessera.synchronize()
        before = torch.tessera.statistics()
        given = [fast(inputs) for _ in range(50)]
        after = torch.tessera.statistics()
    assert after["frames"] - before["frames"] == 50
    # Less than one operation takes uncompiled, with its arguments.
    assert after["bytes"] - before["bytes"] < 50 * 300
    assert all(torch.equal(each.cpu(), expected) for each in given)


def test_what_an_earlier_call_gave_stays_as_it_is():
    @compiled
    def step(x):
        y = x * 2
        return y, y[1:], x.view(2, 2), y + 1

    first = step(torch.arange(4.0, device=DEVICE))
    second = step(torch.arange(4.0, 8.0, device=DEVICE))
    assert [each.flatten().tolist() for each in first] == [[0, 2, 4, 6], [2, 4, 6], [0, 1, 2, 3], [1, 3, 5, 7]]
    assert second[0].tolist() == [8, 10, 12, 14]
    first[0].fill_(5)
    assert first[1].tolist() == [5, 5, 5], "a view stays one"


def test_what_it_changes_is_changed():
    counts = torch.zeros(3, device=DEVICE)

    @compiled
    def step(x):
        counts.add_(x)
        x.mul_(2)
        return counts.sum()

    for number in (1, 2, 3):
        x = torch.full((3,), float(number), device=DEVICE)
        with torch.no_grad():
            total = step(x)
        assert x.tolist() == [2 * number] * 3
        assert total.item() == 3 * number * (number + 1) / 2
    assert counts.tolist() == [6, 6, 6]


def test_other_shapes_are_other_steps():
    model = nn.Linear(16, 4).to(DEVICE)
    fast = compiled(model)
    for rows in (2, 5, 9, 2, 5, 9):
        inputs = torch.randn(rows, 16, device=DEVICE)
        torch.testing.assert_close(fast(inputs).cpu(), model(inputs).cpu())


def test_tensors_that_lie_elsewhere_in_their_memory_are_not_mistaken():
    fast = compiled(lambda x: x + 1)
    memory = torch.arange(12.0, device=DEVICE)
    for start in (0, 4, 8, 4):
        assert fast(memory[start : start + 4]).tolist() == [start + 1.0, start + 2.0, start + 3.0, start + 4.0]


def of_the_processor(x):
    return (x.cpu() + 1).to(DEVICE)


def test_what_cannot_be_one_message_says_why_and_is_right():
    x = torch.arange(4.0, device=DEVICE)
    fast = compiled(of_the_processor)
    assert fast(x).tolist() == [1, 2, 3, 4]
    with pytest.warns(UserWarning, match="(?s)op by op, because .*the program needs a value"):
        assert fast(x).tolist() == [1, 2, 3, 4]
    assert fast(x).tolist() == [1, 2, 3, 4]
    scale = torch.tensor(3.0)
    fast = compiled(lambda x: x * scale)
    with pytest.warns(UserWarning, match="op by op, because it is called with a tensor on cpu"):
        assert fast(x).tolist() == [0, 3, 6, 9]
    scale.fill_(4)
    assert fast(x).tolist() == [0, 4, 8, 12]
    strict = compiled(of_the_processor, options={"strict": True})
    strict(x)
    with pytest.raises(RuntimeError, match="the program needs a value"):
        strict(x)
    with pytest.raises(Exception, match="has the option 'strict', and no 'fast'"):
        compiled(of_the_processor, options={"fast": True})(x)


def test_an_error_within_it_is_told_and_the_next_call_is_right():
    table = torch.arange(8.0, device=DEVICE)
    fast = compiled(lambda at: table[at] * 2)
    assert fast(torch.tensor([1, 2], device=DEVICE)).tolist() == [2, 4]
    wrong = fast(torch.tensor([1, 9], device=DEVICE))
    with pytest.raises(IndexError, match="test_compiled.py"):
        wrong.tolist()
    assert fast(torch.tensor([3, 4], device=DEVICE)).tolist() == [6, 8]


def test_it_takes_no_more_memory_than_what_it_gives():
    fast = compiled(lambda x: (x * 2).relu() + 1)
    x = torch.ones(1 << 20, device=DEVICE)
    fast(x)
    torch.tessera.synchronize()
    before = torch.tessera.memory_allocated()
    kept = [fast(x) for _ in range(3)]
    assert torch.tessera.memory_allocated() - before == 3 * (4 << 20)
    status = torch.tessera.slice_status()
    assert status["memory_used"] <= torch.tessera.memory_allocated() + (1 << 20)
    del kept


def test_a_recorded_step_may_hold_a_compiled_one():
    fast = compiled(lambda x: x * 2 + 1)
    x = torch.ones(4, device=DEVICE)
    fast(x)
    recorded = torch.tessera.Graph()
    with torch.tessera.graph(recorded):
        y = fast(x)
    x.fill_(3)
    recorded.replay()
    assert y.tolist() == [7] * 4


PROGRAM = """
import sys, torch
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 16)).to("tessera")
fast = torch.compile(model, backend="tessera")
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(8, 16).to("tessera")
for step in range(12):
    loss = (fast(inputs) - inputs).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(step, loss.item().hex(), flush=True)
"""


def test_a_compiled_program_goes_on_with_another_server(folder, tmp_path):
    with serving.Server(folder) as server:
        undisturbed = server.run(PROGRAM)
    asked = Asked(folder)
    with Kept(folder, tmp_path, epoch=1) as server:
        asked.at(server)
        program = ready.Popen([sys.executable, "-c", PROGRAM], env=asked.environment(), stdout=subprocess.PIPE, text=True)
        lines = [program.stdout.readline() for _ in range(5)]
        asked.answers["where"] = {"wait": "it is moved"}
    with Kept(folder, tmp_path, epoch=2) as server:
        asked.at(server)
        rest = serving.finish(program)
    assert ("".join(lines) + rest).strip() == undisturbed
