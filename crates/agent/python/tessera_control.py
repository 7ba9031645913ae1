"""Saving on request: the program's side of TESSERA_CONTROL (docs/worker.md).

    control = tessera_control.Control()
    step = load(control.folder)              # what was written there before is there again
    while step < STEPS:
        step = train(step)
        if control.asked():
            save(control.folder, step)
            control.saved(step)
            if control.stopping:
                sys.exit(0)

Outside of Tessera nobody asks, and only the signal counts.
"""

import os
import signal
import socket


class Control:
    """Listens for requests to save, and to stop."""

    def __init__(self, stop_signal=signal.SIGTERM):
        self.folder = os.environ.get("TESSERA_CHECKPOINT_DIR", ".")
        #: Whether the program was told to stop: it is to save and to exit with 0.
        self.stopping = False
        self._path = os.environ.get("TESSERA_CONTROL")
        self._socket = None
        self._lines = b""
        signal.signal(stop_signal, self._stop)

    def asked(self):
        """Whether to save now. Never waits."""
        return self._line(wait=False) == "save" or self.stopping

    def saved(self, progress=0):
        """Says that the folder is written and how far the work is; waits until it is kept. Answers whether it is."""
        if not self._say(f"saved {progress}"):
            return False
        answer = self._line(wait=True)
        while answer == "save":  # asked again meanwhile: what was just written is the answer to that, too
            answer = self._line(wait=True)
        return answer.startswith(("kept", "noted"))

    def _stop(self, _signal, _frame):
        self.stopping = True

    def _connected(self):
        if self._socket is None and self._path:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._path)
                self._socket, self._lines = connection, b""
            except OSError:
                connection.close()  # the agent is being started anew: the next call tries again
        return self._socket

    def _say(self, line):
        try:
            self._connected().sendall(line.encode() + b"\n")
            return True
        except (AttributeError, OSError):
            self._socket = None
            return False

    def _line(self, wait):
        while b"\n" not in self._lines:
            try:
                read = self._connected().recv(4096, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return ""
            except (AttributeError, OSError):
                read = b""
            if not read:
                self._socket = None
                return ""
            self._lines += read
        line, self._lines = self._lines.split(b"\n", 1)
        return line.decode()
