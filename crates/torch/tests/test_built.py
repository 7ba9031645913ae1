"""Where programs and slice servers have the dispatcher from on a host without a compiler, and what they say where it is nowhere."""

import shutil
import subprocess
import sys

import pytest
import serving
import torch

from tessera import build, device

CODE = "import torch; print((torch.ones(3, device='tessera') * 2).sum().item())"
SENTENCE = f"Tessera's device is not compiled for PyTorch {torch.__version__}, and what compiles it is missing (no-compiler"


@pytest.fixture(scope="module")
def server():
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder) as server:
            yield server


@pytest.fixture
def package(tmp_path):
    """The package, as a wheel that holds no dispatcher installs it."""
    copy = tmp_path / "tessera"
    shutil.copytree(build.HERE, copy, ignore=shutil.ignore_patterns("prebuilt", "__pycache__"))
    return copy


def prebuild(package):
    """Puts the dispatcher of these tests into a package."""
    file = build.prebuilt(package) / build.NAME
    file.parent.mkdir(parents=True)
    shutil.copy(device._dispatcher.__file__, file)
    return file


def run(server, package, *command, kept="/nonexistent"):
    """What this Python does with that package, and without a compiler."""
    # A Python of its own: those of ready.py have the package of the tests loaded already.
    environment = {**server.environment(), "PYTHONPATH": package.parent, "PATH": "/nonexistent", "CXX": "no-compiler", "TESSERA_BUILD": kept}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120)


def test_what_a_wheel_holds_is_taken(server, package):
    prebuild(package)
    done = run(server, package, "-c", CODE)
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


def test_one_of_other_sources_is_not_taken(server, package):
    prebuild(package)
    with open(package / "csrc" / "wire" / "wire.h", "a") as header:
        header.write("// Another one.\n")
    done = run(server, package, "-c", CODE)
    assert done.returncode == 1 and SENTENCE in done.stderr.splitlines()[-1], done.stderr


def test_where_one_does_not_load_what_was_compiled_here_is_taken(server, package, tmp_path):
    file, kept = prebuild(package), tmp_path / "kept" / build.folder().name
    kept.mkdir(parents=True)
    shutil.move(file, kept / build.NAME)
    file.write_bytes(b"of another system")
    done = run(server, package, "-c", CODE, kept=kept.parent)
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


def test_without_one_programs_that_do_not_use_the_device_run_and_others_hear_why(server, package):
    done = run(server, package, "-c", """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(2, 2)
layer(torch.ones(1, 2)).sum().backward()
print(layer.weight.grad.sum().item(), torch.tessera.is_available(), torch.tessera.device_count(), hasattr(torch.tessera, "Graph"))
for use in (lambda: torch.ones(3, device="tessera"), lambda: torch.ones(3).to("tessera"), lambda: layer.to("tessera"),
            lambda: torch.tessera.synchronize()):
    try: use()
    except Exception as error: print(error)
""")  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    first, *said = done.stdout.splitlines()
    assert first == "4.0 False 0 False"
    assert len(said) == 4 and all(SENTENCE in each for each in said), said


def test_a_slice_server_without_one_says_why_it_does_not_start(server, package):
    done = run(server, package, "-m", "tessera.slice", "--memory", "1MiB", "--listen", "unix:/nonexistent/socket")
    assert done.returncode == 1 and done.stderr.startswith(SENTENCE) and done.stderr.count("\n") == 1, done.stderr
    done = run(server, package, "-m", "tessera.slice", "--memory", "1MiB", "--check")
    assert done.returncode == 1 and done.stderr.startswith("the dispatcher is not built: run TESSERA_BUILD=/nonexistent"), done.stderr


def test_a_compiler_that_fails_is_told_in_a_line(monkeypatch, tmp_path):
    for name, value in {"TESSERA_BUILD": str(tmp_path), "CXX": shutil.which("false")}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(build.Unavailable, match="cannot be compiled for PyTorch") as failed:
        build._make(verbose=False)
    assert "\n" not in str(failed.value)
