"""Where the slice server of a program is that does not run beside it.

`TESSERA_SLICES=ask:/path` names a Unix socket of whoever started the program and has its virtual card, such as `tessera run --here`. It
is asked, a question on each connection, in one line of JSON, and answers in one:

    {"where": true}   -> {"address": "tcp:node:4100", "token": "...", "epoch": 7}, or {"wait": why}, or {"over": why}
    {"safe": true}    -> {"safe": 120}    frames of operations up to which snapshots are kept where the loss of a node does not reach them

The server may be another one each time: the virtual card is suspended, moved, or its node is lost, and the program waits meanwhile.

Programs that share that socket share one card, one after the other. Beside the socket lies a file that the one that has the card has
locked; the system unlocks it when that process ends, however it ends. In it stands a number, which each of them raises by one: to slice
servers the higher number proves that those below are gone (`crates/slice/src/owner.rs`).
"""

import dataclasses
import fcntl
import json
import os
import secrets
import socket
import time

from tessera import _native
from tessera.remarks import remark

PREFIX = "ask:"
LOCK = ".program"
_PAUSE = 0.1  # seconds between questions while there is no server
_PATIENCE = 5.0  # seconds of failures until a person is told, and until a program that has the card counts as one that stays
_ANSWER = 10.0  # seconds that an answer may take


@dataclasses.dataclass
class Place:
    """A slice server, and what it asks for."""

    address: str
    token: str = dataclasses.field(repr=False)
    epoch: int


@dataclasses.dataclass(frozen=True)
class Program:
    """This one, as slice servers know it: what it shares with those before and after it, which of them it is, and whether it comes again
    when its connection breaks."""

    family: str
    number: int
    returns: bool


def alone() -> Program:
    """A program whose connection is its life."""
    return Program(secrets.token_hex(16), 0, returns=False)


def journal_bytes() -> int:
    """How much of what was issued is kept at most."""
    return int(os.environ.get("TESSERA_JOURNAL_MIB", "256")) << 20


class Asked:
    """Whoever knows where the slice server is."""

    def __init__(self, address: str):
        self._path = address.removeprefix(PREFIX)
        self._lock = None

    def enter(self) -> Program:
        """Takes the card for this process, as long as that lives. Raises when another one has it, and keeps it."""
        # Not inherited by processes that are forked from this one, and lost when another of its files of that name is closed.
        if self._lock is None:
            self._lock = os.open(self._path + LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() > until:
                    raise _native.Taken("virtual card: another program of this one's family has it, until that ends; one at a time") from None
                time.sleep(_PAUSE)
        family, number = (os.pread(self._lock, 100, 0).decode().split() or [secrets.token_hex(16), "0"])[:2]
        program = Program(family, int(number) + 1, returns=True)
        os.pwrite(self._lock, f"{program.family} {program.number}\n".encode(), 0)
        return program

    def until_connected(self, connect, why: str = "") -> None:
        """Tries with every server that is named until one takes the program. Raises why there will be none any more.

        `why` says how a connection was lost. Without it this is the program's first, and another program on the slice is not one's own.
        """
        last, failing_since, told = why, None, False
        while True:
            answer = self._ask("where")
            if "over" in answer:
                reasons = "; ".join(reason for reason in (last, answer["over"]) if reason)
                raise ConnectionError(f"virtual card: {reasons}")
            if "address" in answer:
                try:
                    return connect(Place(answer["address"], answer["token"], answer["epoch"]))
                except _native.Unfit:
                    raise
                except ConnectionError as error:
                    # A server that is about to end or is not reached yet, or one that has not noticed yet that a connection is over.
                    last = str(error)
                    failing_since = failing_since or time.monotonic()
                    if time.monotonic() - failing_since > _PATIENCE:
                        if isinstance(error, _native.Taken) and not why:
                            raise
                        if not told:
                            remark(f"tessera: the virtual card cannot be reached yet, and is tried again: {last}")
                        told = True
            else:
                failing_since = None
            time.sleep(_PAUSE)

    def safe(self) -> int:
        """Frames up to which snapshots are safe; none where that cannot be known now."""
        try:
            return int(self._ask("safe").get("safe", 0))
        except (ConnectionError, ValueError):
            return 0

    def _ask(self, question: str) -> dict:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
                asked.settimeout(_ANSWER)
                asked.connect(self._path)
                asked.sendall(json.dumps({question: True}).encode() + b"\n")
                with asked.makefile("rb") as answers:
                    return json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise ConnectionError(f"whoever started this program and holds its virtual card is gone ({error})") from None
