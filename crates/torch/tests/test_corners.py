"""Where a device and the processor part easily: what a program sees is the processor's, or a refusal."""

import copy
import os

import pytest
import torch
from torch import nn

CARD = torch.device("tessera")


def test_a_cast_without_gradients_is_not_taken_for_one_with_them():
    layer, inputs = nn.Linear(2, 2).to(CARD), torch.ones(1, 2, device=CARD)
    for without in (torch.no_grad, torch.inference_mode):
        with torch.autocast("tessera", dtype=torch.bfloat16):
            with without():
                layer(inputs)
            loss = layer(inputs).sum()
        loss.backward()
        assert layer.weight.grad is not None
        layer.weight.grad = None


def test_a_forked_process_says_nothing_to_the_card():
    kept = torch.ones(4, device=CARD)
    assert kept.sum().item() == 4
    child = os.fork()
    if child == 0:
        refused = 0
        for _ in range(40):
            try:
                torch.tessera.manual_seed(5)
            except RuntimeError:
                refused += 1
        os._exit(0 if refused == 40 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.sum().item() == 4


def test_what_decides_whether_an_argument_is_given_back_is_looked_at():
    ones = torch.ones(64, device=CARD)
    torch.native_dropout(ones, 0.0, True)
    assert set(torch.native_dropout(ones, 0.5, True)[0].tolist()) == {0.0, 2.0}
    given, _ = torch.native_dropout(ones, 0.5, False)
    given.add_(1)
    assert ones.tolist() == [1.0] * 64


def test_a_copy_that_cannot_be_is_one_error_and_the_card_goes_on():
    kept = torch.ones(3, device=CARD)
    torch.zeros(1, device=CARD).expand(3).copy_(torch.ones(3))
    with pytest.raises(RuntimeError, match="memory location"):
        torch.tessera.synchronize()
    assert kept.sum().item() == 3


def test_a_result_may_grow_beside_an_argument_of_the_same_storage():
    values = torch.ones(4, 3).to(CARD)
    out = values[4:4]
    torch.add(values, 1, out=out)
    assert out.cpu().tolist() == [[2.0] * 3] * 4


def test_complex_numbers_are_conjugated_in_place():
    values = torch.tensor([1 + 2j, 3 - 1j]).to(CARD)
    values.conj_physical_()
    assert values.cpu().tolist() == [1 - 2j, 3 + 1j]


def test_what_grows_keeps_its_aliases():
    values = torch.arange(6.0).to(CARD)
    alias = values[1:4]
    values.resize_(100)
    values.fill_(5)
    alias.resize_(20)
    assert values.sum().item() == 500
    values.resize_(8)
    values.copy_(torch.arange(8.0))
    assert values[:6].cpu().tolist() == [0, 1, 2, 3, 4, 5]


def test_storages_grow_are_shared_and_are_freed():
    before = torch.tessera.memory_allocated()
    values = torch.arange(6.0).to(CARD)
    out = torch.empty(0, device=CARD)
    torch.add(values, 1, out=out)
    assert out.tolist() == [1, 2, 3, 4, 5, 6]
    found = torch.empty(0, dtype=torch.long, device=CARD)
    assert torch.nonzero(values > 3, out=found).flatten().tolist() == [4, 5]
    one, other = copy.deepcopy((out, out))
    assert one is other and one.tolist() == out.tolist()
    square = torch.empty(0, device=CARD).set_(out.untyped_storage(), 1, (2, 2), (1, 2))
    square.zero_()
    assert out.tolist() == [1, 0, 0, 0, 0, 6] and one[1] == 2
    assert torch.UntypedStorage(8, device=CARD).nbytes() == 8
    del values, out, found, one, other, square
    torch.tessera.synchronize()
    assert torch.tessera.memory_allocated() == before == torch.tessera.slice_status()["memory_used"]


def test_mixed_precision_runs_what_pytorch_says_in_which_precision():
    a, x = torch.randn(4, 4).to(CARD), torch.randn(4, 4, dtype=torch.bfloat16).to(CARD)
    half, single = torch.bfloat16, torch.float32
    with torch.autocast("tessera", dtype=half):
        results = a @ a, torch.exp(x), x.sum(), x.sum(dtype=half), torch.softmax(x, 0), torch.addcmul(a, x, x), x + x
    assert [result.dtype for result in results] == [half, single, single, half, single, single, half]


def test_tensors_are_pickled_as_those_of_any_device():
    import pickle

    whole = torch.arange(12.0, device="tessera").view(3, 4)
    there = pickle.loads(pickle.dumps({"rows": whole[1:], "whole": whole, "parameter": nn.Parameter(whole.clone())}))
    assert there["rows"].device == whole.device and there["rows"].tolist() == whole[1:].tolist()
    assert there["parameter"].tolist() == whole.tolist() and there["parameter"].requires_grad


def test_memory_that_was_asked_for_pinned_says_so():
    pinned = torch.empty(8, pin_memory=True)
    assert pinned.is_pinned() and pinned[2:].is_pinned() and not torch.empty(8).is_pinned()
    assert torch.ones(3).pin_memory().to("tessera", non_blocking=True).sum().item() == 3
