"""Tensors of the card, without a line of C++: what PyTorch takes for memory is a name at an address that nothing lies behind.

They are plain tensors. PyTorch makes them of capsules of DLPack that `_native` gives it, and says there when the last alias of a storage
is gone; views of them are made by its own kernels, which look at nothing but sizes.
"""

import functools

import torch

from tessera.interpreted import wire
from tessera.interpreted.client import BASE, QUEUE, SPAN, STEP

_CPU = torch._C.DispatchKey.CPU
CARD = None  # torch.device("tessera", 0), once that has its name
_CONJUGATE, _NEGATIVE = wire.FLAG["Conjugate"], wire.FLAG["Negative"]
_from_dlpack = torch._C._from_dlpack
_set_view = torch.ops.aten.set_.source_Storage_storage_offset
_as_strided = torch.ops.aten.as_strided.default
#: How many layouts are kept that new tensors have.
_FORMS = 1 << 12


def name_of(tensor: torch.Tensor) -> int:
    """The name of a tensor's storage; raises for tensors of other devices."""
    at = tensor.untyped_storage().data_ptr() - BASE
    if not 0 <= at < SPAN:
        raise RuntimeError(f"a tensor of {tensor.device} has no name on the virtual card")
    return at // STEP


@functools.cache
def _like(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu")


@functools.cache
def _has_word(dtype: torch.dtype) -> bool:
    """Whether DLPack knows a type, and by a word that is not another one's."""
    try:
        return _from_dlpack(torch._C._to_dlpack(_like(dtype))).dtype == dtype
    except (RuntimeError, BufferError, NotImplementedError):
        return False


def _capsule(dtype: torch.dtype):
    return torch._C._to_dlpack(_like(dtype))


def contiguous(sizes) -> tuple[int, ...]:
    """Strides of a tensor that lies in one piece."""
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def reach(dtype: torch.dtype, sizes, strides, offset: int) -> int:
    """Bytes that a tensor reaches in its storage."""
    if 0 in sizes:
        return 0
    return (offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))) * _like(dtype).itemsize


class Form:
    """How a new tensor lies in a storage of its own."""

    __slots__ = ("_dtype", "_flags", "_native", "_offset", "_sizes", "_strides", "bytes", "made")

    def __init__(self, dtype, flags, sizes, strides, offset, nbytes):
        self.bytes = nbytes
        wire.code_of(dtype)
        self._dtype, self._flags, self._sizes, self._strides, self._offset = dtype, flags, sizes, strides, offset
        whole = not flags and offset == 0 and nbytes == reach(dtype, sizes, strides, 0)
        if whole and _has_word(dtype):
            self._native = QUEUE.form(_capsule(dtype), sizes, strides, nbytes)
            made = self._native.made
            self.made = lambda name: _from_dlpack(made(name))
        else:
            self._native = QUEUE.form(_capsule(torch.uint8), [nbytes], [1], nbytes)
            self.made = self._made_within

    def _made_within(self, name: int) -> torch.Tensor:
        whole = _from_dlpack(self._native.made(name))
        return within(whole.untyped_storage(), self._dtype, self._flags, self._sizes, self._strides, self._offset)


@functools.lru_cache(maxsize=_FORMS)
def form(dtype, sizes, strides, nbytes) -> Form:
    """Of a new tensor that begins where its storage does."""
    return Form(dtype, 0, sizes, strides, 0, nbytes)


def within(storage, dtype, flags, sizes, strides, offset) -> torch.Tensor:
    """A tensor in a storage that is there."""
    tensor = _nothing(dtype)
    place(tensor, storage, offset, sizes, strides)
    return with_flags(tensor, flags)


def _nothing(dtype) -> torch.Tensor:
    """A tensor without elements and without a name."""
    return torch._C._acc.create_empty_tensor((0,), dtype)


def place(tensor, storage, offset, sizes, strides) -> None:
    """Has a tensor lie there. What it reaches must be within the storage: PyTorch cannot make it larger."""
    if reach(tensor.dtype, sizes, strides, offset) > storage.nbytes():
        raise RuntimeError(f"a tensor of sizes {tuple(sizes)} is outside its storage of {storage.nbytes()} bytes")
    _set_view._op_dk(_CPU, tensor, storage, offset, list(sizes), list(strides))


def view(tensor, dtype, flags, sizes, strides, offset) -> torch.Tensor:
    """A view of a tensor."""
    if dtype == tensor.dtype and not flags and not tensor.is_neg() and not tensor.is_conj():
        return _as_strided._op_dk(_CPU, tensor, list(sizes), list(strides), offset)
    return within(tensor.untyped_storage(), dtype, flags, sizes, strides, offset)


def with_flags(tensor, flags: int) -> torch.Tensor:
    if flags & _CONJUGATE:
        torch._C._set_conj(tensor, True)
    if flags & _NEGATIVE:
        torch._C._set_neg(tensor, True)
    return tensor


def flags_of(tensor) -> int:
    return (_CONJUGATE if tensor.is_conj() else 0) | (_NEGATIVE if tensor.is_neg() else 0)


def layout_of(tensor) -> tuple:
    """Type, flags, sizes, strides, offset."""
    return tensor.dtype, flags_of(tensor), tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def is_shared(tensor) -> bool:
    """Whether other tensors have the same storage. One has the tensor itself, and one the object that asks."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) > 2


def widen(tensor, nbytes: int) -> None:
    """The server has made the storage of a tensor larger. PyTorch cannot tell its own storage so: this tensor gets another one of the
    same name, and its aliases go on with theirs, which is the same memory."""
    storage, name = tensor.untyped_storage(), name_of(tensor)
    larger = QUEUE.form(_capsule(torch.uint8), [nbytes], [1], nbytes)
    whole = _from_dlpack(larger.grown(name, nbytes - storage.nbytes()))
    place(tensor, whole.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
