"""PyTorch's operators by their names, as the dispatcher is told of them: which of them it takes itself, and how these are called."""

import torch

#: What is special about operators whose names have one of these words.
WORDS = {
    "plain": ["range", "space"],  # numbers decide shapes
    "mixes": ["index"],  # takes indices on the processor
    "now": ["_embedding_bag"],  # gives what inference cannot know
    # What it gives depends on the device, or is not as inference says: the first call tells.
    "learns": ["batch_norm", "layer_norm", "group_norm", "multilabel_margin_loss_forward"],
}

# Chosen or composed by PyTorch, which knows better which one a device without kernels of its own wants.
_WHOLE = {"aten::_fused_sdp_choice", "aten::is_pinned", "aten::_pin_memory"}
_WHOLE_WORDS = ("quantize", "_scaled_dot_product")
_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_ALWAYS = {"aten::convolution", "aten::convolution_backward", "aten::conj_physical_", _ATTENTION, f"{_ATTENTION}_backward"}


def bound() -> list[str]:
    """Operators whose kernels for the processor would be chosen before a fallback, or that PyTorch composes of them: each is bound by
    itself. Named without `aten::`."""
    return [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and _is_bound(name)]


def _is_bound(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    base = name.partition(".")[0]
    if base in _ALWAYS:
        return True
    if base in _WHOLE or any(word in base for word in _WHOLE_WORDS):
        return False
    if has(name, "CPU"):
        return True
    return base.startswith("aten::_foreach_") and has(name, "CompositeExplicitAutograd")
