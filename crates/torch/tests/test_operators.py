"""A fixed sample of PyTorch's own samples; `python run_program.py opinfo.py` runs all of them."""

import os

import opinfo
import pytest
import torch

# Every so many of the list, and those that once were wrong.
EVERY = int(os.environ.get("OPINFO_EVERY", "6"))
ALWAYS = {
    "nn.functional.cross_entropy", "nn.functional.ctc_loss", "nn.functional.scaled_dot_product_attention", "fill", "index_put", "cat", "matmul",
    "masked_select",
}  # fmt: skip

# What does not pass, and must say so rather than give something else (docs/device-reference.md).
KNOWN = {"sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse", "tensor_split"}


def sample(dtype):
    operators = opinfo.operators(dtype)
    return [op for at, op in enumerate(operators) if at % EVERY == 0 or opinfo.name_of(op) in ALWAYS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_operators_give_what_the_processor_gives(dtype):
    counted, wrong = 0, []
    for op in sample(dtype):
        result, why = opinfo.check(op, dtype)
        counted += result != "skip"
        if result in ("fail", "unsupported") and opinfo.name_of(op) not in KNOWN:
            wrong.append(f"{opinfo.name_of(op)}: {result}: {why[:200]}")
    assert counted > 540 // EVERY
    assert not wrong, "\n".join(wrong)
