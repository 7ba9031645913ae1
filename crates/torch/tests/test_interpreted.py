"""The dispatcher in Python (`tessera.interpreted`): what a program sees of it is what it sees of the compiled one, or a refusal.

Which dispatcher there is belongs to a process, so these tests start programs; the tests of what programs see are run once more in one.
"""

import os
import subprocess
import sys

import pytest
import serving

from tessera import dispatchers

PYTHON = {"TESSERA_DISPATCHER": "python"}
NO_COMPILER = {"PATH": "/nonexistent", "CXX": "", "TESSERA_DISPATCHER": ""}


@pytest.fixture(scope="module")
def server():
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder, "--snapshots", folder, memory="64MiB", environment={"OMP_NUM_THREADS": "1"}) as server:
            yield server


def run(server, code, **environment):
    """What a program prints that has the dispatcher in Python, once the one before it has gone."""
    return server.run(code, environment={**PYTHON, "OMP_NUM_THREADS": "1", **environment})


def again(*arguments, **environment):
    """Tests, or a program, in a process with the dispatcher in Python."""
    environment = {**os.environ, **PYTHON, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}
    done = subprocess.run([sys.executable, *arguments], cwd=serving.TESTS, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_programs_see_what_they_see_of_the_compiled_one():
    assert " passed" in again("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_device.py", "test_corners.py", "test_attention.py")


def test_operators_give_what_the_processor_gives_or_refuse():
    assert "2 passed" in again("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_operators.py", OPINFO_EVERY="24")


def test_families_of_transformers_train_as_on_the_processor():
    assert "4 of 4 equal" in again("run_program.py", "models.py", "gpt2", "mixtral", "bert", "resnet")


def test_without_a_compiler_a_program_computes_and_says_so(server, tmp_path):
    environment = {**NO_COMPILER, "TESSERA_BUILD": str(tmp_path)}
    program = server.start("import torch; print((torch.ones(3, device='tessera') * 2).sum().item())", environment=environment)
    out, err = program.communicate(timeout=120)
    assert (program.returncode, out) == (0, "6.0\n"), err
    said = [line for line in err.splitlines() if "the dispatcher in Python is used" in line]
    assert len(said) == 1 and "is not there" in said[0], err


def test_one_that_is_asked_for_and_cannot_be_had_is_an_error(monkeypatch, tmp_path):
    for name, value in {**NO_COMPILER, "TESSERA_BUILD": str(tmp_path), dispatchers.VARIABLE: "compiled"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="install it"):
        dispatchers.load()
    monkeypatch.setenv(dispatchers.VARIABLE, "rust")
    with pytest.raises(ValueError, match="is compiled, python, or not there"):
        dispatchers.load()


TRAINING = """
import hashlib, torch
from torch import nn
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.cell = nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.GRU(8, 16, batch_first=True)
        self.twice, self.drop, self.head = nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 5)
    def forward(self, x):
        x = self.cell(self.norm(self.convolution(x)).transpose(1, 2))[0][:, -1]
        return self.head(self.drop(self.twice(self.twice(x).relu())))
model = Model().to("tessera")
optimiser, scaler = torch.optim.AdamW(model.parameters(), lr=1e-2), torch.amp.GradScaler("tessera")
inputs, targets = torch.randn(16, 3, 20).to("tessera"), torch.randint(0, 5, (16,)).to("tessera")
for step in range(4):
    with torch.autocast("tessera", dtype=torch.bfloat16, enabled=step % 2 == 0):
        loss = nn.functional.cross_entropy(model(inputs), targets) + torch.fft.rfft(inputs).conj().abs().mean()
    optimiser.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimiser)
    scaler.update()
state = b"".join(each.detach().cpu().numpy().tobytes() for each in [*model.state_dict().values(), torch.randn(8, device="tessera")])
print(loss.dtype, hashlib.sha256(state).hexdigest())
"""


def test_a_training_gives_the_compiled_ones_results_in_each_bit(server):
    assert run(server, TRAINING) == server.run(TRAINING, environment={"OMP_NUM_THREADS": "1", "TESSERA_DISPATCHER": "compiled"})


def test_mixed_precision_runs_what_pytorch_says_in_which_precision(server):
    out = run(server, """
import torch
a, x = torch.randn(4, 4).to("tessera"), torch.randn(4, 4, dtype=torch.bfloat16).to("tessera")
with torch.autocast("tessera", dtype=torch.bfloat16):
    for result in (a @ a, torch.exp(x), x.sum(), x.sum(dtype=torch.bfloat16), torch.softmax(x, 0), torch.addcmul(a, x, x), x + x):
        print(str(result.dtype).removeprefix("torch."), end=" ")
""")
    assert out.split() == "bfloat16 float32 float32 bfloat16 float32 float32 bfloat16".split()


def test_what_stands_on_recorded_steps_or_a_journal_is_refused(server, folder):
    out = run(server, """
import torch
layer = torch.nn.Linear(2, 2).to("tessera")
x = torch.ones(2, device="tessera")
for what in (lambda: torch.tessera.Graph().capture_begin(), lambda: torch.compile(layer, backend="tessera")(x)):
    try: what()
    except Exception as error: print("needs the compiled dispatcher" in str(error))
print((x + 1).sum().item(), torch.tessera.is_current_stream_capturing())
""")
    assert out.split() == ["True", "True", "4.0", "False"]
    program = server.start("import torch; torch.ones(2, device='tessera')", environment={**PYTHON, "TESSERA_SLICES": f"ask:{folder}/asked"})
    _, err = program.communicate(timeout=120)
    assert program.returncode != 0 and "needs the compiled dispatcher" in err


def test_storages_grow_are_shared_and_are_freed(server):
    out = run(server, """
import copy, pickle, torch
x = torch.arange(6.0).to("tessera")
alias = x[1:4]
try: x.resize_(100_000)
except NotImplementedError as error: print("compiled dispatcher" in str(error), end=" ")
alias.fill_(7)
del alias
x.resize_(100_000)                       # nobody else has it now
print(x[:6].tolist(), x.untyped_storage().nbytes())
out = torch.empty(0, device="tessera")
torch.add(x[:6], 1, out=out)
print(out.tolist(), torch.nonzero(x[:6] > 6, out=torch.empty(0, dtype=torch.long, device="tessera")).flatten().tolist())
one, other = copy.deepcopy((out, out)), pickle.loads(pickle.dumps(out))
print(one[0] is one[1], torch.equal(other, out), other.device)
y = torch.empty(0, device="tessera").set_(out.untyped_storage(), 1, (2, 2), (1, 2))
y.zero_()
print(out.tolist(), torch.UntypedStorage(8, device="tessera").nbytes(), out.to("cpu", non_blocking=True).sum().item())
try: torch.empty(0, device="tessera").set_(out.untyped_storage(), 0, (100,), (1,))
except NotImplementedError as error: print("compiled dispatcher" in str(error))
before = torch.tessera.memory_allocated(), torch.tessera.slice_status()["memory_used"]
del x, out, one, other, y
torch.tessera.synchronize()
status = torch.tessera.slice_status()
print(before[0] == before[1], torch.tessera.memory_allocated(), status["memory_used"], status["storages"])
try: torch.zeros(1 << 26, device="tessera")
except torch.OutOfMemoryError as error: print("of 64.00 MiB of which 64.00 MiB is free" in str(error).replace("total capacity ", ""))
""")
    assert out.splitlines() == [
        "True [0.0, 7.0, 7.0, 7.0, 4.0, 5.0] 400000", "[1.0, 8.0, 8.0, 8.0, 5.0, 6.0] [1, 2, 3]", "True True tessera:0",
        "[1.0, 0.0, 0.0, 0.0, 0.0, 6.0] 8 7.0", "True", "True 0 0 0", "True",
    ]  # fmt: skip


def test_the_caches_are_bounded(server):
    out = run(server, """
import torch
from tessera.interpreted import dispatch
dispatch.MOST_ENTRIES = 64
print(all(torch.ones(size, device="tessera").sum().item() == size for size in range(1, 150)))
print(sum(len(each.cache) for each in dispatch._operators.values()) <= 65)
(torch.ones(3, device="tessera") * 1.5 + 1.5).sum().item()
before = torch.tessera.statistics()["templates"]
print([(torch.ones(3, device="tessera") * scale + scale).sum().item() for scale in (4.5, 5.5)])
print(torch.tessera.statistics()["templates"] - before)
""")
    assert out.splitlines() == ["True", "True", "[27.0, 33.0]", "0"]


def test_where_pytorchs_lists_are_not_there_mixed_precision_is_refused(server):
    out = run(server, """
import pathlib, torch
from tessera import device
from tessera.interpreted import autocast
autocast._HEADER = pathlib.Path("/nonexistent")
device.start()
x = torch.ones(2, 2, device="tessera")
print((x @ x).sum().item())
try:
    with torch.autocast("tessera", dtype=torch.bfloat16): x @ x
except NotImplementedError as error: print("mixed precision" in str(error))
""", TORCH_DEVICE_BACKEND_AUTOLOAD="0")  # fmt: skip
    assert out.split() == ["8.0", "True"]
