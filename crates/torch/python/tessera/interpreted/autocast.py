"""Automatic mixed precision: PyTorch's own lists of what runs in which precision, for this device.

The lists are macros of C++, which PyTorch's wheel carries as a header (`ATen/autocast_mode.h`); they are read from there, so that they are
those of the PyTorch that is installed, but for the one whose entries have other names (`_WITH_TYPE`). `csrc/autocast.cpp` uses the same ones.
Where there is no header, mixed precision is refused.
"""

import pathlib
import re

import torch

from tessera.interpreted import tensors as card

_KEY = "AutocastPrivateUse1"
_HEADER = pathlib.Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
_NAMES = ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE")

#: Operators that have another name where their result is to be of a type that is given.
_WITH_TYPE = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}

_library = []
#: Lower copies of the program's parameters, while autocasting goes on: a gradient is added up in one of them.
_casts = {}


def _lists() -> dict[str, list[str]]:
    """The operators of each list, named with their overloads."""
    text = _HEADER.read_text()
    lists = {}
    for name in _NAMES:
        body = re.search(rf"#define AT_FORALL_{name}\(_\)((?:[^\n]*\\\n)+[^\n]*\n)", text)[1]
        entries = re.findall(r"\b_\((\w+)(?:,\s*(\w+))?\)", body)
        lists[name] = [base + (f".{overload}" if overload else "") for base, overload in entries]
        if not entries:
            raise ValueError(name)
    return lists


def _is_eligible(value) -> bool:
    return (isinstance(value, torch.Tensor) and value.device.type == card.CARD.type and value.dtype.is_floating_point
            and value.dtype != torch.float64)  # fmt: skip


def _lower() -> torch.dtype:
    return torch.get_autocast_dtype(card.CARD.type)


def _cast(value, dtype):
    if isinstance(value, (list, tuple)):
        return [_cast(each, dtype) for each in value]
    if not _is_eligible(value) or value.dtype == dtype:
        return value
    is_parameter = value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()
    # Without gradients a copy would be of no use to what has them.
    if dtype != _lower() or not is_parameter or not (torch.is_autocast_cache_enabled() and torch.is_grad_enabled()):
        return value.to(dtype)
    # By identity; the tensor is kept beside its copy, so that nobody else can have the same one.
    if (known := _casts.get((id(value), dtype))) is None:
        known = _casts[id(value), dtype] = value, value.to(dtype)
    return known[1]


def _call_cast(overload, dtype, args, kwargs):
    return overload(*_cast(args, dtype), **{name: _cast(value, dtype) for name, value in kwargs.items()})


def _lower_precision_fp(overload, args, kwargs):
    return _call_cast(overload, _lower(), args, kwargs)


def _fp32(overload, args, kwargs):
    return _call_cast(overload, torch.float32, args, kwargs)


def _fp32_set_opt_dtype(overload, args, kwargs):
    """Its result is to be exact, unless the program says of which type it is."""
    if args and _is_eligible(args[0]) and kwargs.get("dtype") is None:
        places = [at for at, argument in enumerate(overload._schema.arguments) if argument.name == "dtype"]
        if places and not overload._schema.arguments[places[0]].kwarg_only:
            args = [*args, *(argument.default_value for argument in overload._schema.arguments[len(args) : places[0] + 1])]
            if args[places[0]] is None:
                args[places[0]] = torch.float32
        else:
            kwargs = {**kwargs, "dtype": torch.float32}
    return overload(*args, **kwargs)


def _promote(overload, args, kwargs):
    flat = [each for value in (*args, *kwargs.values()) for each in (value if isinstance(value, (list, tuple)) else (value,))]
    dtypes = {each.dtype for each in flat if _is_eligible(each)}
    wide = torch.float32 if torch.float32 in dtypes else _lower()
    if not dtypes <= {torch.float32, _lower()}:
        raise RuntimeError(f"autocast does not mix {', '.join(map(str, sorted(dtypes, key=str)))}")
    return _call_cast(overload, wide, args, kwargs)


def _with_type(overload, args, kwargs):
    """Its result is to be exact."""
    if not _is_eligible(args[0]):
        return overload(*args, **kwargs)
    args = [*args, *(argument.default_value for argument in overload._schema.arguments[len(args) :])]
    return _overload(_WITH_TYPE[overload._schema.name.removeprefix("aten::") + "." + overload._schema.overload_name])(*args, dtype=torch.float32)


_POLICIES = dict(zip(_NAMES, (_lower_precision_fp, _fp32, _fp32_set_opt_dtype, _promote), strict=True))


def _overload(name: str):
    base, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), variant or "default")


def _kernel(name: str, policy):
    overload = _overload(name)
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(key):
            return policy(overload, args, kwargs)

    return kernel


def _refuse(overload, *args, **kwargs):
    raise NotImplementedError(
        f"PyTorch's lists for mixed precision are not there ({_HEADER}): the dispatcher in Python needs them for torch.autocast; the compiled "
        "one (TESSERA_DISPATCHER=compiled) does not"
    )


def install() -> None:
    """Has `torch.autocast` work for the card, or say why it does not."""
    anything, library = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _library.extend((anything, library))
    try:
        lists = _lists()
    except (OSError, TypeError, ValueError):
        return anything.fallback(_refuse, _KEY)
    anything.fallback(torch.library.fallthrough_kernel, _KEY)
    for name, policy in _POLICIES.items():
        for operator in lists[name]:
            library.impl(operator, _kernel(operator, policy), _KEY)
    for operator in _WITH_TYPE:
        library.impl(operator, _kernel(operator, _with_type), _KEY)
    # In no list of PyTorch's: GPUs refuse it, and a processor computes it like this.
    library.impl("binary_cross_entropy", _kernel("binary_cross_entropy", _fp32), _KEY)
    clear = torch.clear_autocast_cache

    def clear_autocast_cache():
        _casts.clear()
        clear()

    # Called by `torch.autocast` where the outermost one ends.
    torch.clear_autocast_cache = clear_autocast_cache
    return None
