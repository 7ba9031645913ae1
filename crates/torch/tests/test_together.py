"""Several slices as one card when something goes wrong: nothing that is read is silently another value than one device would have."""

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile

import groups
import pytest
import ready
import serving
import torch
from measured import measured

from tessera import _native, group

EQUAL = [("1GiB", "--share", 0.5), ("1GiB", "--share", 0.5)]
#: x and y are divided by rows; what `left` bytes leave free on each slice of 8 MiB is full.
ROWS = """
import torch
torch.manual_seed(0)
left = int(__import__("sys").argv[1])
one = torch.eye(256).to("tessera")
here = torch.randn(512, 256), torch.randn(512, 256)
x, y = (part.to("tessera") @ one for part in here)
torch.tessera.synchronize()
full = torch.zeros(((8 << 20) - left - (3 << 18)) // 4).to("tessera")
torch.tessera.synchronize()
"""


@pytest.fixture
def short():
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        yield folder


@pytest.fixture
def small(short):
    with groups.Group(short, [("8MiB", "--share", 0.5), ("8MiB", "--share", 0.5)], split="batch") as running:
        yield running


@pytest.fixture(scope="module")
def batch():
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder, groups.Group(folder, EQUAL, split="batch") as running:
        yield running


def test_a_sum_needs_no_more_memory_and_is_made_once(small):
    """There is room for the parts of the sum, and not for another one beside it."""
    out = small.run(ROWS + """
product = x.t() @ y
seen = []
while len(seen) < 2:
    try: seen.append(product.cpu())
    except torch.OutOfMemoryError: seen.append(torch.zeros(256, 256))
print(all(torch.allclose(one, here[0].t() @ here[1], atol=1e-3) for one in seen))
""", 384 << 10)
    assert out == "True"


def test_what_is_out_of_memory_on_the_way_leaves_everything_as_it_was(small):
    """Of two tensors that are to be whole, the first has room and the second has not."""
    out = small.run(ROWS + """
both = torch.cat([x, y])
try: both.cpu()
except torch.OutOfMemoryError as error: print("slice 0 of 2" in str(error))
del full
print(torch.equal(x.cpu(), here[0]), torch.equal(y.cpu(), here[1]), torch.equal(torch.cat([x, y]).cpu(), torch.cat(here)))
""", 640 << 10)
    assert out.splitlines() == ["True", "True True True"]


def test_what_follows_an_error_at_another_slice_is_lost_each_time_it_is_read(short):
    with groups.Group(short, [("1GiB", "--share", 0.2), ("1GiB", "--share", 0.9)], split="layers") as running:
        out = running.run("""
import torch
table = torch.arange(20.0).view(10, 2).to("tessera")
bad = torch.full((4,), 99).to("tessera")
def read(what):
    try: return what.cpu().tolist()
    except (IndexError, RuntimeError) as error: return type(error).__name__
wrong = torch.nn.functional.embedding(bad, table)
later = wrong * 2
kept = table + 1
print(*(read(what) for what in (later, later, wrong, wrong, kept)))
print(table.sum().item(), (table + 1).sum().item())
""")
    assert out.splitlines() == ["IndexError RuntimeError RuntimeError RuntimeError RuntimeError", "190.0 210.0"]


def test_slices_that_fail_one_after_the_other_do_not_go_on_with_different_values(batch):
    """Both slices write the same; the first fails only after it, the second before it."""
    out = batch.run("""
import torch
one = torch.eye(64).to("tessera")
same, untouched = torch.zeros(64, 64).to("tessera"), torch.ones(64, 64).to("tessera")
def bad(row):
    # An error at the slice that has this row.
    rows = torch.zeros(64, dtype=torch.long); rows[row] = 99
    return torch.nn.functional.nll_loss(untouched @ one, rows.to("tessera"), reduction="sum")
(untouched + same).sum().item()
bad(63)
same.add_(1)
bad(0)
same.add_(1)
try: torch.tessera.synchronize()
except IndexError: print("told")
try: print(len({(same @ one).cpu()[row, 0].item() for row in (0, 63)}))
except RuntimeError as error: print("earlier error" in str(error))
print((untouched @ one).sum().item())
""")
    assert out.splitlines() == ["told", "True", "4096.0"]


def test_what_is_lost_is_let_go_of_as_it_was_counted_though_rows_are_divided_anew(short):
    """Else a slice that has nothing any more would seem to be full."""
    program = """
import gc, torch
one = torch.eye(64).to("tessera")
rows = torch.zeros(64, dtype=torch.long); rows[63] = 99
x = torch.ones(64, 64).to("tessera") @ one
torch.nn.functional.nll_loss(x, rows.to("tessera"), reduction="sum")
lost = x * 2
try: torch.tessera.synchronize()
except IndexError: print("told")
try: lost.sum().item()
except RuntimeError as error: print("earlier error" in str(error))
del one, rows, x
def train():
    # All of the optimiser is done by each, which takes the slow one its time.
    model = torch.nn.Linear(1024, 1024).to("tessera")
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 1024).to("tessera")
    for _ in range(20):
        loss = (model(inputs) - inputs).square().mean()
        optimiser.zero_grad(); loss.backward(); optimiser.step()
    return loss.item()
train()
print(torch.tessera.slice_status()["slices"][1]["part_of_rows"] < 0.15)
gc.collect()
del lost
print(torch.ones(4).to("tessera").sum().item())
"""
    with groups.Group(short, [("1GiB", "--share", 0.8), ("1GiB", "--share", 0.2)], split="batch") as running:
        assert running.run(program).split() == ["told", "True", "True", "4.0"]


def test_random_numbers_stay_the_same_everywhere_after_an_error_at_one_slice(batch):
    out = batch.run("""
import torch
torch.manual_seed(0)
one = torch.eye(64).to("tessera")
rows = torch.zeros(64, dtype=torch.long); rows[63] = 99
torch.nn.functional.nll_loss(one @ one, rows.to("tessera"), reduction="sum")
torch.rand(64, 64, device="tessera")
try: torch.tessera.synchronize()
except IndexError: print("told")
x = torch.rand(64, 64, device="tessera")
print(torch.equal((x @ one).cpu(), x.cpu()))
""")
    assert out.splitlines() == ["told", "True"]


def test_slices_that_draw_other_random_numbers_are_found_out(short):
    """Kernels for other processors draw other numbers, though both are called the same."""
    with groups.Group(short, EQUAL, split="batch", each=({}, {"ATEN_CPU_CAPABILITY": "default"})) as running:
        out = running.run("""
import torch
torch.manual_seed(0)
x = torch.randn(256, 64, device="tessera")
print(torch.equal((x @ torch.eye(64).to("tessera")).cpu(), x.cpu()))
""")
    assert out == "True"


LARGE = """
import torch
from torch import nn
def train(device):
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(70) for layer in (nn.Linear(128, 128, bias=False), nn.Tanh())]).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    x = torch.randn(32, 128).to(device)
    for _ in range(3):
        loss = model(x).pow(2).mean()
        optimiser.zero_grad(); loss.backward(); optimiser.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]
print(all(torch.allclose(one, other, atol=1e-5) for one, other in zip(train("cpu"), train("tessera"))))
print(torch.tessera.slice_status()["plan"])
"""


def test_a_model_that_fits_no_slice_is_not_divided_unasked(short):
    """It needs some 15 MiB, and its first pass has more operations than the first look waits for."""
    with groups.Group(short, [("13MiB",), ("13MiB",)], split="auto") as running:
        assert running.run(LARGE).split() == ["True", "layers"]


def test_a_program_that_grows_after_it_was_divided_gets_the_memory_of_all_slices(short):
    with groups.Group(short, [("16MiB",), ("16MiB",)], split="auto") as running:
        out = running.run("""
import torch
wide = torch.eye(1024).to("tessera"); x = torch.ones(64, 1024).to("tessera")
for _ in range(300): y = x @ wide
torch.tessera.synchronize()
print(torch.tessera.slice_status()["plan"])
kept = [torch.full((1 << 18,), float(i)).to("tessera") for i in range(13)]
total = sum(one.mean() for one in kept).item()
print(torch.tessera.slice_status()["plan"], total, (y == 1).all().item(), (x @ wide).mean().item())
""")
    assert out.splitlines() == ["batch", "layers 78.0 True 1.0"]


@pytest.mark.alone
@measured
def test_each_program_begins_with_what_is_known_of_it(short):
    work = """
import torch
print(torch.tessera.slice_status()["plan"], torch.tessera.slice_status()["expected_speed_up"])
wide = torch.eye(256).to("tessera"); x = torch.ones(4096, 256).to("tessera")
for _ in range(300): y = x @ wide
torch.tessera.synchronize()
print(torch.tessera.slice_status()["plan"])
"""
    with groups.Group(short, EQUAL, split="auto") as running:
        for _ in range(2):
            assert running.run(work).splitlines() == ["layers 1.0", "batch"]


def test_sums_of_every_type_and_size(batch):
    """Of small whole numbers, which no backend adds up; of halves, as exact as one device; and of more than travels at once."""
    out = batch.run("""
import torch
rows = torch.eye(64).to("tessera") @ torch.ones(64, 8).to("tessera")
for kind in (torch.int16, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64):
    print(rows.to(kind).sum(0, dtype=kind).tolist() == [64] * 8)
one = torch.ones(64, 3000).to("tessera")
x = one @ torch.eye(3000).to("tessera")
large = x.t() @ x                              # 34 MiB
print((large == 64).all().item())
""")
    assert out.split() == ["True"] * 7


@pytest.mark.parametrize("where", ["unix:{}/group.sock", "tcp:127.0.0.1:{}"])
def test_a_card_on_one_host_listens_to_that_host_only(short, where):
    address = where.format(short if "unix" in where else groups.free_port())
    with groups.Group(short, EQUAL, split="batch", address=address) as running:
        open_to_all = {"0" * 8, "0" * 32}
        for process in (running.process, running.others[0].process):
            own = {os.readlink(link) for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
            for table in ("tcp", "tcp6"):
                for line in pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                        assert fields[1].split(":")[0] not in open_to_all, line
                        assert "tcp" in address or fields[1].startswith("0100007F:"), line
        assert running.run("import torch; x = torch.ones(8, 4, device='tessera'); print((x @ x.t()).sum().item())") == "256.0"


def test_a_frozen_slice_ends_the_card_and_is_named(short):
    with open(f"{short}/errors", "w+") as errors, groups.Group(short, EQUAL, "--silence", 2, split="batch", errors=errors) as running:
        program = running.start("""
import torch
x = torch.ones(8, 4, device="tessera"); (x @ x.t()).sum().item()
print("ready", flush=True); input()
try: (x @ x.t()).sum().item()
except RuntimeError as error: print("told")
except ConnectionError as error: print("told")
""")
        assert program.stdout.readline() == "ready\n"
        os.kill(running.others[0].process.pid, signal.SIGSTOP)
        out, err = program.communicate("\n", timeout=120)
        assert out == "told\n", err
        assert running.process.wait(timeout=120) != 0
        errors.seek(0)
        assert "slice 1 of 2 has not been heard of for 2 s" in errors.read()


@pytest.mark.alone
@measured
def test_a_slice_that_is_only_busy_is_waited_for(short):
    with groups.Group(short, EQUAL, "--silence", 1, split="layers") as running:
        assert running.run("""
import time, torch
x = torch.randn(1024, 1024).to("tessera")
until = time.monotonic() + 3
while time.monotonic() < until: (x @ x).sum().item()
print("lives")
""") == "lives"


@contextlib.contextmanager
def first_of(count, short):
    """A first server that waits for the others, and how one comes to it and starts another."""
    token, address = secrets.token_hex(16), f"unix:{short}/group.sock"
    environment = {**os.environ, "TESSERA_TOKEN": token, "TESSERA_EPOCH": "7", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = ("--of", str(count), "--group", address, "--rank")
    command = [sys.executable, "-m", "tessera.slice", *words, "0", "--memory", "64MiB", "--listen", f"unix:{short}/first"]
    first = ready.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def come():
        return _native.Connection.connect(address, torch.__version__, token, 7)

    def another(rank):
        return serving.Server(short, *words, rank, listen="", memory="64MiB", token=token, environment=environment)

    try:
        assert "waiting for" in first.stderr.readline()
        yield first, come, another
    finally:
        first.kill()
        first.communicate()


def test_one_that_comes_and_says_nothing_keeps_nobody_out(short):
    with first_of(2, short) as (first, come, another):
        silent = come()
        with another(1):
            assert first.stdout.readline().startswith("listening ")
        silent.close()


def test_one_that_ends_before_all_are_there_is_named_at_once(short):
    with first_of(3, short) as (first, come, _):
        for said in ({"rank": 2, "of": 3, "device": "cpu", "memory_bytes": 1 << 20, "rate": 1e9, "identity": ""}, {"beats": 2}):
            connection = come()
            connection.send(json.dumps(said).encode())
            connection.close()
        assert first.wait(timeout=120) != 0
        assert "slice 2 of 3 has ended" in first.stderr.read()


@pytest.mark.alone
def test_what_a_processor_can_do_is_measured_by_its_own_time(monkeypatch):
    """Not by the clock on the wall: a control group that holds the slice to its part is in that part already."""

    def no_clock():
        raise AssertionError("neighbours would count")

    monkeypatch.setattr(group.time, "perf_counter", no_clock)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert group.measure(torch.device("cpu"), 0.5) > 0
    finally:
        torch.set_num_threads(before)
