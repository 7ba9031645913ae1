"""Programs that are interrupted while their card is away, as by Ctrl-C in a notebook, and go on: what they ask next is answered with its
own value and no other; and nothing that went wrong meanwhile is lost."""

import signal
import subprocess
import sys
import tempfile

import pytest
import ready
import serving
from elsewhere import Asked, Kept, Valve

# Does what it is told, line by line.
DRIVEN = """
import sys, torch
few = torch.arange(4, dtype=torch.float32, device="tessera")
many = torch.full((20000,), 3.0, device="tessera")
written = torch.zeros(20000, device="tessera")
graph = torch.tessera.Graph()
with torch.tessera.graph(graph):
    replayed = few * 10
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except KeyboardInterrupt:
        print("broken off", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""
QUESTIONS = {
    "value": "few[3].item()",
    "tensor": "many.cpu().sum().item()",
    "write": "written.copy_(torch.ones(20000)).mean().item()",
    "operator": "few.nonzero().shape",
    "state": "torch.tessera.get_rng_state().sum().item()",
    "synchronise": "torch.tessera.synchronize()",
}


class Driven:
    """A program that does what it is told, on a card that is elsewhere and behind a network that can be broken."""

    def __init__(self, folder, checkpoints):
        self._folder, self._checkpoints = folder, checkpoints
        self.asked = Asked(folder)
        self._start_server()
        self._program = ready.Popen(
            [sys.executable, "-c", DRIVEN], env=self.asked.environment(), cwd=serving.TESTS, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.heard() == "ready"

    def _start_server(self):
        self.server = Kept(self._folder, self._checkpoints)
        self.come_back()

    def come_back(self):
        self.network = Valve(self.server)
        self.asked.at(self.server, self.network.address)

    def replace_server(self):
        self.server.stop()
        self._start_server()

    def end(self):
        """The program comes to its end."""
        self._program.stdin.close()
        errors = self._program.stderr.read()
        return self._program.wait(60), errors

    def say(self, line):
        self._program.stdin.write(line + "\n")
        self._program.stdin.flush()

    def heard(self):
        return self._program.stdout.readline().strip()

    def tell(self, line):
        self.say(line)
        return self.heard()

    def lose_answer(self, question):
        """The question is executed, and the card goes away before its answer arrives."""
        self.network.closed = True
        self.say(question)
        assert self.network.held_back.wait(60)
        self.lose_card()

    def lose_card(self):
        self.asked.answers["where"] = {"wait": "the card is away"}
        self.network.break_off()

    def interrupt(self):
        """Once the program waits for its card."""
        while self.asked.waits.acquire(blocking=False):
            pass
        # One may still be of a wait before that was broken off.
        for _ in range(2):
            assert self.asked.waits.acquire(timeout=120)
        self._program.send_signal(signal.SIGINT)

    def stop(self):
        self._program.kill()
        self._program.wait()
        self.server.stop()


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    # One for all tests: what each of them breaks off, the next one finds in order.
    with tempfile.TemporaryDirectory(prefix="tessera-") as short:
        program = Driven(short, tmp_path_factory.mktemp("checkpoint"))
        yield program
        program.stop()


def check(driven):
    assert driven.tell("few[1].item()") == "1.0"
    assert driven.tell("many.cpu().sum().item()") == "60000.0"
    assert driven.tell("few[2].item()") == "2.0"
    assert driven.tell("written.copy_(torch.full((20000,), 5.0)).mean().item()") == "5.0"
    assert driven.tell("few.nonzero().shape") == "torch.Size([3, 1])"
    assert driven.tell("graph.replay() or replayed[3].item()") == "30.0"


def break_off(driven, question):
    """Loses the answer, and asks once more where there is no card any more."""
    driven.lose_answer(question)
    driven.interrupt()
    assert driven.heard() == "broken off"
    driven.say(question)
    driven.interrupt()
    assert driven.heard() == "broken off"


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_an_answer_that_was_lost_comes_again(driven, question):
    expected = driven.tell(question)
    driven.lose_answer(question)
    driven.come_back()
    assert driven.heard() == expected
    check(driven)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_after_a_question_that_was_broken_off_each_answer_belongs_to_its_question(driven, question):
    break_off(driven, question)
    driven.come_back()
    check(driven)


def test_so_it_does_at_a_server_that_is_told_all_of_it_again(driven):
    break_off(driven, QUESTIONS["tensor"])
    driven.replace_server()
    check(driven)


@pytest.mark.parametrize("anew", [False, True], ids=["same-server", "another-server"])
def test_an_error_in_an_answer_that_nobody_waited_for_is_told_where_the_program_waits_next(driven, anew):
    break_off(driven, "few[torch.tensor([9], device='tessera')].sum().item()")
    driven.replace_server() if anew else driven.come_back()
    assert driven.tell("few[0].item()") == "IndexError"
    # Of the second try.
    assert driven.tell("few[0].item()") in ("IndexError", "0.0")
    check(driven)


def test_an_error_that_nobody_has_heard_is_not_lost_where_recorded_steps_are_told_again(driven):
    assert driven.tell("few.index_add_(0, torch.tensor([9], device='tessera'), few[:1]) is few") == "True"
    driven.lose_card()
    driven.come_back()
    assert driven.tell("few[0].item()") in ("IndexError", "RuntimeError")
    check(driven)


def test_a_server_that_waits_for_the_rest_of_a_frame_can_be_told_to_stop(driven):
    driven.network.narrow = 5000
    driven.say("written.copy_(torch.ones(20000)).mean().item()")
    assert driven.network.held_back.wait(60)
    driven.asked.answers["where"] = {"wait": "suspended"}
    assert driven.server.suspend() == 0
    driven.replace_server()
    assert driven.heard() == "1.0"
    check(driven)


def test_a_program_that_has_finished_waits_for_no_other_card(driven):
    driven.lose_card()
    driven.say("few[3].item()")
    driven.interrupt()
    assert driven.heard() == "broken off"
    assert driven.tell("few.add_(1) is few") == "True"
    assert driven.end() == (0, "")
