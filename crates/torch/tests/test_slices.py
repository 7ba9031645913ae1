"""Slice servers: memory, shares, snapshots, and what happens when one of the two sides dies or lies."""

import os
import pathlib
import signal
import socket
import struct
import sys

import pytest
import ready
import serving
import torch
from measured import measured
from safetensors import safe_open

from tessera import _native

TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.LayerNorm(64), nn.Linear(64, 5)).to("tessera")
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs, targets = torch.randn(32, 20).to("tessera"), torch.randint(0, 5, (32,)).to("tessera")
def step():
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimiser.zero_grad(); loss.backward(); optimiser.step()
    return loss
for _ in range(5): step()
view = model[0].weight.view(-1)
if len(sys.argv) > 1:
    torch.tessera.snapshot("half.safetensors")
    print("saved", flush=True)
    address, token, epoch = input().split()
    torch.tessera.reconnect(address, token, int(epoch))
for _ in range(5): loss = step()
print(repr(loss.item()), repr(view.sum().item()), torch.randn(1, device="tessera").item())
"""


def raw(server):
    """A connection that knows the token, to say whatever one likes."""
    return _native.Connection.connect(server.address, torch.__version__, server.token, server.epoch, serving.STRANGER)


def test_memory_over_the_slices_is_pytorchs_own_error_where_it_is_asked_for(folder):
    with serving.Server(folder, memory="8MiB") as server:
        out = server.run("""
import torch
kept = torch.zeros(1 << 20, device="tessera")
try: torch.zeros(1 << 21, device="tessera")
except torch.OutOfMemoryError as error: print(error)
print(torch.tessera.memory_allocated(), torch.tessera.mem_get_info(), kept.sum().item())
del kept
print(torch.zeros(1 << 20, device="tessera").sum().item(), torch.tessera.slice_status()["memory_peak"] <= 8 << 20)
""")  # fmt: skip
    lines = out.splitlines()
    assert "Tried to allocate 8.00 MiB" in lines[0] and "total capacity of 8.00 MiB of which 4.00 MiB is free" in lines[0]
    assert lines[1] == "4194304 (4194304, 8388608) 0.0"
    assert lines[2] == "0.0 True"


def test_the_server_itself_keeps_to_its_memory(folder):
    with serving.Server(folder, memory="1MiB") as server:
        connection = raw(server)
        connection.send(struct.pack("<BQQ", 5, 1, 1 << 30) + b"\x08")
        assert connection.receive()[0] == 2  # out of memory
        connection.send(b"\x0e")
        assert struct.unpack("<5Q", connection.receive()[9:])[0] == 0


def test_a_server_counts_for_its_agent_what_it_does(folder):
    with serving.Server(folder, "--share", 0.5, environment={"TESSERA_WORKER_DIR": str(folder)}) as server:
        program = server.start("""
import sys, torch
kept = torch.ones(1 << 20, device="tessera")
for _ in range(100): kept = kept + 1
print(kept.sum().item(), flush=True)
sys.stdin.read()
""")  # fmt: skip
        assert program.stdout.readline().strip() == str(float(101 << 20))
        counts = server.executed(100, folder)
        program.communicate("")
    assert counts["share"] == 0.5 and counts["memory_used"] >= 4 << 20
    assert 0 < counts["device_seconds"] < 30 and counts["gate_seconds"] >= 0
    assert counts["bytes"] > 100


def test_going_on_from_a_snapshot_gives_the_undisturbed_run(folder):
    with serving.Server(folder) as server:
        undisturbed = server.run(TRAINING)
    with serving.Server(folder, "--snapshots", folder) as first:
        program = first.start(TRAINING, "move")
        assert program.stdout.readline() == "saved\n"
        os.kill(first.process.pid, signal.SIGKILL)
        with safe_open(f"{folder}/half.safetensors", "pt") as file:
            assert file.metadata()["format"] == "1" and "random" in file.keys()
        with serving.Server(folder, "--restore", f"{folder}/half.safetensors", epoch=8) as second:
            out, err = program.communicate(f"{second.address} {second.token} 8\n", timeout=120)
    assert program.returncode == 0, err
    assert out.strip() == undisturbed


def test_a_device_of_another_kind_goes_on_with_random_numbers_of_its_own(folder):
    program = "import torch\ntorch.manual_seed(5)\nprint(torch.randn(3, device='tessera').tolist()); torch.tessera.snapshot('half')"
    with serving.Server(folder, "--snapshots", folder) as server:
        drawn = server.run(program)
    half = pathlib.Path(folder, "half")
    saved = half.read_bytes()
    assert b'"device":"cpu"' in saved.replace(b": ", b":")
    half.write_bytes(saved.replace(b'"cpu"', b'"xpu"', 1))
    following = []
    for epoch in (8, 9):
        with serving.Server(folder, "--restore", half, epoch=epoch) as server:
            connection = raw(server)
            connection.send(b"\x0b")
            following.append(connection.receive()[9:])
    with serving.Server(folder) as server:
        connection = raw(server)
        connection.send(b"\x0b")
        fresh = connection.receive()[9:]
    assert drawn and following[0] == following[1] != fresh


def test_what_was_issued_after_a_snapshot_is_not_silently_lost(folder):
    with serving.Server(folder, "--snapshots", folder) as first:
        program = first.start("""
import torch
x = torch.zeros(4, device="tessera")
torch.tessera.snapshot("early")
(x + 1).sum().item()
print("saved", flush=True)
address, token, epoch = input().split()
torch.tessera.reconnect(address, token, int(epoch))
""")
        assert program.stdout.readline() == "saved\n"
        with serving.Server(folder, "--restore", f"{folder}/early") as second:
            _, err = program.communicate(f"{second.address} {second.token} 7\n", timeout=120)
    assert program.returncode != 0
    assert "cannot be gone on from" in err


def test_a_snapshot_cannot_be_written_elsewhere(folder):
    with serving.Server(folder, "--snapshots", folder) as server:
        out = server.run("""
import torch
for name in ("../outside", "/tmp/outside", "", ".hidden"):
    try: torch.tessera.snapshot(name)
    except RuntimeError as error: print("no name for a snapshot" in str(error))
""")
    assert out.split() == ["True"] * 4


def test_a_killed_server_is_one_clear_error_and_then_the_same(folder):
    with serving.Server(folder) as server:
        program = server.start("""
import torch
x = torch.ones(4, device="tessera"); x.sum().item()
print("ready", flush=True); input()
for _ in range(2):
    try:
        for _ in range(100): x = x + 1
        x.sum().item()
    except RuntimeError as error: print(error)
""")
        assert program.stdout.readline() == "ready\n"
        server.stop()
        out, err = program.communicate("\n", timeout=120)
    assert program.returncode == 0, err
    lines = out.splitlines()
    assert len(lines) == 2 and all("slice server" in line and "lost" in line for line in lines), out


@pytest.mark.alone
@measured
def test_two_tenants_get_their_shares(folder):
    """Device time by the servers' own clocks, over the same few seconds; a quarter and a half, both always busy."""
    busy = """
import sys, time, torch
x = torch.randn(256, 256).to("tessera")
x = x @ x / 256; torch.tessera.synchronize()
print("ready", flush=True); input()
end, steps = time.monotonic() + 4, 0
while time.monotonic() < end:
    for _ in range(5): x = (x @ x) / 256
    torch.tessera.synchronize(); steps += 5
print(steps)
"""
    one_thread = {"OMP_NUM_THREADS": "1"}
    steps = {}
    with serving.Server(folder, "--share", 0.15, environment=one_thread) as small:
        with serving.Server(folder, "--share", 0.45, environment=one_thread) as large:
            programs = {0.15: small.start(busy), 0.45: large.start(busy)}
            for program in programs.values():
                assert program.stdout.readline() == "ready\n"
            for program in programs.values():
                program.stdin.write("\n")
                program.stdin.flush()
            for part, program in programs.items():
                out, err = program.communicate(timeout=120)
                assert program.returncode == 0, err
                steps[part] = int(out)
    # The ratio, which does not depend on how busy this machine is otherwise as long as a third of it is left.
    assert 2 < steps[0.45] / steps[0.15] < 4.5, steps


def test_tcp_computes_the_same(folder):
    with serving.Server(folder, listen="tcp:127.0.0.1:0") as server:
        out = server.run("""
import torch
x = torch.arange(1 << 20, dtype=torch.float32)
y = x.to("tessera")
print(torch.equal(y.cpu(), x), (y[:100] * 2).sum().item())
""")
    assert out == "True 9900.0"


@pytest.mark.parametrize("change, reason", [
    (dict(token="0" * 32), "the token is not the one of this allocation"),
    (dict(epoch=6), "the slice is granted in epoch 7, the program comes from epoch 6"),
    (dict(torch="1.13.0"), "PyTorch .* the program PyTorch 1.13.0"),
])  # fmt: skip
def test_strangers_are_refused_by_name(folder, change, reason):
    with serving.Server(folder) as server:
        known = dict(torch=torch.__version__, token=server.token, epoch=server.epoch) | change
        with pytest.raises(ConnectionError, match=reason):
            _native.Connection.connect(server.address, known["torch"], known["token"], known["epoch"], serving.STRANGER)
        assert server.run("import torch; print(torch.ones(2, device='tessera').sum().item())") == "2.0"


def test_a_second_program_is_refused_while_the_first_is_there(folder):
    with serving.Server(folder) as server:
        first = raw(server)
        with pytest.raises(ConnectionError, match="has a program already"):
            raw(server)
        first.send(b"\x08")
        assert first.receive()[0] == 0


def layout(sizes, strides, offset=0, type=6):
    count = len(sizes)
    return struct.pack(f"<BBB{count}q{count}qq", type, 0, count, *sizes, *strides, offset)


def text(value):
    return struct.pack("<I", len(value)) + value


def define(name, key, overload=b"", results=b"\0\0\0\0"):
    return struct.pack("<BI", 1, 1) + text(name) + text(overload) + text(key) + b"\0" + results


HOSTILE = {
    "noise": bytes(range(256)) * 64,
    "a command cut short": b"\x05\x01",
    "a storage beyond memory": struct.pack("<BQQ", 5, 1, 1 << 62),
    "a read outside of a storage": struct.pack("<BQQBQ", 5, 1, 64, 7, 1) + layout([1 << 40], [1]),
    "sizes that overflow": struct.pack("<BQQBQ", 5, 1, 64, 7, 1) + layout([1 << 40, 1 << 40], [1 << 40, 1]),
    "a negative stride": struct.pack("<BQQBQ", 5, 1, 64, 7, 1) + layout([4], [-1], 3),
    "a negative offset": struct.pack("<BQQBQ", 5, 1, 64, 7, 1) + layout([1], [1], -100),
    "a type that is none": struct.pack("<BQQBQ", 5, 1, 64, 7, 1) + layout([1], [1], 0, 250),
    "more dimensions than there are": struct.pack("<BQBBB", 7, 1, 6, 0, 255) + b"\0" * 4096,
    "an unknown operator": define(b"aten::no_such", b""),
    "an operator that reads files": define(b"aten::from_file", b"s" + text(b"/etc/passwd") + b"NiNNNN"),
    "arguments of other kinds": define(b"aten::add", b"iii", b"Tensor"),
    "too few arguments": define(b"aten::add", b"", b"Tensor"),
    "a list without end": define(b"aten::cat", b"M\xff\xff\xff\xff"),
    "an operation without a template": struct.pack("<BIIII", 2, 99, 0, 0, 0),
    "an operation with endless slots": struct.pack("<BIIII", 2, 1, 0xFFFFFFFF, 0, 0),
    "a random state that is none": struct.pack("<BI", 12, 3) + b"abc",
    "the same storage twice": struct.pack("<BQQBQQ", 5, 1, 64, 5, 1, 64),
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder, memory="64MiB") as server:
            yield server


@pytest.mark.parametrize("attack", HOSTILE, ids=str)
def test_a_hostile_program_ends_nothing_but_itself(attacked, attack):
    # The program before is still being told good-bye.
    for _ in range(200):
        try:
            connection = raw(attacked)
            break
        except ConnectionError as error:
            if "already" not in str(error):
                raise
    connection.send(HOSTILE[attack] + b"\x08")
    try:
        reply = connection.receive()
    except ConnectionError:
        reply = None
    # Told that it is wrong, or shown the door; never answered as if all were well.
    assert reply is None or reply[0] != 0
    connection.close()
    assert attacked.lives()


def test_frames_that_are_announced_too_large_and_silent_strangers(folder):
    with serving.Server(folder) as server:
        path = server.address.removeprefix("unix:")
        silent = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        for stranger in silent:
            stranger.connect(path)
        with socket.socket(socket.AF_UNIX) as liar:
            liar.connect(path)
            liar.sendall(struct.pack("<I", 0xFFFFFFFF))
        assert server.run("import torch; print(torch.ones(2, device='tessera').sum().item())") == "2.0"
        assert server.lives()


def test_a_server_without_credentials_does_not_start(folder):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TESSERA_TOKEN")}
    command = [sys.executable, "-m", "tessera.slice", "--listen", f"unix:{folder}/s", "--memory", "1GiB"]
    ended = ready.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "TESSERA_TOKEN" in ended.stderr


def test_a_forked_process_is_told_to_be_spawned(folder):
    with serving.Server(folder) as server:
        out = server.run("""
import os, torch
x = torch.ones(2, device="tessera")
if (child := os.fork()) == 0:
    try: x + 1
    except RuntimeError as error: print("spawn" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(x.sum().item())
""")
    assert out.split() == ["True", "2.0"]


def test_what_only_loads_pytorch_takes_no_slice(folder):
    """A launcher such as torchrun has PyTorch too, and so has the process that it starts."""
    (pathlib.Path(folder) / "train.py").write_text(
        "import os, torch\nprint('rank', os.environ['RANK'], torch.ones(4, device='tessera').sum().item(), flush=True)\n"
    )
    with serving.Server(folder) as server:
        out = server.run("""
import subprocess, sys, torch
assert torch.tessera.is_available() and not torch.tessera.is_initialized()
print(subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", sys.argv[1]],
                     check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
print(torch.tessera.is_initialized(), (torch.ones(3, device="tessera") * 2).sum().item(), torch.tessera.is_initialized())
""", f"{folder}/train.py")  # fmt: skip
    assert out.splitlines() == ["rank 0 4.0", "False 6.0 True"]


def test_workers_of_a_data_loader_are_started_anew_beside_training(folder):
    program = pathlib.Path(folder) / "loads.py"
    program.write_text("""
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    layer = torch.nn.Linear(3, 1).to("tessera")
    loader = DataLoader(TensorDataset(torch.arange(24.0).view(8, 3)), batch_size=2, num_workers=2, multiprocessing_context="spawn")
    total = 0.0
    for (batch,) in loader:
        batch = batch.to("tessera")
        layer(batch).sum().backward()
        total += batch.sum().item()
    print(total, layer.weight.grad.isfinite().all().item())
""")
    with serving.Server(folder) as server:
        done = ready.run([sys.executable, program], env=server.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["276.0", "True"]


def test_a_seed_before_the_first_use_has_its_effect(folder):
    with serving.Server(folder) as server:
        out = server.run("""
import torch
torch.manual_seed(5); torch.manual_seed(6)
print(torch.tessera.is_initialized())
first = torch.randn(4, device="tessera").tolist()
torch.manual_seed(6)
print(first == torch.randn(4, device="tessera").tolist())
""")
    assert out.split() == ["False", "True"]


def test_a_process_that_was_forked_before_the_first_use_has_the_card(folder):
    with serving.Server(folder) as server:
        out = server.run("""
import os, sys, torch
if (child := os.fork()) == 0:
    print(torch.ones(2, device="tessera").sum().item(), flush=True)
    sys.exit()
print(os.waitpid(child, 0)[1], flush=True)
for _ in range(1000):  # the server says good-bye to the child
    try: x = torch.ones(3, device="tessera"); break
    except ConnectionError as error: assert "has a program already" in str(error)
if (child := os.fork()) == 0:
    sys.exit()  # ends in order, and leaves the connection of its parent alone
print(os.waitpid(child, 0)[1], x.sum().item())
""")
    assert out.split() == ["2.0", "0", "0", "3.0"]


def test_a_connection_that_fails_is_told_where_it_is_needed_and_tried_again(folder):
    with serving.Server(folder) as server:
        taken = raw(server)
        program = server.start("""
import torch
for what in (lambda: torch.ones(2, device="tessera"), lambda: torch.nn.Linear(2, 2).to("tessera"), torch.tessera.get_device_properties):
    try: what()
    except ConnectionError as error: print("has a program already" in str(error))
print(torch.tessera.is_available(), flush=True); input()
for _ in range(1000):
    try: print(torch.ones(2, device="tessera").sum().item()); break
    except ConnectionError: pass
""")
        assert [program.stdout.readline() for _ in range(4)] == ["True\n"] * 4
        taken.close()
        out, err = program.communicate("\n", timeout=120)
    assert program.returncode == 0, err
    assert out == "2.0\n"


def test_the_second_program_of_a_server_is_told_its_own_lines(folder):
    with serving.Server(folder) as server:
        server.run("import torch; print((torch.ones(3, device='tessera') + 1).sum().item())")
        out = server.run("""
import torch
table, at = torch.zeros(5, device="tessera"), torch.tensor([77], device="tessera")
wrong = table.index_select(0, at)
try: wrong.cpu()
except IndexError as error: print("<string>:4" in str(error))
""")
    assert out == "True"
