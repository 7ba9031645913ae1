"""Whether the slice servers of a card are alive, apart from whether they are busy.

Servers wait for each other as long as it takes: one may compute for an hour, and a program may be stopped in the middle of a copy. One
that is frozen, or whose host has vanished, would be waited for without end. So each says several times in a lease that it is there, over
a second connection to the first server, from a thread of its own.
"""

import os
import threading
import time

from tessera import server
from tessera.remarks import remark

_BEATS = 10  # in each lease


def beat(connection, lease: float) -> None:
    """Tells the first server that this one is alive, as long as that one is there."""

    def beating():
        try:
            while True:
                connection.send(b"")
                time.sleep(lease / _BEATS)
                # What is sent to a host that has vanished is kept for a quarter of an hour before that is an error.
                if not connection.is_open:
                    raise ConnectionError
        except ConnectionError:
            # A first server that has ended is noticed by whoever reads its stream, unless that waits for what will never come.
            time.sleep(lease)
            end("the first slice server of the card is gone")

    threading.Thread(target=beating, name="pulse", daemon=True).start()


class Watch:
    """At the first server: ends it when another one was silent for a lease."""

    def __init__(self, connections: dict, lease: float):
        self._silent, self._count, self._lease = dict.fromkeys(connections, 0.0), len(connections) + 1, lease
        for rank, connection in connections.items():
            threading.Thread(target=self._hear, args=(rank, connection), name="pulse", daemon=True).start()
        threading.Thread(target=self._watch, name="pulses", daemon=True).start()

    def _hear(self, rank: int, connection) -> None:
        try:
            while connection.receive() is not None:
                self._silent[rank] = 0.0
        except ConnectionError:
            return  # its host has vanished, and it is silent from now on
        # It has ended, and with it all its connections: whoever needs it finds that out.
        self._silent[rank] = float("-inf")

    def _watch(self) -> None:
        while True:
            time.sleep(self._lease / _BEATS)
            for rank in self._silent:
                # By what this process has seen of the time: after it was frozen itself, the others have had no chance yet.
                self._silent[rank] += self._lease / _BEATS
                if self._silent[rank] > self._lease:
                    end(f"slice {rank} of {self._count} has not been heard of for {self._lease:g} s. What the virtual card held is lost with it")


def end(why: str) -> None:
    """Ends this server from whatever thread, because its own may wait for ever."""
    remark(why)
    os._exit(server.FAULT)
