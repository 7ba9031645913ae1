"""The program's side of the connection: one queue of commands, one lock, and errors as the program sees them.

The queue itself is `_native.Queue`, so that what has waited for too long is sent without Python. Whoever uses it holds `LOCK`, as an
operation is several steps: names, a command, and the tensors that it gives.
"""

import functools
import os
import struct
import sys
import threading

import torch

from tessera import _native
from tessera.interpreted import wire

#: How many of the last operations have their lines known.
_LINES = 1 << 15
_DEPTH = 32
_CODES = 4096

LOCK = threading.RLock()
QUEUE = _native.Queue()
BASE, SPAN, STEP = QUEUE.addresses

_COMMAND = wire.COMMAND
_SYNCHRONIZE = bytes([_COMMAND["Synchronize"]])


class Client:
    """What is known of the slice server, and what was issued to it."""

    def __init__(self):
        self.connected = self.forked = False
        #: Which connection the server's templates are of.
        self.generation = 0
        self.operations = self.waits = self.templates = self.views = self.immediate = 0
        self._connector = lambda: None
        self._seed = None
        self._next_storage, self._next_template = 1, 1
        self._operations_base = 0
        self._libraries = ()
        self._of_library = {}
        self._lines = [None] * _LINES
        self._last = 0, None, 0, False

    # -- The connection

    def set_connector(self, connector) -> None:
        self._connector = connector

    def need(self) -> None:
        """To be called with the lock held, before anything is said. The first one connects, and raises what keeps it from that."""
        if self.forked:
            raise RuntimeError(
                "a virtual card cannot be used in a forked process: its connection belongs to the parent; start the process with the "
                "method 'spawn'"
            )
        if not self.connected:
            self._connector()

    def connect(self, connection, memory_bytes: int, sequence: int, fresh: bool) -> None:
        with LOCK:
            if not fresh and sequence != QUEUE.sequence:
                raise RuntimeError(
                    f"the slice server stands at frame {sequence}, the program at {QUEUE.sequence}: what lies between is in no snapshot, "
                    "and cannot be gone on from"
                )
            QUEUE.connect(connection, memory_bytes, sequence)
            self.connected = True
            self.generation += 1
            if fresh:
                QUEUE.put(bytes([_COMMAND["Begin"]]))
            if self._seed is not None:
                seed, self._seed = self._seed, None
                self.seed(seed)

    def after_fork(self) -> None:
        """What is connected belongs to the parent; a process that was forked earlier has a device of its own."""
        LOCK._at_fork_reinit()
        if self.connected:
            self.forked = True
            QUEUE.fork()

    # -- Questions

    def ask(self, command: bytes, operations: int = 0, when_done: bool = False) -> wire.Reader:
        """Waits for the answer, and raises the error in it."""
        self.waits += 1
        answer = QUEUE.ask(command, operations, when_done)
        self.check(answer)
        return wire.Reader(answer, 9)

    def issue(self, command: bytes) -> None:
        """Puts an operation into the queue."""
        self.note_line()
        self.operations = QUEUE.put(command, 1)

    def issue_and_ask(self, command: bytes) -> wire.Reader:
        """The same for one that is answered at once."""
        self.note_line()
        try:
            return self.ask(command, 1)
        finally:
            self.operations = QUEUE.operations

    def check(self, answer: bytes) -> None:
        if answer[0]:
            self._raise(answer[0], wire.Reader(answer, 9))

    def command(self, code: str, more: bytes = b"", when_done: bool = False) -> bytes:
        with LOCK:
            self.need()
            return self.ask(bytes([_COMMAND[code]]) + more, when_done=when_done).rest()

    def synchronize(self) -> None:
        """Waits until all that was issued has been executed. Without a connection that is nothing."""
        with LOCK:
            if self.forked:
                self.need()
            if self.connected:
                self.ask(_SYNCHRONIZE)

    def seed(self, seed: int) -> None:
        """Before anything is connected a seed is only kept: seeding alone is no use of the card."""
        with LOCK:
            if self.forked:
                self.need()
            if self.connected:
                QUEUE.put(struct.pack("<BQ", _COMMAND["Seed"], seed))
            else:
                self._seed = seed

    # -- Names and memory

    def storages(self, count: int = 1) -> int:
        """The first of so many new names."""
        name = self._next_storage
        self._next_storage += count
        return name

    def template(self) -> int:
        self._next_template += 1
        return self._next_template - 1

    def ask_for(self, nbytes: int) -> None:
        """Raises PyTorch's error when the virtual card has no room."""
        if QUEUE.room(nbytes):
            return
        used, _, limit = QUEUE.memory
        raise torch.OutOfMemoryError(
            f"Tessera out of memory. Tried to allocate {_size(nbytes)}. Virtual card 0 has a total capacity of {_size(limit)} of which "
            f"{_size(max(limit - used, 0))} is free. {_size(used)} is allocated by this program."
        )

    # -- Lines of the program

    def set_libraries(self, folders: list[str]) -> None:
        """Lines below these folders are PyTorch's or ours, not the program's."""
        self._libraries = tuple(folders)

    def count_from(self, operations: int) -> None:
        self._operations_base = operations

    def note_line(self) -> None:
        """Notes which line issues the next operation: the innermost one outside of PyTorch."""
        number = self.operations + 1
        frame = sys._getframe().f_back
        known = self._of_library
        if len(known) > _CODES:
            known.clear()  # programs may make functions without end
        for _ in range(_DEPTH):
            if frame is None:
                break
            code = frame.f_code
            if (library := known.get(code)) is None:
                library = known[code] = code.co_filename.startswith(self._libraries)
            if not library:
                self._lines[number % _LINES] = self._last = number, code, frame.f_lasti, True
                return
            frame = frame.f_back
        # Most lines that ask for a backward pass issue its first gradient themselves.
        self._lines[number % _LINES] = number, *self._last[1:3], False

    def _where(self, operation: int) -> str:
        number = operation - self._operations_base
        if number <= 0:
            return ""
        line = self._lines[number % _LINES]
        if line is None or line[0] != number:
            return " (issued too long ago to tell where)"
        _, code, instruction, own = line
        if code is None:
            return " (issued by a thread of PyTorch)"
        by = "at" if own else "by a thread of PyTorch, such as a backward pass, after"
        return f" (issued {by} {code.co_filename}:{_line_of(code, instruction)} in {code.co_name})"

    def _raise(self, status: int, answer: wire.Reader) -> None:
        operation, _, _ = answer.get("QII")
        name, said = answer.text(), answer.text()
        text = f"{said}\n{name} on the virtual card{self._where(operation)}"
        if status == wire.STATUS["Memory"]:
            used, _, limit = QUEUE.memory
            text = (f"Tessera out of memory. Virtual card 0 has a total capacity of {_size(limit)} of which {_size(max(limit - used, 0))} "
                    f"is free: {text}")  # fmt: skip
        raise _ERRORS.get(status, RuntimeError)(text)

    def statistics(self) -> dict[str, int]:
        frames, sent = QUEUE.sent
        return dict(operations=self.operations, frames=frames, bytes=sent, waits=self.waits, replays=0, templates=self.templates,
                    views=self.views, immediate=self.immediate, resumed=0)  # fmt: skip


_ERRORS = {
    wire.STATUS[name]: error
    for name, error in {"Memory": torch.OutOfMemoryError, "NotImplemented": NotImplementedError, "Index": IndexError,
                        "Value": ValueError, "Type": TypeError}.items()
}  # fmt: skip


def _line_of(code, instruction: int) -> int:
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end and line is not None)
    return next(lines, code.co_firstlineno)


def _size(nbytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.2f} {unit}"
    return f"{nbytes / 1024:.2f} KiB"


def used(function):
    """A function that needs the slice server, one at a time."""

    @functools.wraps(function)
    def locked(*args, **kwargs):
        with LOCK:
            CLIENT.need()
            return function(*args, **kwargs)

    return locked


CLIENT = Client()
os.register_at_fork(after_in_child=CLIENT.after_fork)
