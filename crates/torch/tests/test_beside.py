"""Slices of a device that computes beside the processor: `TESSERA_TEST_DEVICE=cuda:0 pytest` on a host that has one."""

import json
import os
import pathlib
import signal

import groups
import pytest
import serving
import torch
from test_several import MODELS

pytestmark = pytest.mark.skipif(serving.DEVICE == "cpu", reason="servers of tests compute on the processor: TESSERA_TEST_DEVICE names another device")

TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 5))
inputs, targets = torch.randn(32, 20), torch.randint(0, 5, (32,))
model, inputs, targets = model.to(sys.argv[1]), inputs.to(sys.argv[1]), targets.to(sys.argv[1])
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
for name in ("first", "second", ""):
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad(); loss.backward(); optimiser.step()
    if name and sys.argv[1] == "tessera":
        drawn = torch.randn(4, device="tessera")
        torch.tessera.snapshot(name)
        print("saved", flush=True)
        address, token, epoch = input().split()
        torch.tessera.reconnect(address, token, int(epoch))
        assert not torch.equal(torch.randn(4, device="tessera"), drawn)
print(loss.item())
"""
WRONG = """
import torch
table, at = torch.zeros(5, device="tessera"), torch.tensor([77], device="tessera")
try: print(table[at].sum().item())
except RuntimeError as error: print("assert" in str(error))
try: print(torch.ones(2, device="tessera").sum().item())
except (RuntimeError, ConnectionError) as error: print(type(error).__name__)
"""


def test_a_program_moves_between_kinds_of_devices(folder):
    with serving.Server(folder, "--device", "cpu") as server:
        expected = float(server.run(TRAINING, "cpu"))
    with serving.Server(folder, "--snapshots", folder) as first:
        program = first.start(TRAINING, "tessera")
        assert program.stdout.readline() == "saved\n"
    with serving.Server(folder, "--device", "cpu", "--snapshots", folder, "--restore", f"{folder}/first", epoch=8) as second:
        program.stdin.write(f"{second.address} {second.token} 8\n")
        program.stdin.flush()
        assert program.stdout.readline() == "saved\n"
    with serving.Server(folder, "--restore", f"{folder}/second", epoch=9) as third:
        out, err = program.communicate(f"{third.address} {third.token} 9\n", timeout=120)
    assert program.returncode == 0, err
    assert float(out) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("split", ["batch", "layers"])
def test_a_processor_and_the_device_are_one_card(folder, split):
    slices = [("1GiB", "--device", serving.DEVICE), ("1GiB", "--device", "cpu")]
    with groups.Group(folder, slices, split=split) as group:
        # Of those without dropout: the first slice draws the random numbers, and not as a processor would.
        for name, seen in json.loads(group.run(MODELS, "cnn", "transformer", "encoder")).items():
            here, there = seen["losses"]
            assert there == pytest.approx(here, abs=1e-4), name


def test_an_assertion_on_the_device_is_told_and_ends_the_server_and_no_other(folder):
    with serving.Server(folder) as neighbour, serving.Server(folder) as server:
        other = neighbour.start("import torch\nx = torch.ones(4, device='tessera'); print(x.sum().item(), flush=True); input(); print((x + 1).sum().item())")
        assert other.stdout.readline() == "4.0\n"
        told, after = server.run(WRONG).split()
        assert told == "True" and after.endswith("Error")
        assert server.process.wait(60) == 123
        out, err = other.communicate("\n", timeout=120)
        assert out == "8.0\n", err


def test_what_a_server_holds_of_the_device_stays_within_its_memory(folder):
    before = torch.cuda.mem_get_info(serving.DEVICE)[0]
    with serving.Server(folder, memory="2GiB") as server:
        program = server.start("""
import torch
for size in (1 << 20, 3 << 19, 7 << 20):
    held = []
    try:
        while True: held.append(torch.empty(size, device="tessera"))
    except torch.OutOfMemoryError: pass
    held[-1].fill_(1)
    torch.tessera.synchronize()
    print(len(held) * size * 4 >> 20, flush=True)
    input()
del held
held = torch.empty(288 << 20, device="tessera")
try: torch.randn(64 << 20, device="tessera").topk(32 << 20); torch.tessera.synchronize()
except torch.OutOfMemoryError: print("no room on its way")
""")
        for _ in range(3):
            assert 2048 - 64 <= int(program.stdout.readline()) <= 2048
            # What a process needs of a GPU before it has anything there, its context, is no memory of the slice.
            assert before - torch.cuda.mem_get_info(serving.DEVICE)[0] < 2048 + 1024 << 20
            program.stdin.write("\n")
            program.stdin.flush()
        out, err = program.communicate(timeout=120)
        assert out == "no room on its way\n", err
        assert server.lives()


def test_one_that_stands_still_in_its_turn_does_not_stop_its_neighbour(folder):
    card = ("--share", 0.5, "--card", f"{folder}/card")
    busy = "import torch\nx = torch.ones(512, 512, device='tessera')\nwhile True: x = x @ x * 0.0; x.sum().item(); print('on', flush=True)"
    with serving.Server(folder, *card) as frozen, serving.Server(folder, *card) as server:
        one = frozen.start(busy)
        assert one.stdout.readline() == "on\n"
        while True:
            os.kill(frozen.process.pid, signal.SIGSTOP)
            # The first word of the file says whose turn it is.
            if any(pathlib.Path(folder, "card").read_bytes()[:4]):
                break
            os.kill(frozen.process.pid, signal.SIGCONT)
        other = server.start(busy)
        for _ in range(2000):
            assert other.stdout.readline() == "on\n"
        for program in (one, other):
            program.kill()
            program.wait()


ATTENTION = """
import torch
from torch.nn.functional import scaled_dot_product_attention as attend
torch.manual_seed(0)
def work(device, dtype, mask, keys):
    inputs = [torch.randn(2, heads, 40, 16).to(device, dtype).requires_grad_() for heads in (4, keys, keys)]
    out = attend(*inputs, attn_mask=None if mask is None else mask.to(device), enable_gqa=keys != 4)
    return [one.float().cpu() for one in (out, *torch.autograd.grad(out.sum(), inputs))]
masks = None, torch.rand(40, 40) > 0.2, torch.rand(2, 1, 40, 40), torch.rand(2, 4, 40, 40) > 0.2
for dtype, within in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
    for mask in masks:
        for keys in (4, 2):
            torch.manual_seed(1); here = work("cpu", dtype, mask, keys)
            torch.manual_seed(1); there = work("tessera", dtype, mask, keys)
            for one, other in zip(here, there): torch.testing.assert_close(other, one, rtol=within, atol=within)
# A number for each pair of words would be twice what the card has.
long = [torch.randn(1, 8, 16384, 32, device="tessera", requires_grad=True) for _ in range(3)]
attend(*long, is_causal=True).sum().backward()
print(long[0].grad.isfinite().all().item())
"""


def test_attention_is_what_it_is_on_a_processor_and_keeps_nothing_between_words(folder):
    with serving.Server(folder, memory="4GiB") as server:
        assert server.run(ATTENTION) == "True"
