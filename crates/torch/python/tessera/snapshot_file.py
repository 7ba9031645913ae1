"""The file of a snapshot: safetensors, with a table of numbers and short texts (`__metadata__`).

Nothing in it is believed: names, sizes and places are looked at before anything is allocated for them, and nothing is ever executed.
What a file claims to hold is no more than it has bytes.
"""

import json
import os
import re
import struct

import torch

FORMAT = "1"
STORAGE = "storage."
_LARGEST_HEADER = 64 << 20
_LARGEST_RANDOM_STATE = 1 << 20
_BEGIN = b'{"__metadata__":'
_KEY = re.compile(r"storage\.(0|[1-9][0-9]{0,19})|random|answered")
_NUMBER = re.compile(r"[0-9]{1,19}")


class Damaged(ValueError):
    """A file that is no snapshot, or none any more."""


def header(table: dict[str, str], sizes: dict[str, int]) -> bytes:
    """What a file begins with: the table, and what of so many bytes follows, in this order."""
    entries, at = {"__metadata__": table}, 0
    for key, size in sizes.items():
        entries[key] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LARGEST_HEADER:
        raise ValueError(f"a snapshot of {len(sizes)} tensors would have a header of {len(text)} bytes; {_LARGEST_HEADER} is the most")
    return struct.pack("<Q", len(text)) + text


def is_begun(file) -> bool:
    """Whether this is the beginning of a file that `header` began."""
    return file.read(8 + len(_BEGIN))[8:] == _BEGIN


class Reading:
    """A snapshot that is read: its table, the sizes of what it holds by name, and pieces of that."""

    def __init__(self, file):
        self._file, self._path = file, file.name
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size or length > _LARGEST_HEADER:
            raise self.damaged(f"its header is not whole, or larger than {_LARGEST_HEADER} bytes")
        try:
            entries = json.loads(file.read(length))
            self.table = entries.pop("__metadata__")
            self._places = {key: self._place(key, entry) for key, entry in entries.items()}
            self._check_table()
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise error if isinstance(error, Damaged) else self.damaged(f"its header makes no sense ({type(error).__name__})") from None
        self._start = 8 + length
        self._check_places(size - self._start)

    def damaged(self, why: str) -> Damaged:
        return Damaged(f"{self._path} is no snapshot, or was damaged: {why}. Name an earlier one")

    @property
    def sizes(self) -> dict[str, int]:
        return {key: end - begin for key, (begin, end) in self._places.items()}

    def piece(self, key: str, begin: int, length: int) -> torch.Tensor:
        """Bytes of one of its tensors."""
        piece = torch.empty(length, dtype=torch.uint8)
        self._file.seek(self._start + self._places[key][0] + begin)
        if length and self._file.readinto(memoryview(piece.numpy())) != length:
            raise self.damaged(f"it is cut short at {key}")
        return piece

    def whole(self, key: str) -> torch.Tensor:
        return self.piece(key, 0, self.sizes[key])

    def _place(self, key: str, entry: dict) -> tuple[int, int]:
        begin, end = entry["data_offsets"]
        if not (_KEY.fullmatch(key) and entry["dtype"] == "U8" and type(begin) is type(end) is int and entry["shape"] == [end - begin]):
            raise self.damaged(f"it says nothing that can be of {key[:40]!r}")
        return begin, end

    def _check_table(self) -> None:
        if not all(isinstance(value, str) for value in self.table.values()):
            raise self.damaged("its table holds something else than texts")
        if self.table["format"] != FORMAT:
            raise self.damaged(f"it has format {self.table['format'][:40]!r}, and this version reads {FORMAT}")
        if not (_NUMBER.fullmatch(self.table["sequence"]) and _NUMBER.fullmatch(self.table["operations"])):
            raise self.damaged("it does not say at which operation it was taken")
        torch.device(self.table["device"])

    def _check_places(self, bytes: int) -> None:
        """One after the other, without gaps, up to the end of the file."""
        at = 0
        for begin, end in sorted(self._places.values()):
            if begin != at or end < begin:
                raise self.damaged("its tensors do not lie one after the other")
            at = end
        if at != bytes:
            raise self.damaged(f"its tensors have {at} bytes, and {bytes} are there")
        if self.sizes.get("random", _LARGEST_RANDOM_STATE + 1) > _LARGEST_RANDOM_STATE:
            raise self.damaged("the state of the random numbers is not there, or too large")
