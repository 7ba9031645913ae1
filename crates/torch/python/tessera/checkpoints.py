"""Checkpoints of a slice server that is a worker of a pool: it saves itself as any cooperative program does (docs/worker.md).

What the program has on its card goes into the folder `TESSERA_CHECKPOINT_DIR`, when the agent asks for it over `TESSERA_CONTROL` and when
the server is told to stop by SIGTERM; a server that finds it there goes on from it. The program notices nothing: it keeps what it
issued since, and tells it to the next server.
"""

import os
import pathlib
import signal
import socket
import sys
import threading
import time

from tessera import snapshot
from tessera.remarks import remark

NAME = "device.safetensors"
_PAUSE = 1.0  # seconds at least between a save that failed and the next
_SHARE = 0.1  # of the time that saves which fail may take from the program
_PATIENCE = 1.0  # seconds until the control socket is tried again: the agent may be being started anew


class Checkpoints:
    """Hears when to save. `wake` is called from other threads whenever something is asked."""

    def __init__(self):
        self.folder = pathlib.Path(os.environ["TESSERA_CHECKPOINT_DIR"])
        #: Whether the server is to save and to end.
        self.stopping = False
        #: The number of the save for which its program stands still, so that what is missing of a frame does not come; `None`: it does not.
        self.still: str | None = None
        self._asked = False
        self.wake = lambda: None
        self._changed = threading.Condition()
        self._being_kept = False
        self._connection = None

    def listen(self) -> None:
        """Begins to hear the agent, and the signal."""
        # The main thread is within the executor, where no handler in Python runs; which signals came is written to a socket at once.
        heard, write = socket.socketpair()
        write.setblocking(False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._hear_signal, args=(heard, write), name="signal", daemon=True).start()
        if path := os.environ.get("TESSERA_CONTROL"):
            threading.Thread(target=self._hear_agent, args=(path,), name="control", daemon=True).start()

    def restore(self, executor) -> tuple | None:
        """Goes on from what was saved last, if anything was. Gives the program that it is of."""
        path = self.folder / NAME
        snapshot.tidy(self.folder)
        return snapshot.load(executor, path) if path.exists() else None

    def save_if_asked(self, executor, owner: tuple | None) -> bool:
        """Saves when that is asked for. Answers whether the server is to end, with its state saved."""
        with self._changed:
            asked, self._asked = self._asked, False
            stopping, still = self.stopping, None
            if asked:
                still, self.still = self.still, None
            if not asked and not stopping:
                return False
            # The folder is read until the agent says that it is kept, or is gone.
            self._changed.wait_for(lambda: not self._being_kept)
        began = time.monotonic()
        try:
            snapshot.save(executor, self.folder, NAME, owner)
        # Such as a full disk, more tensors than a file has room to name, or no memory to bring them to.
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            # What was saved before stands. A server that was to stop has not saved, and says so by its end.
            remark(f"the virtual card was not saved: {error}")
            if stopping:
                sys.exit(1)
            if still is not None:
                # Nobody waits for another try with a program that stands still.
                self._tell(f"failed {still} {error}".replace("\n", " "))
                return False
            # The question of the agent stands until it is answered.
            again = threading.Timer(max(_PAUSE, (time.monotonic() - began) / _SHARE), self._ask)
            again.daemon = True
            again.start()
            return False
        if not stopping:
            self._tell(f"saved {executor.sequence} {still or ''}".rstrip())
        return stopping

    def _tell(self, line: str) -> None:
        with self._changed:
            try:
                self._being_kept = True
                self._connection.sendall(line.encode() + b"\n")
            except (AttributeError, OSError):
                self._being_kept = False  # nobody hears it; the agent asks again

    def _hear_signal(self, heard: socket.socket, _write: socket.socket) -> None:
        while signal.SIGTERM not in heard.recv(1):
            pass
        with self._changed:
            self.stopping = True
        self.wake()

    def _hear_agent(self, path: str) -> None:
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.connect(path)
                    self._connection = connection
                    with connection.makefile() as lines:
                        for line in lines:
                            self._hear(line.split())
            except OSError:
                pass
            with self._changed:
                self._connection, self._being_kept = None, False
                self._changed.notify_all()
            time.sleep(_PATIENCE)

    def _hear(self, words: list[str]) -> None:
        if words[:1] == ["save"]:
            self.still = (words[2:] or [""])[0] if words[1:2] == ["still"] else None
            return self._ask()
        if words[:1] in (["kept"], ["failed"]):
            with self._changed:
                self._being_kept = False
                self._changed.notify_all()
        return None

    def _ask(self) -> None:
        with self._changed:
            self._asked = True
        self.wake()
