"""Cards of a host that its agent finds through PyTorch: what PyTorch says of them, and jobs on them. What stands in for a card that this
machine lacks is a processor; everything else is as it is with one."""

import json
import pathlib
import re
import subprocess
import sys
import types
import urllib.request

import pytest
import ready
import torch

from pools import Served, free_port, wait
from tessera import devices

GIB = 1 << 30
H200 = types.SimpleNamespace(
    name="NVIDIA H200", total_memory=150109880320, uuid="1d8e9d8a-4e4c-3b1f-5d0e-6f1c0a9b7e55", pci_domain_id=0, pci_bus_id=0x4D, pci_device_id=0
)  # fmt: skip
ASCEND = types.SimpleNamespace(name="Ascend910B3", total_memory=65452113920)


class Module:
    """What PyTorch has of one kind of accelerator."""

    def __init__(self, *cards):
        self._cards = cards

    def is_available(self):
        return bool(self._cards)

    def device_count(self):
        return len(self._cards)

    def get_device_properties(self, index):
        return self._cards[index]


@pytest.fixture
def host(monkeypatch):
    """A host with these accelerators and no other."""
    return lambda **modules: monkeypatch.setattr(devices, "present", lambda: modules)


def test_a_card_is_named_so_that_its_server_sees_no_other(host):
    host(cuda=Module(H200, types.SimpleNamespace(**{**vars(H200), "uuid": "other", "pci_bus_id": 0x5D})))
    first, second = devices.cards()
    assert first == {
        "device": "cuda:0",
        "environment": {"CUDA_VISIBLE_DEVICES": "GPU-1d8e9d8a-4e4c-3b1f-5d0e-6f1c0a9b7e55"},
        "hidden": {"CUDA_VISIBLE_DEVICES": ""},
        "vendor": "NVIDIA",
        "kind": "gpu",
        "model": "H200",
        "uuid": "GPU-1d8e9d8a-4e4c-3b1f-5d0e-6f1c0a9b7e55",
        "memory_bytes": 150109880320,
        "pci_address": "0000:4d:00.0",
    }
    assert (second["device"], second["environment"]) == ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-other"})


def test_a_card_without_a_name_of_its_own_is_named_by_its_place_among_those_that_are_seen(host, monkeypatch):
    host(npu=Module(ASCEND, ASCEND))
    places = lambda: [card["environment"]["ASCEND_RT_VISIBLE_DEVICES"] for card in devices.cards()]
    assert places() == ["0", "1"]
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4, 6")
    assert places() == ["4", "6"]
    assert [card["vendor"] + " " + card["kind"] for card in devices.cards()] == ["Huawei npu"] * 2


def test_what_is_no_card_of_its_own_is_left_out_with_the_reason(host, capsys):
    instance = types.SimpleNamespace(**{**vars(H200), "name": "NVIDIA H200 MIG 1g.18gb"})
    integrated = types.SimpleNamespace(**{**vars(H200), "name": "NVIDIA Thor", "is_integrated": 1})
    host(cuda=Module(instance, H200, integrated))
    assert [card["model"] for card in devices.cards()] == ["H200"]
    said = capsys.readouterr().err
    assert "cuda:0 (NVIDIA H200 MIG 1g.18gb) is left out" in said and "cuda:2 (NVIDIA Thor) is left out" in said


class Processor(Module):
    """A processor in the place of a card, so that something is multiplied."""

    def __init__(self, free):
        super().__init__(types.SimpleNamespace(name="Processor", total_memory=16 << 20))
        self.free = free

    def get_device_properties(self, device):
        return self._cards[0]

    def synchronize(self, device):
        pass

    def mem_get_info(self, device):
        return self.free, 16 << 20


def test_what_a_card_computes_is_measured_in_the_precisions_that_it_has(monkeypatch, capsys):
    monkeypatch.setattr(devices, "MEASURE", 0.01)
    monkeypatch.setitem(devices.PRECISIONS, "fp16", torch.bool)  # a type in which nothing is multiplied
    rates = devices.rates("cpu", Processor(free=16 << 20))
    assert set(rates) == {"fp32", "bf16"} and all(rate > 0 for rate in rates.values()), rates
    assert "cpu is not measured in fp16" in capsys.readouterr().err


def test_a_card_on_which_somebody_computes_is_not_measured(capsys):
    assert devices.rates("cpu", Processor(free=8 << 20)) == {}
    assert "somebody computes on it" in capsys.readouterr().err


def test_it_answers_with_one_line_of_json_while_whoever_asked_is_there():
    command = [sys.executable, "-m", "tessera.devices", "--held"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        (line,) = asked.stdout.readlines()
        assert json.loads(line)["pytorch"] == torch.__version__
        assert asked.wait(60) == 0, asked.stderr.read()


def test_it_ends_with_whoever_asked():
    # Measuring takes for ever here, and nobody holds the other end of its input any more.
    program = (
        "import runpy, sys, time, torch\n"
        "torch.cuda.is_available = lambda: time.sleep(600)\n"
        "sys.argv = ['devices', '--held']\n"
        "runpy.run_module('tessera.devices', run_name='__main__')\n"
    )
    assert ready.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, timeout=120).returncode == 3


class Found(Served):
    """A pool whose only node has the cards that its Python tells of."""

    def __init__(self, folder, more=""):
        #: What its agent's file says more.
        self.more = more
        # Another run of the tests has cards of other names.
        self.card = f"GPU-{folder.name}"
        self.http = free_port()
        super().__init__(folder, inventory='[[node]]\nname = "host"\n')

    def answers(self):
        card = {
            "device": "cpu", "environment": {"CUDA_VISIBLE_DEVICES": self.card}, "hidden": {"CUDA_VISIBLE_DEVICES": ""}, "vendor": "NVIDIA",
            "kind": "gpu", "model": "H200", "uuid": self.card,
            "memory_bytes": 8 * GIB, "pci_address": "", "tflops": {"fp16": 8.0, "fp32": 4.0},
        }  # fmt: skip
        # What its slice server is it has to find out.
        return {"'-m tessera.devices'*": json.dumps({"cards": [card]})}

    def configure(self, node, settings):
        super().configure(node, settings)
        file = self.folder / f"{node}.toml"
        file.write_text('cards = "accelerators"\n' + file.read_text() + self.more)

    def start_node(self, node):
        self.start(
            node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server", self.members[0],
            "--config", str(self.folder / f"{node}.toml"), "--http", f"127.0.0.1:{self.http}",
        )  # fmt: skip

    def turns(self):
        """How many seconds of turns each job has had, as the agent's page tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as page:
            told = re.findall(r'^tessera_slice_turn_seconds_total\{.*job_id="(\d+)".*\} (\S+)$', page.read().decode(), re.MULTILINE)
        return {job: float(seconds) for job, seconds in told}


@pytest.fixture
def found(folder, request):
    pool = Found(pathlib.Path(folder), getattr(request, "param", ""))
    try:
        pool.bring_up()
        yield pool
    finally:
        pool.stop()
        pathlib.Path("/run/tessera-cards", pool.card).unlink(missing_ok=True)


def test_a_job_computes_on_a_part_of_a_card_that_was_found(found):
    (card,) = [card for card in found.ask("card", "list") if card["kind"] == "gpu"]
    assert (card["model"], card["uuid"], card["blocks"]["total"]) == ("H200", found.card, 8) and not card["simulated"], card
    # The card is the server's: the program does not see it beside its device. The server sees it, and no other.
    program = (
        "import os, pathlib, torch\n"
        "print((torch.arange(4.0, device='tessera') * 2).sum().item(), repr(os.environ['CUDA_VISIBLE_DEVICES']))\n"
        "print(torch.tessera.get_device_properties().total_memory >> 20)\n"
        "for process in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "    try: words, variables = ((process / name).read_bytes().split(b'\\0') for name in ('cmdline', 'environ'))\n"
        "    except OSError: continue\n"
        "    if b'tessera.slice' in words and f'TESSERA_JOB_ID={os.environ[\"TESSERA_JOB_ID\"]}'.encode() in variables:\n"
        "        print(*(word.decode() for word in variables if word.startswith(b'CUDA_VISIBLE')))\n"
        "        print(words[words.index(b'--share') + 1].decode())\n"
    )
    job = found.submit("-c", program, tflops=2, memory="1GiB", models=["H200"])
    state, printed, errors = found.ends(job)
    assert state == "completed", errors
    assert printed == f"12.0 ''\n1024\nCUDA_VISIBLE_DEVICES={found.card}\n0.250\n"


@pytest.mark.parametrize("found", ['\n[time_slicing]\naccelerators = "freeze"\n'], indirect=True, ids=["turns"])
def test_jobs_on_a_card_that_was_found_compute_by_their_blocks(found, folder):
    # Each alone computes as fast as the other: the processor that stands for the card is as fast for both.
    program = (
        "import os, pathlib, sys, torch\n"
        "out, name = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "load, steps, counted = torch.ones(512, 512, device='tessera'), 0, torch.zeros((), device='tessera')\n"
        "while not (out / 'finish').exists():\n"
        "    load = (load @ load).clamp(max=1.0)\n"
        "    counted += load[0, 0]\n"
        "    steps += 1\n"
        "    assert counted.item() == steps\n"
        "    (out / f'{name}.new').write_text(str(steps))\n"
        "    os.replace(out / f'{name}.new', out / name)\n"
        "print(steps, counted.item())\n"
    )
    out = pathlib.Path(folder, "out")
    out.mkdir()
    jobs = {name: found.submit("-c", program, str(out), name, tflops=size, memory="1GiB", models=["H200"]) for name, size in [("large", 6), ("small", 2)]}
    had = lambda: {name: int((out / name).read_text()) for name in jobs if (out / name).exists()}
    wait("both to compute", lambda: had().keys() == jobs.keys(), 120)
    (card,) = [card for card in found.ask("card", "list") if card["uuid"] == found.card]
    # They compete until their agent has heard of their servers.
    slicing = lambda: (found.ask("card", "show", f"host/{card['index']}")["sample"] or {}).get("time_slicing") or {}
    wait("turns", lambda: (slicing().get("slicer"), slicing().get("workers")) == ("freeze", 2), 180)
    before, turns = had(), found.turns()
    # How many steps that is depends on who else computes on this machine.
    since = lambda now: {name: now.get(job, 0) - turns.get(job, 0) for name, job in jobs.items()}
    seconds = wait("both to have had turns", lambda: min((seconds := since(found.turns())).values()) >= 1 and seconds, 180)
    assert 1.7 < seconds["large"] / seconds["small"] < 6, f"three to one: {seconds}"
    wait("both to have computed", lambda: all(steps > before[name] for name, steps in had().items()), 180)
    # What it uses is known from its slice server alone: nothing is read of such a card. How much that is depends on who else computes.
    uses = lambda: (found.ask("job", "show", jobs["large"])["used"] or {}).get("utilization", 0)
    wait("its use to be told", lambda: uses() > 0, 180)
    (out / "finish").touch()
    for name, job in jobs.items():
        state, printed, errors = found.ends(job)
        assert state == "completed", errors
        count, counted = printed.split()
        assert float(counted) == int(count) > before[name], "standing still changes nothing"


def test_an_agent_whose_python_cannot_tell_does_not_go_on_without_its_cards(folder):
    pool = Found(pathlib.Path(folder))
    pool.python.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 1\n")
    try:
        pool.start_member(0)
        pool.start_node("host")
        said = wait("the agent to end", lambda: pool.processes["host"].poll() and (pool.folder / "host.log").read_text(), 180)
    finally:
        pool.stop()
    assert "No module named 'torch'" in said and str(pool.python) in said, said
