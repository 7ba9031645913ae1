"""Attention is one operator on the card: what it gives, what it takes, and where other devices than a processor compute it."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

CARD = torch.device("tessera")
KEPT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
ELSEWHERE = torch._C.DispatchKey.CompositeExplicitAutograd


def parts(dtype=torch.float32, of_keys=4):
    torch.manual_seed(0)
    # As models make them: heads beside one another in each word.
    return [torch.randn(2, length, count, 8, dtype=dtype).transpose(1, 2) for length, count in ((9, 4), (13, of_keys), (13, of_keys))]


def with_gradients(inputs, device, **how):
    inputs = [one.detach().to(device).requires_grad_() for one in inputs]
    how = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in how.items()}
    out = scaled_dot_product_attention(*inputs, **how)
    return [one.cpu() for one in (out, *torch.autograd.grad((out * out).sum(), inputs))]


def check(inputs, **how):
    for here, there in zip(with_gradients(inputs, "cpu", **how), with_gradients(inputs, CARD, **how), strict=True):
        torch.testing.assert_close(there, here)


MASKS = {
    "none": {}, "causal": {"is_causal": True}, "scaled": {"scale": 0.3},
    "of words": {"attn_mask": torch.arange(13) < torch.tensor([[[[5]]], [[[13]]]])},
    "of pairs": {"attn_mask": torch.linspace(-2, 2, 9 * 13).view(9, 13)},
    "of all": {"attn_mask": torch.linspace(-2, 2, 2 * 4 * 9 * 13).view(2, 4, 9, 13)},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("how", MASKS.values(), ids=MASKS)
def test_it_gives_what_the_processors_kernel_gives(how, dtype):
    how = {name: value.to(dtype) if name == "attn_mask" and value.is_floating_point() else value for name, value in how.items()}
    check(parts(dtype), **how)


def test_heads_that_share_keys_are_attended_to_as_on_the_processor():
    check(parts(of_keys=2), enable_gqa=True)


@pytest.mark.parametrize("mask", [None, torch.ones(9, 9).tril() > 0, torch.rand(4, 9, 9) > 0.3], ids=["none", "of pairs", "of all"])
def test_one_sample_alone_is_attended_to_as_on_the_processor(mask):
    check([torch.randn(4, 9, 8) for _ in range(3)], attn_mask=mask)


NOTHING, SOME = torch.zeros(2, 4, 0, 8), torch.zeros(2, 4, 9, 8)
WRONG = {
    "both a mask and causal": ((SOME, SOME, SOME), {"attn_mask": torch.zeros(9, 9), "is_causal": True}),
    "a mask of whole numbers": ((SOME, SOME, SOME), {"attn_mask": torch.zeros(9, 9, dtype=torch.int)}),
    "a mask of another precision": ((SOME, SOME, SOME), {"attn_mask": torch.zeros(9, 9, dtype=torch.float64)}),
    "a mask of other words": ((SOME, SOME, SOME), {"attn_mask": torch.zeros(9, 5)}),
    "no words": ((NOTHING, SOME, SOME), {}), "no keys": ((SOME, NOTHING, NOTHING), {}), "no heads": ((torch.zeros(2, 0, 9, 8),) * 3, {}),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "how"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_or_empty_is_what_it_is_on_the_processor(inputs, how):
    def on_card():
        named = {name: value.to(CARD) if isinstance(value, torch.Tensor) else value for name, value in how.items()}
        return scaled_dot_product_attention(*(one.to(CARD) for one in inputs), **named).cpu()

    try:
        expected = scaled_dot_product_attention(*inputs, **how)
    except (RuntimeError, ValueError) as error:
        with pytest.raises(type(error)):
            on_card()
    else:
        torch.testing.assert_close(on_card(), expected)


def test_it_keeps_no_number_for_each_pair_of_words():
    length, pairs = 1024, 4 * 1024 * 1024 * 4
    inputs = [torch.randn(1, 4, length, 16, device=CARD, requires_grad=True) for _ in range(3)]
    torch.tessera.synchronize()
    before, operations = torch.tessera.slice_status()["memory_used"], torch.tessera.statistics()["operations"]
    out = scaled_dot_product_attention(*inputs, is_causal=True)
    assert torch.tessera.statistics()["operations"] - operations == 1
    assert torch.tessera.slice_status()["memory_used"] - before < pairs / 8
    out.sum().backward()


def test_what_is_dropped_out_is_composed_and_drawn_as_on_the_processor():
    drawn = []
    for device in ("cpu", CARD):
        inputs = [one.to(device) for one in parts()]
        torch.manual_seed(7)
        drawn.append(scaled_dot_product_attention(*inputs, dropout_p=0.4).cpu())
    torch.testing.assert_close(drawn[1], drawn[0])


def test_who_asks_for_a_way_has_it():
    inputs = [one.to(CARD) for one in parts()]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        operations = torch.tessera.statistics()["operations"]
        composed = scaled_dot_product_attention(*inputs)
        assert torch.tessera.statistics()["operations"] - operations > 3
    torch.testing.assert_close(composed.cpu(), scaled_dot_product_attention(*inputs).cpu())
    # One that only GPUs have is no error: programs that ask for it have run on the card before.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        torch.testing.assert_close(scaled_dot_product_attention(*inputs).cpu(), composed.cpu())


@pytest.mark.parametrize("how", [MASKS["none"], MASKS["causal"], MASKS["of pairs"]], ids=["none", "causal", "of pairs"])
def test_devices_without_such_a_kernel_compute_the_same(how):
    """Here on a processor, as any other device would: it goes back without the sums of the way there."""
    inputs = parts()
    causal, mask = how.get("is_causal", False), {"attn_mask": how.get("attn_mask")}
    out, sums = KEPT(*inputs, 0.0, causal, **mask)
    other, nothing = KEPT.default._op_dk(ELSEWHERE, *inputs, 0.0, causal, **mask)
    torch.testing.assert_close(other, out)
    assert nothing.shape == sums.shape and nothing.dtype == sums.dtype and nothing.isnan().all()
    gradient = torch.randn(out.shape)
    expected = BACK(gradient, *inputs, out, sums, 0.0, causal, **mask)
    for one, same in zip(BACK.default._op_dk(ELSEWHERE, gradient, *inputs, other, nothing, 0.0, causal, **mask), expected, strict=True):
        torch.testing.assert_close(one, same)
    # A card that has moved to a processor in between, all of it or the part that had the second sample.
    sums[1:] = torch.nan
    on_card = [one.to(CARD) for one in (gradient, *inputs, other, sums)]
    mask = {name: value if value is None else value.to(CARD) for name, value in mask.items()}
    for one, same in zip(BACK(*on_card, 0.0, causal, **mask), expected, strict=True):
        torch.testing.assert_close(one.cpu(), same)
