"""Generators of random numbers of a program's own, which draw what a processor's draw."""

import copy
import pickle

import pytest
import serving
import torch

CARD = torch.device("tessera")
pytestmark = pytest.mark.skipif(serving.DEVICE != "cpu", reason="other devices draw other numbers than a processor")


def drawn(generator, device):
    x = torch.ones(6, device=device)
    return [
        torch.randn(5, device=device, generator=generator), torch.randperm(7, device=device, generator=generator),
        torch.empty(3, device=device).uniform_(2, 3, generator=generator), torch.multinomial(x, 3, generator=generator),
        torch.bernoulli(x * 0.5, generator=generator), torch.normal(x, x, generator=generator),
    ]  # fmt: skip


def test_they_draw_as_those_of_the_processor_and_leave_the_programs_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3, device=CARD), torch.rand(3, device=CARD)
    torch.manual_seed(5)
    first = torch.rand(3, device=CARD)
    here, there = torch.Generator().manual_seed(3), torch.Generator(device=CARD).manual_seed(3)
    assert there.device.type == "tessera" and there.initial_seed() == 3
    for _ in range(2):
        for one, other in zip(drawn(here, "cpu"), drawn(there, CARD), strict=True):
            assert torch.equal(one, other.cpu())
    assert torch.equal(first, expected[0]) and torch.equal(torch.rand(3, device=CARD), expected[1])


def test_a_state_is_gone_on_from():
    generator = torch.Generator(device=CARD).manual_seed(1)
    torch.rand(3, device=CARD, generator=generator)
    state = generator.get_state()
    expected = torch.rand(3, device=CARD, generator=generator)
    other = torch.Generator(device=CARD)
    other.set_state(state)
    assert torch.equal(torch.rand(3, device=CARD, generator=other), expected)
    assert torch.equal(torch.Generator(device=CARD).manual_seed(1).get_state(), torch.Generator().manual_seed(1).get_state())


def test_a_wrong_call_leaves_the_programs_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3, device=CARD)
    torch.manual_seed(5)
    generator = torch.Generator(device=CARD).manual_seed(1)
    with pytest.raises(RuntimeError, match=r"expects p to be in \[0, 1\]"):
        torch.empty(2, device=CARD).bernoulli_(2.0, generator=generator)
    assert torch.equal(torch.rand(3, device=CARD), expected)
    with pytest.raises(RuntimeError, match="Expected a 'tessera' device type for generator but found 'cpu'"):
        torch.rand(3, device=CARD, generator=torch.Generator())


def test_copies_go_on_where_it_was():
    generator = torch.Generator(device=CARD).manual_seed(1)
    torch.rand(3, device=CARD, generator=generator)
    copies = copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), generator.clone_state()
    expected = torch.rand(3, device=CARD, generator=generator)
    for one in copies:
        assert torch.equal(torch.rand(3, device=CARD, generator=one), expected)


def test_a_state_of_another_kind_of_device_is_followed_by_numbers_of_this_one():
    generator = torch.Generator(device=CARD)

    def drawn_after(state):
        generator.set_state(torch.tensor(list(state), dtype=torch.uint8))
        return torch.rand(3, device=CARD, generator=generator)

    # Those of GPUs are 16 bytes.
    first = drawn_after(range(16))
    assert torch.equal(first, drawn_after(range(16))) and not torch.equal(first, drawn_after(range(1, 17)))
    with pytest.raises(RuntimeError, match="state"):
        drawn_after(range(15))
    assert torch.rand(3, device=CARD).shape == (3,)
