"""Where the slice server of a program is that does not run beside it.

`TESSERA_SLICES=ask:/path` names a Unix socket of whoever started the program and has its virtual card, such as `tessera run --here`. It
is asked, a question on each connection, in one line of JSON, and answers in one:

    {"where": true}   -> {"address": "tcp:node:4100", "token": "...", "epoch": 7}, or {"wait": why}, or {"over": why}
    {"safe": true}    -> {"safe": 120}    frames of operations up to which snapshots are kept where the loss of a node does not reach them

The server may be another one each time: the virtual card is suspended, moved, or its node is lost, and the program waits meanwhile.
"""

import dataclasses
import json
import os
import socket
import time

PREFIX = "ask:"
_PAUSE = 0.1  # seconds between questions while there is no server


@dataclasses.dataclass
class Place:
    """A slice server, and what it asks for."""

    address: str
    token: str = dataclasses.field(repr=False)
    epoch: int


def journal_bytes() -> int:
    """How much of what was issued is kept at most."""
    return int(os.environ.get("TESSERA_JOURNAL_MIB", "256")) << 20


class Asked:
    """Whoever knows where the slice server is."""

    def __init__(self, address: str):
        self._path = address.removeprefix(PREFIX)

    def until_connected(self, connect, why: str = "") -> None:
        """Tries with every server that is named until one takes the program. Raises why there will be none any more."""
        last = why
        while True:
            answer = self._ask("where")
            if "over" in answer:
                reasons = "; ".join(reason for reason in (last, answer["over"]) if reason)
                raise ConnectionError(f"virtual card: {reasons}")
            if "address" in answer:
                try:
                    return connect(Place(answer["address"], answer["token"], answer["epoch"]))
                except ConnectionError as error:
                    # A server that is about to end, or is not reached yet.
                    last = str(error)
            time.sleep(_PAUSE)

    def safe(self) -> int:
        """Frames up to which snapshots are safe."""
        return int(self._ask("safe").get("safe", 0))

    def _ask(self, question: str) -> dict:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
                asked.connect(self._path)
                asked.sendall(json.dumps({question: True}).encode() + b"\n")
                with asked.makefile("rb") as answers:
                    return json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise ConnectionError(f"whoever started this program and holds its virtual card is gone ({error})") from None
