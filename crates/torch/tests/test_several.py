"""Several slices as one card: results of one device, whatever the plan; memory of all; one error when a part of it goes."""

import json
import os
import random
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

from tessera import _native, plan

MODELS = "import runpy, sys; sys.argv = ['split.py', *sys.argv[1:]]; runpy.run_path('split.py', run_name='__main__')"

# Unequal in memory and in time.
SLICES = {2: [("1GiB", "--share", 0.9), ("600MiB", "--share", 0.45)],
          3: [("500MiB", "--share", 0.4), ("1GiB", "--share", 0.9), ("300MiB", "--share", 0.3)]}  # fmt: skip


@pytest.fixture(scope="module")
def short():
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        yield folder


@pytest.fixture(scope="module", params=["layers", "batch"])
def group(request, short):
    with groups.Group(short, SLICES[2], split=request.param) as running:
        yield running


def check_training(group, *models):
    for name, seen in json.loads(group.run(MODELS, *models)).items():
        here, there = seen["losses"]
        assert there == pytest.approx(here, abs=2e-5), name
        assert seen["apart"] < 5e-5, (name, seen)
        yield name, seen["done"]


def test_training_gives_what_one_device_gives(group):
    for name, done in check_training(group, "mlp", "cnn", "transformer", "encoder"):
        # Four steps, of which each has its products of matrices and what lies between them.
        assert done["by_rows"] > 50 if group.split == "batch" else done["by_rows"] == 0, (name, done)
        # What has no rule here: batch norm, and the inside of PyTorch's own attention. All else that runs whole is optimisers.
        assert group.split != "batch" or name in ("cnn", "encoder") or done["moved_bytes"] < 250_000, (name, done)


def test_three_unequal_slices_give_what_one_device_gives(short):
    with groups.Group(short, SLICES[3], split="batch") as running:
        assert all(done["by_rows"] > 50 for _, done in check_training(running, "mlp", "transformer"))


HOSTS = """
import subprocess, sys, tempfile, groups
for words in ("link set lo up", "address add 10.9.0.1/32 dev lo"):
    subprocess.run(["ip", *words.split()], check=True)
# One that comes from the first server's own host, at an address at which others do not reach it, and one that does not.
slices = [("256MiB", "--group", at) for at in (sys.argv[1], "tcp:127.0.0.1:4100", "tcp:10.9.0.1:4100")]
with tempfile.TemporaryDirectory(prefix="tessera-") as folder, groups.Group(folder, slices) as running:
    print(running.run("import torch; print(torch.ones(4, 4, device='tessera').sum().item(), len(torch.tessera.slice_status()['slices']))"))
"""


@pytest.mark.parametrize("everywhere", ["tcp:0.0.0.0:4100", "tcp:[::]:4100"])
def test_servers_find_each_other_from_whichever_host_they_come(everywhere):
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", HOSTS, everywhere], cwd=serving.TESTS, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "16.0 3\n", done.stderr


def test_operators_without_a_rule_give_what_one_device_gives(group):
    out = group.run("""
import torch
import opinfo
checked, wrong = 0, []
for at, op in enumerate(opinfo.operators(torch.float32)):
    if at % 40 == 5 and opinfo.name_of(op) not in ("sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse", "tensor_split"):
        result, why = opinfo.check(op, torch.float32)
        checked += result == "pass"
        if result in ("fail", "unsupported"): wrong.append(f"{opinfo.name_of(op)}: {why[:300]}")
print(checked, wrong)
""")
    assert out.endswith(" []"), out
    assert int(out.split()[0]) > 10


def test_operators_give_what_one_device_gives_on_rows_that_are_divided(short):
    with groups.Group(short, SLICES[2], split="batch") as running:
        out = running.run("""
import torch
import opinfo
along = "all any amax amin argmax argmin cat cumprod cumsum linalg.vector_norm logsumexp max.reduction_with_dim mean min.reduction_with_dim \
    prod sort std sum topk tril triu var".split()
opinfo.SAMPLES = 2
checked, wrong, before = 0, [], torch.tessera.slice_status()["done"]["by_rows"]
for op in opinfo.operators(torch.float32):
    name = opinfo.name_of(op)
    if name in along or name.startswith("nn.functional."):
        result, why = opinfo.check(op, torch.float32, opinfo.copied_divided)
        checked += result == "pass"
        if result in ("fail", "unsupported"): wrong.append(f"{name}: {why[:300]}")
print(checked, torch.tessera.slice_status()["done"]["by_rows"] - before, wrong)
""")
    checked, by_rows, wrong = out.split("\n")[-1].split(maxsplit=2)
    assert wrong == "[]"
    assert int(checked) > 120 and int(by_rows) > 1500


def test_views_writes_and_values_are_those_of_one_device(group):
    out = group.run("""
import torch
torch.manual_seed(0)
def work(device):
    torch.manual_seed(5)
    x, w = torch.randn(12, 6).to(device), torch.randn(6, 6).to(device)
    y = x @ w                                    # divided by rows where that is the plan
    y[3:5] += 1                                  # some of the rows
    y[:, 2] = y[:, 1] * 2                        # within each row
    y.t()[0].fill_(0.5)
    z = torch.cat([y, x], 1)[::2].contiguous()   # every other row
    z = z.masked_fill(z > 1, 0.0).cumsum(0) + torch.rand(6, 1).to(device)
    picked = z[z[:, 0] > 0]                      # shapes that depend on data
    values, indices = torch.sort(y.view(4, 3, 6).sum(1), dim=0)
    return [y, z, picked, values, indices, y.mean(), y.std(0), (y @ y.t()).diagonal(), torch.tensor([y.sum().item(), y[7, 3].item()])]
for one, other in zip(work("cpu"), work("tessera"), strict=True):
    torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-5)
print("same")
""")
    assert out == "same"


def test_random_numbers_are_those_of_one_device(group):
    out = group.run("""
import torch
def draw(device):
    torch.manual_seed(11)
    x = torch.ones(9, 4, device=device) @ torch.ones(4, 4, device=device)
    drawn = [torch.nn.functional.dropout(x, 0.5), torch.randn(5, device=device), torch.randperm(8, device=device)]
    state = torch.tessera.get_rng_state() if device == "tessera" else torch.get_rng_state()
    drawn.append(torch.rand(3, device=device))
    (torch.tessera if device == "tessera" else torch).set_rng_state(state)
    assert torch.equal(torch.rand(3, device=device), drawn[-1])
    return [one.cpu() for one in drawn]
print(all(torch.equal(one, other) for one, other in zip(draw("cpu"), draw("tessera"))))
""")
    assert out == "True"


def test_a_recorded_step_is_replayed_by_all(group):
    out = group.run("""
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(8, 8).to("tessera")
x = torch.randn(16, 8).to("tessera")
optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
def step():
    loss = layer(x).pow(2).mean(); optimiser.zero_grad(set_to_none=False); loss.backward(); optimiser.step()
    return loss
step(), step()
kept = [p.detach().clone() for p in layer.parameters()]
for _ in range(3): by_hand = step().item()
with torch.no_grad():
    for p, before in zip(layer.parameters(), kept): p.copy_(before)
graph = torch.tessera.Graph()
with torch.tessera.graph(graph): loss = step()
for _ in range(3): graph.replay()
print(abs(loss.item() - by_hand) < 1e-6)
""")
    assert out == "True"


def test_a_compiled_model_trains_as_uncompiled_and_a_call_is_one_message(group):
    out = group.run("""
import torch, warnings
warnings.simplefilter("error")
def train(compiled):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)).to("tessera")
    called = torch.compile(model, backend="tessera", options={"strict": True}) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(16, 8).to("tessera")
    torch.manual_seed(1)
    for _ in range(6):
        before = torch.tessera.statistics()
        loss = called(x).pow(2).mean(); optimiser.zero_grad(); loss.backward(); optimiser.step()
        after = torch.tessera.statistics()
    # What an earlier call gave stays as it is.
    first = called(x); kept = first.cpu(); called(x)
    return loss.item(), torch.equal(first.cpu(), kept), after["replays"] - before["replays"]
(by_hand, _, none), (loss, kept, replays) = train(False), train(True)
print(abs(loss - by_hand) < 1e-5, kept, none, replays)
""")
    assert out == "True True 0 2"


def test_an_error_is_told_once_with_its_line_and_the_card_goes_on(group):
    out = group.run("""
import torch
table = torch.arange(20.0).view(10, 2).to("tessera")
rows = torch.zeros(8, dtype=torch.long); rows[7] = 99
there = rows.to("tessera")
wrong = torch.nn.functional.embedding(there, table)   # the last server's rows
later = wrong * 2
try: later.cpu()
except IndexError as error: print("index out of range" in str(error), ":6 in <module>" in str(error))
print(table.sum().item(), (table @ table.t())[1, 1].item())
try: later.sum().item()
except RuntimeError as error: print("earlier error" in str(error))
print(torch.ones(3, device="tessera").sum().item())
""")
    assert out.splitlines() == ["True True", "190.0 13.0", "True", "3.0"]


def test_a_model_that_fits_no_slice_trains_on_all_of_them(short):
    """Six layers of 1 MiB, with their gradients and what AdamW keeps and needs: 30 MiB and activations, on slices of 18, 13 and 13."""
    with groups.Group(short, [("18MiB",), ("13MiB",), ("13MiB",)], split="layers") as running:
        out = running.run("""
import torch
from torch import nn
def train(device):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(6)]).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    x = torch.randn(16, 512).to(device)
    for _ in range(3):
        loss = model(x).pow(2).mean()
        optimiser.zero_grad(); loss.backward(); optimiser.step()
    return loss.item()
here, there = train("cpu"), train("tessera")
status = torch.tessera.slice_status()
print(abs(here - there) < 1e-5 * abs(here), status["memory_limit"] >> 20, status["memory_peak"] > 24 << 20, torch.tessera.mem_get_info()[1] >> 20)
try: torch.zeros(48 << 18, device="tessera")
except torch.OutOfMemoryError as error: print("44.00 MiB" in str(error))
""")
    assert out.splitlines() == ["True 44 True 44", "True"]


def test_more_than_one_slice_holds_is_out_of_memory_at_its_line(short):
    """By batch, what is whole is on each slice; the smallest one decides."""
    with groups.Group(short, [("64MiB",), ("8MiB",)], split="batch") as running:
        out = running.run("""
import torch
kept = torch.ones(1 << 20).to("tessera")
large = torch.ones(3 << 19).to("tessera")  # line 4
try: large.sum().item()
except torch.OutOfMemoryError as error: print("slice 1 of 2" in str(error))
del large
print(kept.sum().item())
""")
    assert out.splitlines() == ["True", "1048576.0"]


@pytest.mark.parametrize("split", ["layers", "batch"])
def test_a_slice_that_dies_is_one_clear_error_and_then_the_same(short, split):
    with groups.Group(short, [("64MiB",), ("64MiB",)], split=split) as running:
        program = running.start("""
import torch
x = torch.ones(8, 4, device="tessera"); (x @ x.t()).sum().item()
print("ready", flush=True); input()
for _ in range(2):
    try:
        for _ in range(100): x = x + 1
        x.sum().item()
        print("went on")
    except RuntimeError as error: print(str(error).splitlines()[0])
""")
        assert program.stdout.readline() == "ready\n"
        os.kill(running.others[0].process.pid, signal.SIGKILL)
        running.others[0].process.wait()
        out, err = program.communicate("\n", timeout=120)
        assert program.returncode == 0, err
        lines = out.splitlines()
        assert len(lines) == 2 and all("slice" in line and "lost" in line for line in lines), out
        # The card is no card any more, and its first server says so by its end.
        assert running.process.wait(timeout=120) != 0


def test_others_end_well_when_the_first_ends_in_order_and_not_when_it_is_killed(short):
    with groups.Group(short, [("64MiB",), ("64MiB",)], "--linger", "0.5") as running:
        assert running.process.wait(timeout=120) == 0
        assert running.others[0].process.wait(timeout=120) == 0
    with groups.Group(short, [("64MiB",), ("64MiB",)]) as running:
        running.process.kill()
        assert running.others[0].process.wait(timeout=120) != 0


def test_only_servers_of_the_card_are_let_in_and_each_once(short):
    token, address = secrets.token_hex(16), f"tcp:127.0.0.1:{groups.free_port()}"
    environment = {**os.environ, "TESSERA_TOKEN": token, "TESSERA_EPOCH": "7", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = ("--of", "2", "--group", address, "--memory", "64MiB", "--rank")
    command = [sys.executable, "-m", "tessera.slice", *words]
    first = ready.Popen([*command, "0", "--listen", f"unix:{short}/first"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "waiting for 1 more" in first.stderr.readline()

        def come(follower=True, **other):
            known = {"token": token, "epoch": 7} | other
            return _native.Connection.connect(address, torch.__version__, known["token"], known["epoch"], None if follower else serving.STRANGER)

        with pytest.raises(ConnectionError, match="the token is not the one"):
            come(token="0" * 32)
        with pytest.raises(ConnectionError, match="granted in epoch 7"):
            come(epoch=6)
        with pytest.raises(ConnectionError, match="no program"):
            come(follower=False)
        server = {"rank": 1, "of": 2, "device": "cpu", "memory_bytes": 1 << 20, "rate": 1e9, "identity": ""}
        for wrong, why in (
            ({"rank": 0}, "no slice 0"), ({"rank": 2}, "no slice 2"), ({"of": 3}, "2 slices, and not 3"), ({"rate": -1.0}, "above 0"),
            ({"rate": "nan"}, "above 0"), ({"memory_bytes": 0}, "above 0"), ({"rank": None}, "did not say"),
        ):  # fmt: skip
            stranger = come()
            stranger.send(json.dumps(server | wrong).encode())
            assert why in json.loads(stranger.receive())["refused"]
        for noise in (b"\xff\x00", b"[]", b"{}"):
            stranger = come()
            stranger.send(noise)
            assert "refused" in json.loads(stranger.receive())
        with serving.Server(short, *words[:4], "--rank", 1, listen="", memory="64MiB", token=token, environment=environment):
            assert first.stdout.readline().startswith("listening ")
            with pytest.raises(ConnectionError, match="there already"):
                come()
            with pytest.raises(ConnectionError, match="takes a program here"):
                _native.Connection.connect(f"unix:{short}/first", torch.__version__, token, 7)
    finally:
        first.kill()
        first.wait()


def test_a_hostile_program_ends_nothing_but_its_connection(group):
    def raw():
        for _ in range(200):
            try:
                return _native.Connection.connect(group.address, torch.__version__, group.token, group.epoch, serving.STRANGER)
            except ConnectionError as error:
                if "already" not in str(error):
                    raise
        raise AssertionError("it is not let in")

    # What only the first server may say, noise, and a command cut short.
    for attack in (b"\x16", b"\x17", b"\x17\x08", bytes(range(1, 200)), b"\x05\x01", b"\x08\x17"):
        connection = raw()
        connection.send(attack)
        try:
            while connection.receive() is not None:
                pass
        except ConnectionError:
            pass
        connection.close()
    assert group.run("import torch; x = torch.ones(8, 4, device='tessera'); print((x @ x.t()).sum().item())") == "256.0"
    assert group.lives() and all(other.lives() for other in group.others)


@pytest.mark.alone
@measured
def test_the_plan_is_chosen_by_what_the_program_does(short):
    """Two equal slices beside each other: much work for few parameters is worth dividing, and little work for many is not."""
    code = """
import torch
from torch import nn
torch.manual_seed(0)
wide = int(__import__("sys").argv[1])
model = nn.Linear(wide, wide).to("tessera"); x = torch.randn(int(__import__("sys").argv[2]), wide).to("tessera")
optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(60):  # until there is a plan, and then a while by it
    status = torch.tessera.slice_status()
    for _ in range(20):
        loss = model(model(x)).pow(2).mean(); optimiser.zero_grad(); loss.backward(); optimiser.step()
    loss.item()
    if "until it is known" not in status["why"]:
        break
status = torch.tessera.slice_status()
print(status["plan"], status["done"]["by_rows"] > 0, status["why"])
"""
    with groups.Group(short, [("1GiB",), ("1GiB",)], split="auto") as running:
        assert running.run(code, 512, 2).startswith("layers False by batch it would be 0.")
        assert running.run(code, 512, 4096).startswith("batch True")
    with groups.Group(short, [("1GiB",), ("1GiB",)], "--slower", "refuse", split="batch") as running:
        program = running.start(code, 512, 2)
        _, err = program.communicate(timeout=120)
    assert program.returncode != 0 and "slower than the fastest of them alone, and that is refused" in err


def test_rows_are_divided_by_what_slices_take_for_them(short):
    """Each does all of the optimiser, which takes the slow one its time: it gets fewer rows than its rate alone says."""
    program = """
def train(device):
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(1024, 1024).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 1024).to(device)
    for _ in range(40):
        loss = (model(inputs) - inputs).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()
there, here = train("tessera"), train("cpu")
print(abs(there - here) / here < 1e-4, *[slice["part_of_rows"] for slice in torch.tessera.slice_status()["slices"]])
"""
    with groups.Group(short, [("1GiB", "--share", 0.8), ("1GiB", "--share", 0.2)], split="batch") as running:
        alike, fast, slow = running.run("import torch\n" + program).split()
    assert alike == "True" and float(slow) < 0.15 and abs(float(fast) + float(slow) - 1) < 1e-9


def some_slices(luck):
    return [plan.Slice(luck.randint(1 << 20, 1 << 40), 10 ** luck.uniform(6, 15)) for _ in range(luck.randint(1, 6))]


def test_laws_of_the_planner():
    luck = random.Random(4)
    for _ in range(2000):
        slices, link = some_slices(luck), plan.Link(10 ** luck.uniform(5, 11), 10 ** luck.uniform(-6, -1))
        work = plan.Work(10 ** luck.uniform(0, 15), 10 ** luck.uniform(0, 13), 10 ** luck.uniform(0, 12), luck.randint(0, 1000), luck.random() < 0.8)
        chosen = plan.choose(slices, link, work)
        ideal = sum(slice.rate for slice in slices) / max(slice.rate for slice in slices)
        # Nothing is faster than all slices together, and unasked nothing is expected to be slower than the best of them.
        assert plan.speed_up(slices, link, work) <= ideal * (1 + 1e-9)
        assert chosen.speed_up >= 1 and chosen.ideal <= ideal * (1 + 1e-9)
        assert chosen.split == "batch" or chosen.speed_up == 1
        assert work.fits or chosen.split == "layers"
        # What is exchanged faster, or asked of faster slices, is never predicted to take longer.
        better = plan.Link(link.bytes_per_second * 2, link.seconds / 2)
        assert plan.seconds_by_batch(slices, better, work) <= plan.seconds_by_batch(slices, link, work)
        faster = [plan.Slice(slice.memory_bytes, slice.rate * 2) for slice in slices]
        assert plan.seconds_by_batch(faster, link, work) <= plan.seconds_by_batch(slices, link, work)
        # What is asked for by name is done or refused, and never something else.
        for asked in ("one", "layers", "batch"):
            named = plan.choose(slices, link, work, asked, refuse_slower=True)
            assert named.split == asked
            assert named.refused == (asked == "batch" and plan.speed_up(slices, link, work) < 1)
            assert not plan.choose(slices, link, work, asked).refused
