"""What a dispatcher cannot do by sending an operator: make tensors, copy between devices, change where a tensor lies. And what PyTorch is
told of the device. `csrc/kernels.cpp` says the same in C++."""

import ctypes
import functools
import struct

import torch

from tessera import operators
from tessera.interpreted import tensors as card
from tessera.interpreted import wire
from tessera.interpreted.client import CLIENT, QUEUE, used
from tessera.interpreted.dispatch import operator_of

_aten = torch.ops.aten
_CPU = torch._C.DispatchKey.CPU
_ALLOCATE, _WRITE, _READ, _RESIZE = (wire.COMMAND[name] for name in ("Allocate", "Write", "Read", "Resize"))


def _refuse_layout(layout) -> None:
    if layout not in (None, torch.strided):
        raise NotImplementedError("sparse tensors are not supported on a virtual card")


@used
def _allocate(form) -> torch.Tensor:
    CLIENT.ask_for(form.bytes)
    name = CLIENT.storages()
    made = form.made(name)
    QUEUE.put(struct.pack("<BQQ", _ALLOCATE, name, form.bytes))
    return made


def empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    _refuse_layout(layout)
    dtype = dtype or torch.get_default_dtype()
    size = tuple(map(int, size))
    if memory_format in (None, torch.contiguous_format):
        if any(length < 0 for length in size):
            raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
        strides = card.contiguous(size)
    else:
        strides = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format).stride()
    return empty_strided(size, strides, dtype)


def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    _refuse_layout(layout)
    dtype = dtype or torch.get_default_dtype()
    size, stride = tuple(map(int, size)), tuple(map(int, stride))
    if len(size) != len(stride) or any(number < 0 for number in (*size, *stride)):
        torch.empty_strided(size, stride, dtype=dtype, device="meta")  # says what is wrong with it
    return _allocate(card.form(dtype, size, stride, card.reach(dtype, size, stride, 0)))


def zeros(size, dtype=None, layout=None, device=None, pin_memory=None):
    """PyTorch's own gives a storage of the wrong size, which gradients are then read from."""
    return empty(size, dtype, layout).zero_()


def _tensor_bytes(tensor) -> bytes:
    return struct.pack("<Q", card.name_of(tensor)) + wire.layout(
        tensor.dtype, 0, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    )


@used
def _write(to, from_) -> None:
    # The server knows nothing of conjugate and negative views: what lies in the storage is written.
    plain = from_.to(to.dtype).expand(to.shape).contiguous().resolve_conj().resolve_neg()
    if to.is_conj():
        plain = plain.conj().resolve_conj()
    if to.is_neg():
        plain = plain.neg()
    nbytes, bulk = plain.nbytes, plain.nbytes > wire.INLINE
    command = bytes([_WRITE]) + _tensor_bytes(to) + struct.pack("<QB", nbytes, bulk)
    if bulk:
        QUEUE.write(command, plain.data_ptr(), nbytes)
    else:
        QUEUE.put(command + (ctypes.string_at(plain.data_ptr(), nbytes) if nbytes else b""))


def upload(from_) -> torch.Tensor:
    """A tensor of the processor on the card."""
    made = empty(from_.shape, from_.dtype)
    _write(made, from_)
    return made


@used
def _receive(from_, host) -> None:
    """Reads a tensor into memory of the program that is laid out as it is sent."""
    CLIENT.waits += 1
    answer = QUEUE.read(bytes([_READ]) + _tensor_bytes(from_), host.data_ptr(), host.nbytes)
    if answer is not None:
        CLIENT.check(answer)


def _fetch(from_) -> torch.Tensor:
    host = torch.empty(from_.shape, dtype=from_.dtype, device="cpu")
    _receive(from_, host)
    return card.with_flags(host, card.flags_of(from_))


def _is_alike(from_, to) -> bool:
    """Whether what is sent of a tensor is byte for byte what another has to hold."""
    same = to.device.type == "cpu" and to.is_contiguous() and to.dtype == from_.dtype and to.shape == from_.shape
    return same and card.flags_of(from_) == card.flags_of(to)


def copy_from(self, to, non_blocking=False):
    of_card = self.device.type == card.CARD.type, to.device.type == card.CARD.type
    if all(of_card):
        operator_of(_aten.copy_.default, upload)(to, self)
    elif of_card[1]:
        if self.device.type != "cpu":
            raise RuntimeError(f"a tensor is copied to a virtual card from the processor, not from {self.device}")
        _write(to, self)
    elif _is_alike(self, to):
        _receive(self, to)
    else:
        to.copy_(_fetch(self))
    return to


def copy_from_and_resize(self, to):
    to.resize_(self.shape)
    return copy_from(self, to)


def to_copy(self, **options):
    """Without `non_blocking`, for which PyTorch asks the device for memory of its own on the processor; a copy from the card waits."""
    return _aten._to_copy.default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, self, **{**options, "non_blocking": False})


def item(self):
    return _fetch(self).item()


def histogram(self, bins=100, min=0, max=0):
    """Programs count whole numbers with it on any device but the processor, which cannot. The counts are the same in floating point."""
    whole = not self.dtype.is_floating_point and not self.dtype.is_complex
    counted = operator_of(_aten.histc.default, upload)(self.to(torch.float64) if whole else self, bins, min, max)
    return counted.to(self.dtype) if whole else counted


@used
def _grow(tensor, nbytes: int) -> None:
    """While it grows, old and new are there at once."""
    if card.is_shared(tensor):
        raise NotImplementedError("a tensor grows here only when no other one shares its storage; the compiled dispatcher can do that")
    CLIENT.ask_for(nbytes)
    QUEUE.put(struct.pack("<BQQ", _RESIZE, card.name_of(tensor), nbytes))
    card.widen(tensor, nbytes)


def resize(self, size, memory_format=None):
    size = tuple(map(int, size))
    offset = self.storage_offset()
    if tuple(self.shape) != size:
        strides = card.contiguous(size)
        nbytes = card.reach(self.dtype, size, strides, offset)
        if nbytes > self.untyped_storage().nbytes():
            _grow(self, nbytes)
        card.place(self, self.untyped_storage(), offset, size, strides)
    if memory_format not in (None, torch.preserve_format):
        strides = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format).stride()
        card.place(self, self.untyped_storage(), offset, size, strides)
    return self


def set_view(self, source, storage_offset, size, stride=()):
    if source.device.type != card.CARD.type:
        raise RuntimeError(f'Attempted to set the storage of a tensor on device "{card.CARD}" to a storage on different device '
                           f'"{source.device}"')  # fmt: skip
    size, stride = tuple(map(int, size)), tuple(map(int, stride)) or card.contiguous(size)
    needed = card.reach(self.dtype, size, stride, storage_offset)
    if needed > source.nbytes():
        raise NotImplementedError(
            f"the dispatcher in Python cannot make a storage larger that it is given ({source.nbytes()} bytes, {needed} are needed): "
            "that needs the compiled dispatcher (TESSERA_DISPATCHER=compiled)"
        )
    card.place(self, source, storage_offset, size, stride)
    return self


def set_storage(self, source):
    return set_view(self, source, 0, (source.nbytes() // self.itemsize,), (1,))


def set_tensor(self, source):
    return set_view(self, source.untyped_storage(), source.storage_offset(), source.shape, source.stride())


def set_empty(self):
    return set_view(self, empty((0,), torch.uint8).untyped_storage(), 0, (0,), (1,))


_composed = functools.partial(_aten.scaled_dot_product_attention.default._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)
_choice = functools.partial(_aten._fused_sdp_choice.default._op_dk, _CPU)


def _is_whole(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa) -> bool:
    """Whether a processor would compute it as one operator: asked as PyTorch's own asks, which looks at these before."""
    if value.numel() == 0 or query.shape[-2] == 0:
        return False
    if mask is not None and (is_causal or mask.dtype not in (torch.bool, torch.float32, query.dtype)):
        return False
    if not (torch.backends.cuda.flash_sdp_enabled() or torch.backends.cuda.math_sdp_enabled()):
        return False
    chosen = _choice(query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return chosen == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """As one operator where a processor would compute it as one (`csrc/attention.cpp`)."""
    if query.dim() == key.dim() == value.dim() == 3:
        query, key, value = (of.unsqueeze(0) for of in (query, key, value))
        mask = attn_mask.unsqueeze(0) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
        return attention(query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa).squeeze(0)
    if not _is_whole(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
        return _composed(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -torch.inf)
    return _aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def refuse_quantised(*args, **kwargs):
    raise NotImplementedError("quantised tensors are not supported on a virtual card")


def _natively(name: str):
    """PyTorch's own kernel for the processor, for views: it looks at sizes, and not at what lies there."""
    overload = getattr(_aten, name).default
    return functools.partial(overload._op_dk, _CPU)


_OWN = {
    "empty.memory_format": empty, "empty_strided": empty_strided, "_efficientzerotensor": zeros, "resize_": resize,
    "_copy_from": copy_from, "_copy_from_and_resize": copy_from_and_resize, "_local_scalar_dense": item, "histc": histogram,
    "_to_copy": to_copy,
    "set_.source_Storage": set_storage, "set_.source_Storage_storage_offset": set_view, "set_.source_Tensor": set_tensor, "set_": set_empty,
    "quantize_per_tensor": refuse_quantised,
}  # fmt: skip
_VIEWS = {name: _natively(name) for name in ("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex")}


def _plainly(kernel):
    """A kernel for which a tensor of a subclass is a tensor."""

    @functools.wraps(kernel)
    def plain(*args, **kwargs):
        with torch._C.DisableTorchFunctionSubclass():
            return kernel(*args, **kwargs)

    return plain


_libraries = []  # what is registered is so as long as these live


def _library(namespace: str):
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    return library


def _overload_of(name: str):
    base, _, overload = name.partition(".")
    return getattr(getattr(_aten, base), overload or "default")


def _bound(name: str):
    """The kernel of an operator, which is looked at when it is called first."""
    known = None

    def kernel(*args, **kwargs):
        nonlocal known
        if known is None:
            known = operator_of(_overload_of(name), upload)
        return known(*args, **kwargs)

    return kernel


def install() -> None:
    """Has PyTorch bring every operator of the card here."""
    _library("_").fallback(lambda overload, *args, **kwargs: operator_of(overload, upload)(*args, **kwargs), "PrivateUse1")
    library = _library("aten")
    own = {name: _plainly(kernel) for name, kernel in _OWN.items()} | _VIEWS
    for name, kernel in own.items():
        library.impl(name, kernel, "PrivateUse1")
    for name in operators.bound():
        if name not in own:
            library.impl(name, _bound(name), "PrivateUse1")
    # PyTorch composes it, and asks only devices in C++ whether they would rather not.
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library.impl("scaled_dot_product_attention", attention, key)
    # `_copy_from` sees conjugate and negative bits itself: their fallbacks would clone, which copies, which clones.
    for key in ("Conjugate", "Negative"):
        library.impl("_copy_from", torch.library.fallthrough_kernel, key)
    # Memory of the processor is as good as any: nothing is copied from it while the program goes on.
    library.impl("_pin_memory", lambda self, device=None: self.clone(), "CPU")
    library.impl("is_pinned", lambda self, device=None: False, "CPU")
