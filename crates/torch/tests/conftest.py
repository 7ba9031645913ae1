"""The tests are a program of a slice server of their own, which starts before PyTorch is loaded: `import torch` is all that makes
the device. Servers that a test breaks, starves or restores are its own (`serving.Server`)."""

import atexit
import gc
import os
import signal
import sys
import tempfile

import elsewhere
import pytest
import serving

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Some programs end without a chance to say what they have not said yet.
os.environ["PYTHONUNBUFFERED"] = "1"
# Threads that have nothing to do leave the processors to those that have.
os.environ["OMP_WAIT_POLICY"] = "passive"


def pytest_configure(config):
    # What only hands out tests to others needs neither.
    if config.getoption("dist", "no") == "no" or hasattr(config, "workerinput"):
        start()


def start():
    folder = tempfile.TemporaryDirectory()
    server = serving.Server(folder.name, "--snapshots", folder.name, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    os.environ.update(server.environment())
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    # Nothing that is loaded is garbage (`ready.py`).
    gc.disable()
    import torch

    gc.freeze()
    gc.enable()
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_left_over():
    """An error that a test did not wait for belongs to that test, not to the next."""
    yield
    sys.modules["torch"].tessera.synchronize()


@pytest.fixture
def folder(tmp_path):
    # Paths of Unix sockets are short.
    with tempfile.TemporaryDirectory(prefix="tessera-") as short:
        yield short


@pytest.fixture
def asked(folder):
    """Whoever knows where the slice server of a program is that is elsewhere."""
    return elsewhere.Asked(folder)


@pytest.fixture
def checkpoints(tmp_path):
    """What a slice server keeps of itself."""
    kept = tmp_path / "checkpoint"
    kept.mkdir()
    return kept


@pytest.fixture
def without(pool):
    """Takes nodes out of use, for as long as a test lasts."""
    taken = []

    def take(*nodes):
        taken.extend(nodes)
        for node in nodes:
            pool.tessera("node", "drain", node, "--yes")

    yield take
    for node in taken:
        pool.tessera("node", "uncordon", node)
