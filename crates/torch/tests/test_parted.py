"""A server that goes on comes to something else than the program was told: one clear error, instead of a card that is not what the program
takes it for."""

import subprocess
import sys

import pytest
import ready
import serving
from elsewhere import Asked, Kept

# How servers of these tests start: operators that are not the same when they are executed again.
AGAIN = """
import os, pathlib, torch
library = torch.library.Library("aten", "IMPL")
def was_executed():
    mark = pathlib.Path(os.environ["MARK"])
    again = mark.exists()
    mark.touch()
    return again
def fails_again(x):
    if was_executed():
        raise RuntimeError("there is no room for it here")
    return x.clone()
def failed_once(x):
    if not was_executed():
        raise RuntimeError("there is no room for it here")
    return x.clone()
def is_zero_again(x):
    return torch.zeros_like(x) if was_executed() else x.clone()
library.impl("digamma", fails_again, "CPU")
library.impl("special_i1", failed_once, "CPU")
library.impl("erfinv", is_zero_again, "CPU")
"""

PROGRAM = """
import sys, torch
a = torch.arange(4.0, device="tessera")
a += 1
try:
    {first}
except RuntimeError:
    print("failed", flush=True)
input()
for _ in range(2):
    try:
        print((a + 1).sum().item())
    except RuntimeError as error:
        print(str(error).replace(chr(10), " | "))
"""


def executed_by_two(first, told, folder, tmp_path, checkpoints):
    """What the program prints when another server has executed again what it began with."""
    (tmp_path / "sitecustomize.py").write_text(AGAIN)
    environment = {"PYTHONPATH": str(tmp_path), "MARK": str(tmp_path / "mark")}
    asked = Asked(folder)
    with Kept(folder, checkpoints, epoch=1, more_environment=environment) as server:
        asked.at(server)
        running = ready.Popen(
            [sys.executable, "-c", PROGRAM.format(first=first)], env=asked.environment(), cwd=serving.TESTS, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdout.readline().strip() == told
    with Kept(folder, checkpoints, epoch=2, more_environment=environment) as server:
        asked.at(server)
        running.stdin.write("\n")
        running.stdin.flush()
        printed = serving.finish(running).splitlines()
        assert server.lives() and len(printed) == 2
    return printed


@pytest.mark.parametrize(
    "first, why",
    [
        ("print(torch.digamma(a).sum().item(), flush=True)", ("fails there", "there is no room for it here", "aten::digamma", ":6 in")),
        ("print(a[torch.erfinv(a) > 0].sum().item(), flush=True)", ("gives other shapes there",)),
    ],
)
def test_what_a_server_does_not_come_to_again_is_an_error_from_then_on(first, why, folder, tmp_path, checkpoints):
    for error in executed_by_two(first, "10.0", folder, tmp_path, checkpoints):
        assert "comes to something else" in error and "Start the program again" in error, error
        assert all(word in error for word in why), error


def test_what_has_failed_is_not_executed_after_all(folder, tmp_path, checkpoints):
    # What comes after it was skipped.
    first = "b = torch.special.i1(a); a += 100; print(b.sum().item())"
    assert executed_by_two(first, "failed", folder, tmp_path, checkpoints) == ["14.0", "14.0"]
