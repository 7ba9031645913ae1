"""Cards of several slices that come and go: whichever of their slice servers ends, the program goes on with other ones, or is told once why
it cannot."""

import functools
import signal
import subprocess

import groups
import pytest
import serving
from elsewhere import GRAPH, PROGRAM, come_to, split, start, undisturbed
from test_deadly import Pool

SLICES = [("200MiB", "--share", 0.4), ("400MiB", "--share", 0.9), ("200MiB", "--share", 0.3)]


def same(printed, wanted, by):
    """By layers each bit is that of one slice."""
    if by == "layers":
        return printed == wanted
    values = [[float.fromhex(word) for word in text.split() if "0x" in word] for text in (printed, wanted)]
    return values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("by", ["layers", "batch"])
def test_a_program_goes_on_where_its_card_was_suspended(folder, asked, checkpoints, by):
    card = groups.Kept(folder, checkpoints, SLICES, split=by, epoch=1)
    asked.at(card)
    running = start(asked, PROGRAM, 12)
    printed = ""
    for epoch, line, slices in ((2, "4 ", SLICES[:2]), (3, "8 ", SLICES[::-1])):
        printed += come_to(line, running)
        assert card.suspend() == [0] * (1 + len(card.others))
        asked.answers["where"] = {"wait": "suspended"}
        card = groups.Kept(folder, checkpoints, slices, split=by, epoch=epoch)
        asked.at(card)
    with card:
        text, resumed = split(printed + serving.finish(running))
    assert same(text, undisturbed(folder, PROGRAM, 12), by)
    assert resumed >= 1


@pytest.mark.parametrize(("program", "steps", "dies", "by"), [(PROGRAM, 10, 2, "layers"), (PROGRAM, 10, 0, "batch"), (GRAPH, 32, 1, "layers")],
                         ids=["another", "the first", "recorded"])  # fmt: skip
def test_a_card_of_which_a_server_is_killed_is_made_anew(folder, asked, checkpoints, program, steps, dies, by):
    with groups.Kept(folder, checkpoints, SLICES, split=by, epoch=1) as card:
        asked.at(card)
        running = start(asked, program, steps)
        printed = come_to("4 ", running)
        victim = card.others[dies - 1] if dies else card
        victim.process.send_signal(signal.SIGKILL)
        # The first one does not answer for a card that is gone, and the others do not outlive it.
        assert [one.process.wait(60) for one in (card, *card.others) if one is not victim] == [123, 123]
    with groups.Kept(folder, checkpoints, SLICES[:2], split=by, epoch=2) as card:
        asked.at(card)
        text, resumed = split(printed + serving.finish(running))
    assert same(text, undisturbed(folder, program, steps), by)
    assert resumed == 1


def test_an_error_that_nobody_was_told_of_goes_along(folder, asked, checkpoints, tmp_path):
    """With what is lost by it, as on a card that stays."""
    program = """
import torch
x, before = torch.ones(4, 4, device="tessera"), torch.ones(3, device="tessera")
rows = torch.tensor([0, 9], device="tessera")
print(x.sum().item(), before.sum().item(), flush=True)
wrong = x.index_select(0, rows)
after = x.add_(1)
print("issued", torch.tessera.statistics()["operations"], flush=True)
input()
try: print(wrong.sum().item())
except (IndexError, RuntimeError) as error: print("told", "index" in str(error))
try: print(x.sum().item())
except RuntimeError as error: print("lost because of an earlier error" in str(error))
print(before.sum().item())
"""
    card = groups.Kept(folder, checkpoints, SLICES, epoch=1, each=[{"TESSERA_WORKER_DIR": str(tmp_path)}, {}, {}])
    asked.at(card)
    running = start(asked, program, stdin=subprocess.PIPE, TESSERA_BATCH="1")
    issued = come_to("issued", running).split()[-1]
    # What no server has executed when it is told to stop is skipped afterwards, and loses nothing.
    card.executed(int(issued), tmp_path)
    assert card.suspend() == [0, 0, 0]
    with groups.Kept(folder, checkpoints, SLICES[:2], epoch=2) as card:
        asked.at(card)
        printed, errors = running.communicate("\n", timeout=120)
    assert printed == "told True\nTrue\n3.0\n", errors


def test_a_card_whose_operations_nobody_has_any_more_is_one_clear_error(folder, asked, checkpoints, tmp_path):
    """Of what the program may keep, which is nothing here, no save has taken the place."""
    program = """
import torch
total = torch.zeros(1 << 18, device="tessera")
for number in range(12):
    total += torch.ones(1 << 18).to("tessera")
    print(number, total.sum().item(), flush=True)
    if number == 5: input()
"""
    with groups.Kept(folder, checkpoints, SLICES[:2], epoch=1) as card:
        asked.at(card)
        running = start(asked, program, stdin=subprocess.PIPE, TESSERA_JOURNAL_MIB="1")
        come_to("5 ", running)
    with groups.Kept(folder, checkpoints, SLICES[:2], epoch=2) as card:
        asked.at(card)
        _, errors = running.communicate("\n", timeout=120)
    assert running.returncode == 1
    assert "what lies between is lost, and the program cannot go on" in errors.splitlines()[-1]


def test_an_operation_that_ends_a_server_each_time_is_one_error_with_its_line(folder, checkpoints, tmp_path):
    # The second slice is by far the fastest, and computes.
    make = functools.partial(groups.Kept, slices=[("64MiB", "--share", 0.2), ("256MiB", "--share", 0.9)])
    pool = Pool(folder, checkpoints, tmp_path, make=make)
    try:
        printed = pool.run("""
import torch
a = torch.arange(4.0, device='tessera')
print(a.sum().item())
b = a + 1
c = torch.digamma(b)
d = a * 2
try: print(c.sum().item())
except RuntimeError as error: print('told', 'ended by it' in str(error), 'digamma' in str(error), ':6 in' in str(error) or error)
print((a + 1).sum().item())
""")
        assert printed == "6.0\ntold True True True\n10.0\n"
        assert pool.servers == 4
    finally:
        pool.stop()
