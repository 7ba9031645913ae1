"""What a slice server does besides computing: lets programs in one after the other, saves itself when it is asked to, and ends."""

import pathlib
import threading
import time

from tessera import snapshot
from tessera.remarks import remark

#: Exit codes of a server: it failed itself; the host of its program has not been heard of for its lease.
FAULT, HOST_LOST = 123, 124
#: A server whose program is on another host ends with that program's code. These mean something else, and are told as 1.
_TAKEN = (FAULT, HOST_LOST, 125)
_LOOK = 0.2  # seconds between looks at whether the server is to end
_PATIENCE = 1.0  # seconds that what is under way of a connection may take then


class Server:
    """Serves programs with an executor, one at a time, until it is not needed any more."""

    def __init__(
        self, executor, listener, *, snapshots: pathlib.Path | None, linger: float | None, lease: float | None, awaits_host: bool = False
    ):  # fmt: skip
        self._executor, self._listener = executor, listener
        self._snapshots, self._linger, self._lease = snapshots, linger, lease
        self._awaits_host = awaits_host
        self._connection = None
        self._checkpoints = None
        self._silent = 0.0

    def attach(self, checkpoints) -> None:
        """Has it save itself when that is asked for."""
        self._checkpoints = checkpoints
        if checkpoints is not None:
            checkpoints.wake = self.wake

    def wake(self) -> None:
        """Has the server look at what is asked of it, between two frames."""
        if (connection := self._connection) is not None:
            connection.interrupt()
        self._listener.interrupt()

    def run(self) -> int:
        """Serves; gives the exit code."""
        code = self._run()
        self._executor.tell_over()
        return code

    def _run(self) -> int:
        if self._lease is not None or self._checkpoints is not None:
            threading.Thread(target=self._watch, name="end", daemon=True).start()
        alone_since = time.monotonic()
        while True:
            if (code := self._end_due()) is not None:
                return code
            if (connection := self._listener.accept(1.0)) is None:
                if self._linger is not None and time.monotonic() - alone_since > self._linger:
                    return 0
                continue
            self._connection = connection
            # One that looks for another server is helped by the end of this one, and not by an error.
            self._executor.comes_again = bool(self._listener.owner and self._listener.owner[2])
            try:
                code = self._serve(connection)
            except Exception as error:  # Whatever a program sends or does ends its connection, never the server.
                remark(f"the program's connection ended: {type(error).__name__}: {error}")
            self._connection = None
            if code is not None:
                # Nothing that comes now may be executed: it is in no snapshot.
                return code
            connection.close()
            if why := self._executor.lost:
                remark(why)
                return FAULT
            self._executor.forget_connection()
            self._executor.tell_gone()
            self._listener.free(self._executor.sequence)
            alone_since = time.monotonic()

    def _serve(self, connection) -> int | None:
        """Serves one program until its connection ends; gives the exit code when the server is to end before that."""
        # What was asked between its arrival and now has woken nobody.
        code = self._end_due()
        while code is None and self._executor.serve(connection.table):
            if (name := self._executor.take_snapshot()) is not None:
                self._snapshot(connection, name)
            code = self._end_due()
        return code

    def _snapshot(self, connection, name: str) -> None:
        """Of a program that asks for one itself."""
        error = ""
        try:
            snapshot.save(self._executor, self._snapshots, name, self._listener.owner)
        except (OSError, ValueError, RuntimeError) as failure:
            error = str(failure)
        self._executor.answer_snapshot(connection.table, error)

    def _end_due(self) -> int | None:
        """Does what is asked of the server; gives the exit code when that is to end."""
        if self._checkpoints is not None and self._checkpoints.save_if_asked(self._executor, self._listener.owner):
            return 0
        if self._lease is None:
            return None
        silent, ended_with = self._attended()
        if ended_with is not None:
            return 1 if ended_with in _TAKEN else ended_with
        if silent > self._lease:
            remark(f"the host of the program has not been heard of for {silent:.0f} s: its card is given back")
            return HOST_LOST
        return None

    def _attended(self) -> tuple[float, int | None]:
        """For how long the host of the program has been silent, and the code with which that ended."""
        silent, ended_with, has_come = self._listener.attended
        return (min(silent, self._silent) if has_come or not self._awaits_host else 0.0), ended_with

    def _is_ending(self) -> bool:
        if self._checkpoints is not None and self._checkpoints.stopping:
            return True
        silent, ended_with = self._attended()
        return self._lease is not None and (ended_with is not None or silent > self._lease)

    def _watch(self) -> None:
        """Has the server end when it is to, or save what a program has that stands still until then. One that waits for the rest of a frame
        hears nothing: its connection is ended."""
        ending_since, looked = None, time.monotonic()
        # While this process was frozen, or its whole host, nobody had a chance to be heard.
        most = max(2 * _LOOK, (self._lease or 0.0) / 4)
        while True:
            time.sleep(_LOOK)
            before, looked = looked, time.monotonic()
            self._silent = min(self._listener.attended[0], self._silent + min(looked - before, most))
            if not self._is_ending() and not (self._checkpoints is not None and self._checkpoints.still is not None):
                ending_since = None
                continue
            self.wake()
            ending_since = ending_since or time.monotonic()
            if time.monotonic() - ending_since > _PATIENCE and (connection := self._connection) is not None:
                connection.close()
