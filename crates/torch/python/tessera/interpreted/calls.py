"""Calls of operators as keys and as templates.

What changes from call to call without changing shapes (floating point and Scalar arguments, numbers that are tensors) goes to `changing`
and is sent each time; all else is part of the key of the program's cache. The server's template, the same in bytes, is only written when
a key is new. `csrc/encode.cpp` does the same in C++, and `csrc/codec.h` reads it.
"""

import ctypes
import struct

import torch

from tessera import operators
from tessera.interpreted import tensors as card
from tessera.interpreted import wire
from tessera.interpreted.client import BASE, SPAN, STEP

TENSOR, NUMBER, INT, FLOAT, BOOL, TEXT, DEVICE, TENSORS, INTS, FLOATS, BOOLS, NUMBERS, OTHER = range(13)
_KINDS = {
    "TensorType": TENSOR, "NumberType": NUMBER, "IntType": INT, "SymIntType": INT, "ScalarTypeType": INT, "LayoutType": INT,
    "MemoryFormatType": INT, "FloatType": FLOAT, "BoolType": BOOL, "StringType": TEXT, "DeviceObjType": DEVICE,
}  # fmt: skip
_LISTS = {TENSOR: TENSORS, INT: INTS, FLOAT: FLOATS, BOOL: BOOLS, NUMBER: NUMBERS}

_Tensor = torch.Tensor
_PLAIN = {torch.Tensor, torch.nn.Parameter}
_COMPLEX = {torch.complex32, torch.complex64, torch.complex128}
_WRAPPED = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_INTEGER, _DOUBLE = struct.Struct("<q").pack, struct.Struct("<d").pack


def _without_option(of):
    return (of.getElementType(), True) if of.kind() == "OptionalType" else (of, False)


class Argument:
    """One of an operator."""

    __slots__ = ("default", "is_written", "kind", "name", "of_options", "optional", "said")

    def __init__(self, argument):
        inner, self.optional = _without_option(argument.type)
        self.name, self.default, self.said = argument.name, argument.default_value, str(argument.type)
        self.is_written = argument.alias_info is not None and argument.alias_info.is_write
        self.of_options = False
        if inner.kind() == "ListType":
            element, self.of_options = _without_option(inner.getElementType())
            self.kind = _LISTS.get(_KINDS.get(element.kind(), OTHER), OTHER)
        else:
            self.kind = _KINDS.get(inner.kind(), OTHER)


class Signature:
    """What is known of an operator before it is called."""

    def __init__(self, overload):
        schema = overload._schema
        self.name, self.overload_name, self.call = schema.name, schema.overload_name, overload
        self.mutates = schema.is_mutable
        self.arguments = [Argument(argument) for argument in schema.arguments]
        self.kinds = [argument.kind for argument in self.arguments]
        self.keywords = {argument.name: argument.kind for argument in self.arguments}
        words = {what: any(word in self.name for word in parts) for what, parts in operators.WORDS.items()}
        self.plain, self.mixes, self.learns = words["plain"], words["mixes"], words["learns"]
        kinds = [result.type.kind() for result in schema.returns]
        self.always_now = words["now"] or any(kind not in ("TensorType", "ListType") for kind in kinds)
        self.lists = "ListType" in kinds
        #: For each result, the argument that it is.
        self.written = [self._written(result, schema.arguments) for result in schema.returns]
        #: For each result, whether the operator says that it is a view.
        self.aliases = [result.alias_info is not None for result in schema.returns]

    @staticmethod
    def _written(result, arguments):
        if result.alias_info is None or not result.alias_info.is_write:
            return None
        same = [at for at, argument in enumerate(arguments)
                if argument.alias_info and argument.alias_info.is_write and argument.alias_info.before_set == result.alias_info.before_set]  # fmt: skip
        return same[-1] if same else None

    def check_written(self, args, kwargs) -> None:
        """What is written must be on the card: of a number that travels with the call, or an index that is brought there, nothing comes back."""
        for at, argument in enumerate(self.arguments):
            if argument.is_written:
                value, _ = self.value(at, args, kwargs)
                if any(each.device.type == "cpu" for each in (value if isinstance(value, (list, tuple)) else [value]) if each is not None):
                    raise RuntimeError(
                        f"Expected all tensors to be on the same device, but found at least two devices, {card.CARD} and cpu: "
                        "what is on the processor cannot be written by what is computed on the card"
                    )

    def value(self, at: int, args, kwargs):
        """An argument as it was given, and whether it was."""
        if at < len(args):
            return args[at], True
        argument = self.arguments[at]
        return (kwargs[argument.name], True) if argument.name in kwargs else (argument.default, False)


class Call:
    """One call: its key, the tensors it works on with their names, and the numbers that change."""

    __slots__ = ("changing", "key", "names", "tensors")

    def __init__(self, of: Signature, args, kwargs, upload):
        pairs, given = zip(of.kinds, args), ()
        if kwargs:
            # In the order of the template, in which numbers that change are sent.
            given = tuple(kwargs) if len(kwargs) == 1 else tuple(name for name in of.keywords if name in kwargs)
            pairs = [*pairs, *((of.keywords[name], kwargs[name]) for name in given)]
        parts, tensors, names, changing = [len(args), given], [], [], []
        self.tensors, self.names, self.changing = tensors, names, changing
        for kind, value in pairs:
            if value is None:
                parts.append(None)
            elif kind == TENSOR and (type(value) in _PLAIN or isinstance(value, _Tensor)):
                offset = value.storage_offset()
                try:
                    at = value.data_ptr() - BASE
                except RuntimeError:
                    at = -1
                if offset:
                    at -= offset * value.itemsize
                dtype = value.dtype
                if not 0 <= at < SPAN or value.is_neg() or (dtype in _COMPLEX and value.is_conj()):
                    self._slowly(value, parts, of, upload)
                    continue
                parts += (dtype, value.shape, value.stride(), offset)
                tensors.append(value)
                names.append(at // STEP)
            elif kind == INT and type(value) is int:
                parts.append(value)
            else:
                self._other(kind, value, parts, of, upload)
        self.key = tuple(parts)

    def _slowly(self, value, parts, of, upload):
        """A tensor that is empty, turned, or not of the card."""
        if value.device.type != card.CARD.type:
            if value.device.type != "cpu":
                raise RuntimeError(f"expected tensors of one device, found {card.CARD} and {value.device}")
            if is_inline(value):
                parts += ("S", value.dtype)
                plain = value.resolve_conj().resolve_neg()
                return self.changing.append(ctypes.string_at(plain.data_ptr(), plain.itemsize).ljust(wire.SCALAR, b"\0"))
            if not of.mixes:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {card.CARD} and cpu!"
                )
            value = upload(value)
        if value.layout != torch.strided:
            raise NotImplementedError("sparse tensors are not supported on a virtual card")
        parts += ("T", *card.layout_of(value))
        self.tensors.append(value)
        self.names.append(card.name_of(value))
        return None

    def _other(self, kind, value, parts, of, upload):
        if kind == INT:
            parts.append(whole(value))
        elif kind in (NUMBER, TENSOR):
            self._number(kind, value, parts, of.plain)
        elif kind == FLOAT:
            parts.append(_DOUBLE(value) if of.plain else "D")
            if not of.plain:
                self.changing.append(_DOUBLE(value))
        elif kind in (BOOL, TEXT):
            parts.append(value)
        elif kind == DEVICE:
            parts.append("V")
        elif kind == INTS:
            parts.append(tuple(map(whole, value)))
        elif kind == TENSORS:
            parts.append(len(value))
            for element in value:
                if element is None:
                    parts.append(None)
                elif isinstance(element, _Tensor):
                    self._slowly(element, parts, of, upload)
                else:
                    self._number(TENSOR, element, parts, of.plain)
        elif kind == FLOATS:
            parts.append(b"".join(map(_DOUBLE, value)))
        elif kind == BOOLS:
            parts.append(tuple(map(bool, value)))
        elif kind == NUMBERS:
            parts.append(len(value))
            for element in value:
                self._number(NUMBER, element, parts, of.plain)
        else:
            refuse(value)

    def _number(self, kind, value, parts, plain):
        """A number: of its own, or in place of a tensor, as which it decides less about the type of the result."""
        parts.append(type(value))
        if kind == TENSOR:
            if type(value) not in _WRAPPED:
                refuse(value)
            self.changing.append(wire.number(value))
        elif isinstance(value, bool):
            parts.append(value)
        elif isinstance(value, complex):
            parts.append(wire.number(value))
        elif isinstance(value, (int, torch.SymInt)):
            (parts if plain else self.changing).append(_INTEGER(whole(value)))
        else:
            (parts if plain else self.changing).append(_DOUBLE(float(value)))


def whole(value) -> int:
    """Types, layouts and memory formats are whole numbers within PyTorch."""
    if type(value) is int:
        return value
    code = wire.PLAIN_CODES.get(value)
    return int(value) if code is None else code


def refuse(value):
    if isinstance(value, torch.Generator):
        raise NotImplementedError("generators of one's own are not supported on a virtual card; seed it with torch.manual_seed")
    raise NotImplementedError(f"an argument of kind {type(value).__name__} is not supported on a virtual card")


def is_inline(value: torch.Tensor) -> bool:
    """Whether a tensor of the processor travels as a number."""
    return value.device.type == "cpu" and value.layout == torch.strided and value.dim() == 0


def template(of: Signature, args, kwargs, tensors) -> bytes:
    """The server's template of a call. `tensors` are those that it works on, as they are on the card."""
    tensors = iter(tensors)
    written = (_template_of(argument, *of.value(at, args, kwargs), of.plain, tensors) for at, argument in enumerate(of.arguments))
    return b"".join(written)


def _template_of(argument: Argument, value, given: bool, plain: bool, tensors) -> bytes:
    kind = argument.kind
    if value is None:
        return b"U" if kind == TENSOR and not argument.optional else b"N"
    if kind == TENSOR:
        return _tensor(value, tensors)
    if kind == INT:
        return b"i" + _INTEGER(whole(value))
    if kind in (NUMBER, FLOAT):
        return _scalar(kind, value, plain or not given)
    if kind == BOOL:
        return b"b" + bytes([bool(value)])
    if kind == TEXT:
        return b"s" + wire.text(value)
    if kind == DEVICE:
        return b"V"
    return _list(argument, value, plain or not given, tensors)


def _tensor(value, tensors) -> bytes:
    if not isinstance(value, _Tensor):
        return b"S" + bytes([wire.CODES[_WRAPPED[type(value)]], 1])
    if is_inline(value):
        return b"S" + bytes([wire.code_of(value.dtype), 0])
    return b"T" + wire.layout(*card.layout_of(next(tensors)))


def _scalar(kind, value, plain: bool) -> bytes:
    if kind == FLOAT:
        value = float(value)
    if isinstance(value, bool):
        return b"b" + bytes([value])
    if isinstance(value, complex):
        return b"c" + wire.number(value)
    if isinstance(value, (int, torch.SymInt)):
        return b"i" + _INTEGER(whole(value)) if plain else b"I"
    return b"d" + _DOUBLE(float(value)) if plain else b"D"


def _list(argument: Argument, value, plain: bool, tensors) -> bytes:
    kind, count = argument.kind, struct.pack("<I", len(value))
    if len(value) > wire.MOST_ELEMENTS:
        raise NotImplementedError(f"a list of {len(value)} elements is more than the slice server takes, {wire.MOST_ELEMENTS}")
    if kind == INTS:
        return b"L" + count + b"".join(_INTEGER(whole(element)) for element in value)
    if kind == FLOATS:
        return b"l" + count + b"".join(map(_DOUBLE, value))
    if kind == BOOLS:
        return b"k" + count + bytes(map(bool, value))
    if kind == NUMBERS:
        return b"P" + count + b"".join(_scalar(NUMBER, element, plain) for element in value)
    if kind != TENSORS:
        refuse(value)
    tag, nothing = (b"O", b"N") if argument.of_options else (b"M", b"U")
    return tag + count + b"".join(nothing if element is None else _tensor(element, tensors) for element in value)
