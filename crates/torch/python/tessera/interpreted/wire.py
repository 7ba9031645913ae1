"""What travels to a slice server, in Python. `csrc/wire.h` says what it is, and its numbers are read from there: there is one list of
them, whoever speaks."""

import pathlib
import re
import struct
import warnings

import torch

_TEXT = (pathlib.Path(__file__).parent.parent / "csrc" / "wire.h").read_text()


def _numbers(enum: str) -> dict[str, int]:
    """The names and numbers of an enum of C++."""
    body = re.search(rf"enum {enum}\b[^{{]*{{(.*?)}}", _TEXT, re.S)[1]
    return {name: int(number) for name, number in re.findall(r"\bk(\w+) = (\d+)", body)}


def _constant(name: str) -> int:
    return eval(re.search(rf"constexpr \w+ {name} = ([\d\s<]+);", _TEXT)[1], {})  # digits and shifts


COMMAND, STATUS, RESULT, FLAG = map(_numbers, ("Command", "Status", "Result", "Flag"))
MOST_ELEMENTS, INLINE, SCALAR = map(_constant, ("kMostElements", "kInline", "kScalar"))


def _codes() -> dict[torch.dtype, int]:
    """Of types that plain tensors can have."""
    codes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of those that are new, or that will be gone
        for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
            try:
                tensor = torch.empty(0, dtype=dtype, device="cpu")
                if not tensor.is_quantized:
                    codes[dtype] = torch.ops.prim.dtype(tensor)
            except (RuntimeError, NotImplementedError, TypeError):
                pass  # no tensor has it
    return codes


#: PyTorch's own numbers of its types, layouts and memory formats: to operators within, they are whole numbers.
CODES = _codes()
OF_CODE = {code: dtype for dtype, code in CODES.items()}
PLAIN_CODES = {
    **CODES, torch.strided: 0,
    torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3,
}  # fmt: skip


def text(of: str) -> bytes:
    encoded = of.encode()
    return struct.pack("<I", len(encoded)) + encoded


def layout(dtype: torch.dtype, flags: int, sizes, strides, offset: int) -> bytes:
    count = len(sizes)
    return struct.pack(f"<BBB{2 * count + 1}q", code_of(dtype), flags, count, *sizes, *strides, offset)


def code_of(dtype: torch.dtype) -> int:
    code = CODES.get(dtype)
    if code is None:
        raise NotImplementedError(f"{dtype} is not supported on a virtual card")
    return code


def number(value) -> bytes:
    """A number that travels inside an operation, as a tensor of the processor holds it."""
    if isinstance(value, bool):
        return struct.pack("<?15x", value)
    if isinstance(value, int):
        return struct.pack("<q8x", value)
    if isinstance(value, float):
        return struct.pack("<d8x", value)
    return struct.pack("<dd", value.real, value.imag)


class Reader:
    """Reads an answer."""

    def __init__(self, data: bytes, at: int = 0):
        self._data, self._at = data, at

    def get(self, kind: str):
        values = struct.unpack_from("<" + kind, self._data, self._at)
        self._at += struct.calcsize("<" + kind)
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        length = self.get("I")
        self._at += length
        return self._data[self._at - length : self._at].decode(errors="replace")

    def layout(self) -> tuple:
        """Type, flags, sizes, strides, offset."""
        code, flags, count = self.get("BBB")
        sizes = struct.unpack_from(f"<{count}q", self._data, self._at)
        strides = struct.unpack_from(f"<{count}q", self._data, self._at + 8 * count)
        self._at += 16 * count
        return OF_CODE[code], flags, sizes, strides, self.get("q")

    def rest(self) -> bytes:
        return self._data[self._at :]
