"""Programs whose slice server is elsewhere, and may be another one each time: what they compute is what they would have computed
undisturbed, in each bit, and they notice nothing; or they are told once, and clearly, why they cannot go on."""

import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import ready
import serving
import torch
from elsewhere import GRAPH, PROGRAM, Cut, Kept, Valve, come_to, split, start, undisturbed
from serving import finish
from tessera import _native


@pytest.mark.parametrize(("program", "steps"), [(PROGRAM, 12), (GRAPH, 2000)], ids=["training", "recorded"])
def test_a_program_goes_on_where_its_server_was_suspended(folder, asked, checkpoints, program, steps):
    server = Kept(folder, checkpoints, epoch=1)
    asked.at(server)
    running = start(asked, program, steps)
    printed = ""
    for epoch, line in ((2, "4 "), (3, "8 ")):
        printed += come_to(line, running)
        assert server.suspend() == 0
        asked.answers["where"] = {"wait": "suspended"}
        # Another one, with another token and in another place, that nobody has told the program of.
        server = Kept(folder, checkpoints, epoch=epoch)
        asked.at(server)
    with server:
        text, resumed = split(printed + finish(running))
    assert text == undisturbed(folder, program, steps)
    # Once more when it came to a server that was about to end, and once less when that one ended before it came.
    assert resumed >= 1


def test_a_server_that_is_killed_is_made_anew_from_what_the_program_kept(folder, asked, checkpoints):
    with Kept(folder, checkpoints, epoch=1) as server:
        asked.at(server)
        running = start(asked, PROGRAM, 10)
        printed = come_to("5 ", running)
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        text, resumed = split(printed + finish(running))
    assert text == undisturbed(folder, PROGRAM, 10)
    assert resumed == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_breaks_anywhere_changes_nothing(folder, asked, checkpoints, seed):
    chance = random.Random(seed)
    with Kept(folder, checkpoints) as server:
        # Past the handshake, and then anywhere: within frames, answers and bulk data.
        network = Cut(server, [1500 + chance.randrange(120_000) for _ in range(12)])
        asked.at(server, network.address)
        text, resumed = split(finish(start(asked, PROGRAM, 8)))
    assert text == undisturbed(folder, PROGRAM, 8)
    assert network.cut >= 3 and resumed >= 3


def refused(asked, listener, **place):
    asked.answers["where"] = {"address": listener.address, **CREDENTIALS, **place}
    running = start(asked, "import torch\ntorch.ones(1, device='tessera')")
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    return errors


CREDENTIALS = {"token": "0123456789abcdef", "epoch": 7}


def listening(torch):
    return _native.Listener("tcp:127.0.0.1:0", torch=torch, **CREDENTIALS, device="cpu", memory_bytes=1 << 20, share=1.0, sequence=0)


def test_a_program_whose_pytorch_is_another_one_is_told_at_once(asked):
    listener = listening("1.0.0")
    assert "install the same version" in refused(asked, listener)


def test_a_program_that_comes_to_a_card_of_another_one_is_told_so(asked):
    listener = listening(torch.__version__)
    first = _native.Connection.connect(listener.address, torch.__version__, *CREDENTIALS.values(), serving.STRANGER)
    assert "the slice has a program already" in refused(asked, listener)
    first.close()


def test_why_a_card_is_not_reached_is_said_once_and_it_is_tried_again(folder, asked, checkpoints):
    with Kept(folder, checkpoints) as server:
        asked.at(server)
        asked.answers["where"]["epoch"] += 1
        running = start(asked, "import torch\nprint(torch.ones(3, device='tessera').sum().item())")
        assert "the slice is granted in epoch 7, the program comes from epoch 8" in running.stderr.readline()
        asked.at(server)
        printed, errors = running.communicate(timeout=120)
    assert (printed, errors, running.returncode) == ("3.0\n", "", 0)


class Agent:
    """The agent's end of a control socket: asks to save, once."""

    def __init__(self, folder):
        self.path = f"{folder}/control.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._connection = None
        self._ready = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        self._connection, _ = self._listener.accept()
        self._ready.set()

    def save(self, how=""):
        assert self._ready.wait(30)
        self._connection.sendall(f"save{how}\n".encode())
        with self._connection.makefile() as lines:
            word, progress = lines.readline().split()
        self._connection.sendall(f"kept {progress} 1\n".encode())
        assert word == "saved"
        return int(progress)


def test_a_server_saves_itself_while_it_serves_and_what_came_before_that_is_not_needed_any_more(folder, asked, checkpoints):
    agent = Agent(folder)
    # A journal of nothing keeps what is in no checkpoint that is safe, and what was not executed.
    with Kept(folder, checkpoints, epoch=1, control=agent.path) as server:
        asked.at(server)
        running = start(asked, PROGRAM, 12)
        printed = come_to("5 ", running)
        asked.answers["safe"] = {"safe": agent.save()}
        printed += come_to("8 ", running)
    assert asked.answers["safe"]["safe"] > 0
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        text, resumed = split(printed + finish(running))
    assert text == undisturbed(folder, PROGRAM, 12)
    assert resumed == 1


def test_a_frame_of_which_half_has_come_does_not_keep_a_server_from_saving(folder, asked, checkpoints):
    # The rest of it is at a program that stands still until the card is saved.
    agent = Agent(folder)
    with Kept(folder, checkpoints, epoch=1, control=agent.path) as server:
        network = Valve(server)
        asked.at(server, network.address)
        running = start(asked, PROGRAM, 12)
        printed = come_to("3 ", running)
        network.narrow = 5000
        assert network.held_back.wait(60)
        network.wait_until_heard()
        asked.answers["where"] = {"wait": "it stands still"}
        agent.save(" still")
        # Had it come to the end of a frame, what was held back would have come now.
        network.break_off()
        asked.at(server)
        printed += finish(running)
    text, resumed = split(printed)
    assert text == undisturbed(folder, PROGRAM, 12)
    assert resumed == 1


def test_a_save_that_failed_leaves_nothing_and_is_made_up_for(folder, asked, checkpoints):
    agent = Agent(folder)
    with Kept(folder, checkpoints, control=agent.path, errors=subprocess.PIPE) as server:
        asked.at(server)
        running = start(asked, PROGRAM, 400)
        come_to("3 ", running)
        # No file may become larger than this, as on a disk that is full.
        none, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, most))
        saved = []
        saving = threading.Thread(target=lambda: saved.append(agent.save()))
        saving.start()
        assert "the virtual card was not saved" in server.process.stderr.readline()
        assert list(checkpoints.iterdir()) == []
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (none, most))
        saving.join(60)
        assert saved and [path.name for path in checkpoints.iterdir()] == ["device.safetensors"]
        running.kill()
        running.wait()


def test_a_program_that_kept_too_little_is_told_what_is_lost(folder, asked, checkpoints):
    with Kept(folder, checkpoints, epoch=1) as server:
        asked.at(server)
        running = start(asked, PROGRAM, 200, TESSERA_JOURNAL_MIB="0")
        come_to("3 ", running)
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "goes on from frame 0" in errors and "is lost, and the program cannot go on" in errors


def test_with_a_short_journal_a_suspension_is_still_not_noticed(folder, asked, checkpoints):
    server = Kept(folder, checkpoints, epoch=1)
    asked.at(server)
    running = start(asked, PROGRAM, 10, TESSERA_JOURNAL_MIB="0")
    printed = come_to("4 ", running)
    assert server.suspend() == 0
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        text, resumed = split(printed + finish(running))
    assert text == undisturbed(folder, PROGRAM, 10)
    assert resumed == 1


def test_when_the_card_is_gone_for_good_the_program_is_told_why(folder, asked, checkpoints):
    with Kept(folder, checkpoints) as server:
        asked.at(server)
        running = start(asked, PROGRAM, 2000)
        come_to("3 ", running)
        asked.answers["where"] = {"over": "job 7 was cancelled"}
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "ConnectionError: virtual card:" in errors and "job 7 was cancelled" in errors


def test_an_error_that_was_not_told_yet_outlives_the_server(folder, asked, checkpoints, tmp_path):
    program = (
        "import sys, torch\n"
        "table = torch.zeros(4, 3, device='tessera')\n"
        "print('ready', flush=True)\n"
        "wrong = table[torch.tensor([9], device='tessera')]\n"
        "print('issued', torch.tessera.statistics()['operations'], flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n    print(wrong.sum().item())\n"
        "except IndexError as error:\n    print('told', ':4 in' in str(error) or error)"
    )
    server = Kept(folder, checkpoints, epoch=1, more_environment={"TESSERA_WORKER_DIR": str(tmp_path)})
    asked.at(server)
    running = ready.Popen(
        [sys.executable, "-c", program], env=asked.environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    issued = come_to("issued", running).split()[-1]
    server.executed(int(issued), tmp_path)
    assert server.suspend() == 0
    with Kept(folder, checkpoints, epoch=2) as server:
        asked.at(server)
        printed, errors = running.communicate("\n", timeout=120)
    assert printed == "told True\n", errors


def test_programs_that_come_one_after_the_other_begin_with_an_empty_card(folder, asked, checkpoints):
    program = "import torch\na = torch.ones(1 << 20, device='tessera')\na.sum().item()\nprint(torch.tessera.slice_status()['storages'])\n"
    with Kept(folder, checkpoints) as server:
        asked.at(server)
        first = start(asked, program + "import os\nos._exit(0)")
        second = [finish(first), finish(start(asked, program))]
    assert second[0] == second[1]


def test_a_server_whose_programs_host_is_silent_gives_its_card_back(folder, checkpoints):
    with Kept(folder, checkpoints, "--lease", 0.3) as server:
        assert server.process.wait(30) == 124


def test_a_server_that_stood_still_itself_gives_the_host_time_to_be_heard_again(folder, checkpoints):
    """Frozen with its host, or by whoever gives the card to others for a while."""
    lease = 4
    with Kept(folder, checkpoints, "--lease", lease) as server:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.2 * lease)
        server.process.send_signal(signal.SIGCONT)
        began = time.monotonic()
        assert server.process.wait(30) == 124
        assert time.monotonic() - began > lease / 4
