"""A proxy for TCP that makes each byte later by a time, in both directions, and takes nothing from how many pass."""

import queue
import socket
import threading
import time


class Delay:
    """Listens on loopback, and passes on what comes to another address of loopback."""

    def __init__(self, address: str, seconds: float):
        host, _, port = address.removeprefix("tcp:").rpartition(":")
        self._to, self._seconds, self._open = (host, int(port)), seconds, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held = queue.SimpleQueue()
                threading.Thread(target=self._take, args=(one, held), daemon=True).start()
                threading.Thread(target=self._give, args=(other, held), daemon=True).start()

    def _take(self, connection, held):
        try:
            while piece := connection.recv(1 << 20):
                held.put((time.monotonic() + self._seconds, piece))
        except OSError:
            pass
        held.put((0, b""))

    def _give(self, connection, held):
        while (due_and_piece := held.get())[1]:
            due, piece = due_and_piece
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            try:
                connection.sendall(piece)
            except OSError:
                return
        try:
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for one in (self._listener, *self._open):
            one.close()
