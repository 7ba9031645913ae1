"""Snapshots of cards of several slices: whole, restored on whatever slices there are, and never believed."""

import contextlib
import fcntl
import json
import pathlib
import struct
import types

import groups
import pytest
import serving
import torch
from elsewhere import RECORDING

from tessera import checkpoints, snapshot, snapshot_file

SLICES = {2: [("700MiB", "--share", 0.9), ("400MiB", "--share", 0.5)],
          3: [("200MiB", "--share", 0.4), ("400MiB", "--share", 0.9), ("200MiB", "--share", 0.3)]}  # fmt: skip

# Trains with dropout and tied weights, and goes on with the server that it is told of, in the middle of a step: gradients are there, and
# nobody has looked at them.
TRAINING = """
import sys, torch
torch.manual_seed(5)
data = torch.randn(12, 24, 64)
first, last = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
last.weight = first.weight
model = torch.nn.Sequential(first, torch.nn.Dropout(0.2), torch.nn.ReLU(), last).to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
base = torch.zeros(64, 64, device="tessera")
rows, turned = base[8:16], base.t()
def go_on(name):
    torch.tessera.snapshot(name)
    print(name, flush=True)
    if place := sys.stdin.readline().split():
        torch.tessera.reconnect(place[0], place[1], int(place[2]))
for step in range(12):
    inputs = data[step].to("tessera")
    loss = torch.nn.functional.mse_loss(model(inputs), inputs)
    optimiser.zero_grad()
    loss.backward()
    if step in (3, 6, 9):
        go_on(f"step-{step}")
    optimiser.step()
    rows.add_(step)
    turned[0].add_(1)
assert model[0].weight is model[3].weight
print(loss.item().hex(), *(p.detach().double().cpu().sum().item().hex() for p in model.parameters()), flush=True)
print(base.sum().item(), rows.sum().item(), torch.rand(4, device="tessera").sum().item().hex(), flush=True)
"""


def numbers(printed):
    """The loss with the sums of the parameters, and what is the same on whatever slices."""
    values, exact = printed.strip().splitlines()[-2:]
    return [float.fromhex(value) for value in values.split()], exact


def on(folder, count, *options, split):
    """A card of so many slices."""
    options = ("--snapshots", folder, *options)
    return groups.Group(folder, SLICES[count], *options, split=split) if count > 1 else serving.Server(folder, *options)


@pytest.fixture(scope="module")
def undisturbed():
    with serving.Server("/tmp", "--snapshots", "/tmp", listen="tcp:127.0.0.1:0") as server:
        program = server.start(TRAINING)
        printed, errors = program.communicate("\n\n\n", timeout=120)
        assert program.returncode == 0, errors
        return numbers(printed)


@pytest.mark.parametrize("split", ["layers", "batch"])
def test_a_training_goes_on_on_fewer_and_on_more_slices(folder, undisturbed, split):
    with contextlib.ExitStack() as cards:
        program = cards.enter_context(on(folder, 3, split=split)).start(TRAINING)
        for name, slices in (("step-3", 1), ("step-6", 2), ("step-9", 3)):
            assert program.stdout.readline().strip() == name, program.stderr.read()
            cards.pop_all().close()
            next_card = cards.enter_context(on(folder, slices, "--restore", f"{folder}/{name}", split=split))
            program.stdin.write(f"{next_card.address} {next_card.token} {next_card.epoch}\n")
            program.stdin.flush()
        values, exact = numbers(serving.finish(program))
    assert exact == undisturbed[1]
    # By layers each operation runs whole on one of them.
    assert values == undisturbed[0] if split == "layers" else values == pytest.approx(undisturbed[0], rel=1e-4, abs=1e-4)


RECORDED = RECORDING + """
for number in range(8):
    graph.replay()
    if number == 3:
        torch.tessera.snapshot("half")
        print("half", flush=True)
        if place := sys.stdin.readline().split():
            torch.tessera.reconnect(place[0], place[1], int(place[2]))
print(loss.item().hex(), torch.rand(3, device="tessera").sum().item().hex(), flush=True)
"""


def test_recorded_steps_go_on_on_other_slices(folder):
    with on(folder, 2, split="layers") as first:
        whole = first.start(RECORDED).communicate("\n", timeout=120)[0].splitlines()[-1]
        program = first.start(RECORDED)
        assert program.stdout.readline().strip() == "half", program.stderr.read()
    with on(folder, 3, "--restore", f"{folder}/half", split="layers") as second:
        program.stdin.write(f"{second.address} {second.token} {second.epoch}\n")
        program.stdin.flush()
        assert serving.finish(program).strip() == whole


def test_what_the_next_card_has_no_memory_for_is_refused_by_name(folder):
    with on(folder, 2, split="layers") as first:
        first.run("import torch\nx = torch.ones(500 << 18, device='tessera')\ntorch.tessera.snapshot('large')")
    for slices in ([("64MiB",), ("64MiB",)], None):
        with pytest.raises(RuntimeError, match="large holds more than this card has memory for"), open(f"{folder}/said", "w+") as said:
            options = ("--restore", f"{folder}/large")
            try:
                groups.Group(folder, slices, *options, errors=said) if slices else serving.Server(folder, *options, memory="64MiB", errors=said)
            except RuntimeError:
                said.seek(0)
                raise RuntimeError(said.read()) from None


@pytest.mark.parametrize("options", [("--snapshots", "FOLDER"), ()], ids=["a bad name", "no folder"])
def test_a_snapshot_that_is_refused_costs_nothing(folder, options):
    """Right after a step that nobody has waited for."""
    options = [folder if option == "FOLDER" else option for option in options]
    program = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
data = torch.randn(32, 64)
model = model.to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
for step in range(3):
    optimiser.zero_grad()
    model(data.to("tessera")).square().mean().backward()
    optimiser.step()
    try: torch.tessera.snapshot("../elsewhere")
    except RuntimeError as error: print("refused", "no name" in str(error) or "no folder" in str(error))
    else: print("taken")
print(model.weight.detach().sum().item())
"""
    printed = []
    for make in (lambda: serving.Server(folder, *options), lambda: groups.Group(folder, SLICES[2], *options, split="batch")):
        with make() as card:
            printed.append(card.run(program).split("\n"))
    assert printed[0][:3] == printed[1][:3] == ["refused True"] * 3
    assert float(printed[1][3]) == pytest.approx(float(printed[0][3]), rel=1e-4, abs=1e-4)


def test_slices_in_another_order_are_another_card():
    """What was at the fastest slice would be computed on another one."""
    table = {"divided": json.dumps({"slices": 2, "split": "layers", "order": [0, 1], "where": {"5": [1, 1, 0, 3]}})}
    reading = types.SimpleNamespace(table=table, sizes={"storage.5": 12, "random": 4})
    assert snapshot._storages(reading, (2, "layers", [0, 1])) == [[5, 12, 1, 1, 0, 3]]
    for other in ((2, "layers", [1, 0]), (2, "batch", [0, 1]), (3, "layers", [0, 1, 2])):
        assert snapshot._storages(reading, other) == [[5, 12, 1, 0, 0, 3]]
    reading.table["divided"] = reading.table["divided"].replace("order", "of an older file")
    assert snapshot._storages(reading, (2, "layers", [0, 1])) == [[5, 12, 1, 0, 0, 3]]


def test_a_server_removes_what_others_have_left_half_written_and_no_more(folder):
    begun = struct.pack("<Q", 100) + b'{"__metadata__":{"format":"1"'
    left, written, foreign, finished = (pathlib.Path(folder, name) for name in (".left.part", ".written.part", ".foreign.part", "finished"))
    for path in (left, written, finished):
        path.write_bytes(begun)
    foreign.write_bytes(b"a download")
    with open(written, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with serving.Server(folder, "--snapshots", folder):
            pass
    assert [path.exists() for path in (left, written, foreign, finished)] == [False, True, True, True]


def test_a_card_of_more_tensors_than_a_file_can_name_is_not_saved_and_stays(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TESSERA_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(snapshot_file, "_LARGEST_HEADER", 16)
    monkeypatch.setattr(checkpoints.threading, "Timer", lambda *_: types.SimpleNamespace(start=lambda: None))
    executor = types.SimpleNamespace(
        quiesce=lambda: None, holdings=list, answered_bulk=None, device="cpu", sequence=1, operations=1, untold=b"", divided=(1, "one", [0])
    )
    kept = checkpoints.Checkpoints()
    kept._ask()
    assert kept.save_if_asked(executor, None) is False
    assert "not saved" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


TABLE = {"format": "1", "sequence": "7", "operations": "9", "device": "cpu", "untold": "", "owner": "null"}


def written(path, entries, data=b"", table=TABLE):
    text = json.dumps({"__metadata__": table, **entries}).encode() if isinstance(entries, dict) else entries
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(begin, end):
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}


RANDOM = {"random": entry(0, 4)}
HOSTILE = {
    "nothing": b"",
    "no JSON": b"\x80\x04c__builtin__\neval\n",
    "no end of brackets": b"[" * 100_000,
    "another kind": b"[1, 2]",
    "no random state": {"storage.1": entry(0, 4)},
    "a name of its own": {**RANDOM, "../../etc": entry(4, 4)},
    "a storage twice": {"storage.1": entry(0, 4), "random": entry(0, 4)},
    "a size below zero": {**RANDOM, "storage.1": entry(4, 0)},
    "more than there is": {**RANDOM, "storage.1": entry(4, 1 << 50)},
    "less than there is": {"random": entry(0, 2)},
    "a size that is no number": {"random": {"dtype": "U8", "shape": [4.0], "data_offsets": [0.0, 4.0]}},
    "another type": {"random": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}},
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_snapshot_is_refused_before_anything_is_made_of_it(tmp_path, entries):
    with open(written(tmp_path / "damaged", entries, b"0000"), "rb") as file, pytest.raises(snapshot_file.Damaged, match="damaged"):
        snapshot_file.Reading(file)


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = written(tmp_path / "cut", RANDOM, b"0000")
    with open(path, "rb") as file:
        assert snapshot_file.Reading(file).sizes == {"random": 4}
    whole = path.read_bytes()
    for left in range(len(whole)):
        path.write_bytes(whole[:left])
        with open(path, "rb") as file, pytest.raises(snapshot_file.Damaged):
            snapshot_file.Reading(file)


@pytest.mark.parametrize("table", [
    {"format": "9"}, {"format": 1}, {"sequence": "-1"}, {"sequence": "1e9"}, {"operations": "9" * 5000}, {"device": "a place"}, {"untold": 5},
])  # fmt: skip
def test_a_table_that_makes_no_sense_is_refused(tmp_path, table):
    with open(written(tmp_path / "damaged", RANDOM, b"0000", {**TABLE, **table}), "rb") as file, pytest.raises(snapshot_file.Damaged):
        snapshot_file.Reading(file)


@pytest.mark.parametrize("slices", [1, 2])
def test_servers_say_what_is_wrong_with_a_snapshot(folder, tmp_path, slices):
    state = torch.get_rng_state().numpy().tobytes()
    places = {"slices": 2, "split": "layers", "where": {"5": [7, 1 << 60, -3, -9]}}
    table = {**TABLE, "divided": json.dumps(places), "untold": "01ff"}
    entries = {"storage.5": entry(0, 4), "random": entry(4, 4 + len(state))}
    path = written(tmp_path / "hostile", entries, b"0000" + state, table)
    with open(tmp_path / "said", "w+") as said:
        with pytest.raises(RuntimeError):
            if slices == 1:
                serving.Server(folder, "--restore", path, errors=said)
            else:
                groups.Group(folder, SLICES[2], "--restore", path, errors=said)
        said.seek(0)
        assert f"{path} is no snapshot, or was damaged: a command is cut short" in said.read()
