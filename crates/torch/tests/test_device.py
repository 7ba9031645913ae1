"""What a program sees of the virtual card, with nothing but `import torch`."""

import copy
import gc
import io
import threading

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

CARD = torch.device("tessera")


def trained(model, steps=4, seed=3):
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    device = next(model.parameters()).device
    torch.manual_seed(1)
    inputs, targets = torch.randn(16, 12).to(device), torch.randint(0, 5, (16,)).to(device)
    torch.manual_seed(seed)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(32), nn.Linear(32, 5))


def test_training_with_dropout_gives_the_processors_loss_and_parameters():
    here, there = network(), network().to(CARD)
    assert trained(here) == pytest.approx(trained(there), abs=1e-6)
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(other.detach().cpu(), one.detach())


def test_tied_weights_stay_tied_when_a_model_moves():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 6)
            self.head = nn.Linear(6, 10, bias=False)
            self.head.weight = self.embedding.weight

    model = Tied()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(CARD)
    assert model.head.weight is model.embedding.weight
    assert len(list(model.parameters())) == 1
    before = model.head.weight.detach().cpu()
    model.head(model.embedding(torch.tensor([1, 2], device=CARD))).sum().backward()
    optimiser.step()  # made before the move
    assert not torch.equal(before, model.embedding.weight.detach().cpu())


def test_views_share_their_storage():
    base = torch.zeros(4, 6, device=CARD)
    base.t()[2:, 1].fill_(7)
    base.view(-1)[0] = 5
    expected = torch.zeros(4, 6)
    expected.t()[2:, 1].fill_(7)
    expected.view(-1)[0] = 5
    assert torch.equal(base.cpu(), expected)


def test_saving_and_loading_keeps_shared_storages():
    x = torch.randn(3, 4).to(CARD)
    file = io.BytesIO()
    torch.save({"x": x, "row": x[1]}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["x"].device.type == "tessera"
    loaded["row"].zero_()
    assert loaded["x"][1].abs().sum().item() == 0
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu")["x"], x.cpu())


def test_seeds_and_states_of_random_numbers():
    torch.manual_seed(5)
    first = torch.randn(8, device=CARD).cpu()
    state = torch.tessera.get_rng_state()
    second = torch.randn(8, device=CARD).cpu()
    torch.tessera.set_rng_state(state)
    assert torch.equal(torch.randn(8, device=CARD).cpu(), second)
    torch.manual_seed(5)
    assert torch.equal(torch.randn(8, device=CARD).cpu(), first)


def test_recomputed_activations_have_the_same_dropout():
    """Checkpointing keeps the state of the random numbers only of a device that says it was used."""
    x, masks = torch.ones(64, device=CARD, requires_grad=True), []

    def layer(x):
        dropped = nn.functional.dropout(x * 2, 0.5)
        masks.append(dropped.detach().cpu())
        return dropped.sin()

    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert torch.equal(*masks)


def test_mixed_precision():
    layer, x = nn.Linear(8, 8).to(CARD), torch.randn(4, 8).to(CARD)
    scaler = torch.amp.GradScaler("tessera")
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    with torch.autocast("tessera", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == torch.bfloat16
        loss = torch.nn.functional.mse_loss(y, torch.zeros_like(y))
    assert loss.dtype == torch.float32
    scaler.scale(loss).backward()
    before = layer.weight.detach().clone()
    scaler.step(optimiser)
    scaler.update()
    assert not torch.equal(before.cpu(), layer.weight.detach().cpu())


def test_mixed_precision_computes_norms_and_entropies_exactly():
    x = torch.rand(40, dtype=torch.bfloat16, device=CARD)
    with torch.autocast("tessera", dtype=torch.bfloat16):
        norms = torch.ops.aten.norm(x), torch.ops.aten.norm(x, 2.0, [0])
        entropy = nn.functional.binary_cross_entropy(x, x)
    for norm in norms:
        assert norm.dtype == torch.float32
        torch.testing.assert_close(norm.cpu(), x.cpu().float().norm())
    assert entropy.dtype == torch.float32


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_networks(cell):
    torch.manual_seed(0)
    here = cell(6, 5, num_layers=2, batch_first=True)
    there, x = copy.deepcopy(here).to(CARD), torch.randn(3, 7, 6)
    expected, got = here(x)[0], there(x.to(CARD))[0]
    torch.testing.assert_close(got.cpu(), expected)
    expected.pow(2).sum().backward()
    got.pow(2).sum().backward()
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_shapes_that_depend_on_data():
    x = torch.tensor([3.0, -1.0, 0.0, 2.0])
    there = x.to(CARD)
    assert torch.equal(there[there > 0].cpu(), x[x > 0])
    assert torch.equal(there.nonzero().cpu(), x.nonzero())
    assert torch.equal(torch.unique(there).cpu(), torch.unique(x))


def test_a_data_loader_with_workers():
    dataset = torch.utils.data.TensorDataset(torch.arange(24.0).view(8, 3))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1)
    assert sum(batch[0].to(CARD).sum().item() for batch in loader) == dataset.tensors[0].sum().item()


def test_events_and_streams_say_when_work_is_done():
    event, stream = torch.Event(device=CARD), torch.Stream(device=CARD)
    x = torch.ones(64, 64, device=CARD) @ torch.ones(64, 64, device=CARD)
    event.record()
    assert event.query()
    stream.synchronize()
    torch.accelerator.synchronize()
    assert x[0, 0].item() == 64


def test_memory_is_told_as_pytorch_asks_for_it_of_any_accelerator():
    gc.collect()  # what tests before this have left
    before = torch.accelerator.memory_allocated()
    x = torch.zeros(1 << 18, device=CARD)
    assert torch.accelerator.memory_allocated() - before == torch.tessera.memory_reserved() - before == x.nbytes
    x = None
    assert torch.accelerator.max_memory_allocated() >= before + (1 << 20)
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.tessera.memory_stats()["allocated_bytes.all.peak"] == before
    free, total = torch.accelerator.get_memory_info()
    assert free == total - before
    torch.accelerator.empty_cache()


def test_there_is_one_stream():
    stream = torch.Stream(CARD)
    with torch.tessera.stream(stream):
        x = torch.ones(3, device=CARD)
        x.record_stream(stream)
    torch.tessera.current_stream().synchronize()
    assert x.sum().item() == 3


def test_modules_move_before_their_shapes_are_known():
    torch.manual_seed(1)
    module = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    names, parameters = list(module.state_dict()), list(module.parameters())
    module.to(CARD)
    module(torch.randn(2, 3, 5, 5, device=CARD)).sum().backward()
    assert list(module.state_dict()) == names
    for before, now in zip(parameters, module.parameters(), strict=True):
        assert before is now and now.device.type == "tessera" and now.grad.shape == now.shape


def test_threads_share_the_card():
    sums = {}

    def work(number):
        x = torch.full((16,), float(number), device=CARD)
        for _ in range(200):
            x = x + 1
        sums[number] = x.sum().item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {number: 16.0 * (number + 200) for number in range(4)}


def test_an_error_names_the_line_that_issued_the_operation():
    table = torch.zeros(5, device=CARD)
    wrong = table.index_select(0, torch.tensor([77], device=CARD))  # this line
    line = test_an_error_names_the_line_that_issued_the_operation.__code__.co_firstlineno + 2
    with pytest.raises(IndexError, match=rf"index out of range(.|\n)*test_device.py:{line} in test_an_error"):
        (wrong + 1).cpu()
    assert table.sum().item() == 0  # and the card goes on


def test_an_operator_that_the_server_does_not_have_is_an_error_with_its_own_line():
    library = torch.library.Library("only_here", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: torch.empty_like(x), "Meta")
    x = torch.zeros(3, device=CARD)
    x += 1
    twice = torch.ops.only_here.twice(x)  # this line
    line = test_an_operator_that_the_server_does_not_have_is_an_error_with_its_own_line.__code__.co_firstlineno + 6
    with pytest.raises(RuntimeError, match=rf"only_here::twice on the virtual card \(issued at .*test_device.py:{line} in test_an_operator"):
        twice.cpu()
    assert x.sum().item() == 3


def test_an_error_of_a_backward_pass_names_the_line_that_asked_for_it():
    table = torch.zeros(5, 2, device=CARD, requires_grad=True)
    index = torch.tensor([1], device=CARD)
    picked = table.index_select(0, index)
    index.data.fill_(77)
    picked.sum().backward()  # this line
    line = test_an_error_of_a_backward_pass_names_the_line_that_asked_for_it.__code__.co_firstlineno + 5
    with pytest.raises(RuntimeError, match=rf"such as a backward pass, after .*test_device.py:{line} in test_an_error"):
        table.grad.cpu()


def test_a_wrong_call_raises_where_it_stands_with_the_words_of_pytorch():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.zeros(2, 3, device=CARD) @ torch.zeros(4, 5, device=CARD)


def test_tensors_of_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        torch.zeros(3, device=CARD) + torch.zeros(3)


@pytest.mark.parametrize("write", [
    lambda total, three: total.add_(three),
    lambda total, three: total.mul_(three),
    lambda total, three: torch.add(three, three, out=total),
    lambda total, three: torch._foreach_add_([total], [three]),
    lambda total, three: total.expand(2).clone().index_put_((three.long() - 3,), three),
    lambda total, three: [tensor.index_add_(0, three.long().view(1) - 3, three.view(1)) for tensor in (torch.ones(2, device=CARD), torch.ones(2))],
], ids=["add_", "mul_", "out", "foreach", "index_put_", "index_add_ after one on the card"])  # fmt: skip
def test_what_is_on_the_processor_is_not_written_on_the_card(write):
    """A sum that stays at the processor must not go on without what was to be added to it. Copies are asked for by name."""
    total, three = torch.tensor(1.0), torch.full((), 3.0, device=CARD)
    with pytest.raises(RuntimeError, match="same device"):
        write(total, three)
    assert (three + total).item() == 4
    assert total.copy_(three).item() == 3


@pytest.mark.parametrize("make", [
    lambda: torch.quantize_per_tensor(torch.zeros(3, device=CARD), 0.1, 0, torch.qint8),
    lambda: torch.zeros(3, 3, device=CARD).to_sparse(),
    lambda: torch.randn(3, device=CARD, generator=torch.Generator()),  # of another device
])  # fmt: skip
def test_what_is_not_supported_is_refused_aloud(make):
    with pytest.raises((NotImplementedError, RuntimeError)):
        make()


def test_the_profiler_sees_operations():
    with torch.profiler.profile() as profile:
        torch.zeros(4, 4, device=CARD).relu()
    assert any(event.key == "aten::relu" for event in profile.key_averages())


def test_operations_are_sent_in_batches_and_wait_for_nothing():
    x = torch.zeros(8, device=CARD)
    for _ in range(3):
        x = x + 1  # known from here on
    torch.tessera.synchronize()
    before = torch.tessera.statistics()
    for _ in range(320):
        x = x + 1
    after = torch.tessera.statistics()
    assert after["operations"] - before["operations"] == 320
    assert after["waits"] == before["waits"]
    assert after["frames"] - before["frames"] < 320
    assert x[0].item() == 323


def test_templates_of_ever_new_shapes_are_forgotten_again():
    for size in range(1, 400):
        assert torch.ones(size, device=CARD).sum().item() == size


@pytest.mark.parametrize("type", [torch.float32, torch.complex64, torch.bfloat16, torch.bool], ids=str)
def test_copies_into_tensors_of_the_program_are_what_they_are_on_the_processor(type):
    values = (torch.arange(600).reshape(20, 30) % 7).to(type)
    card = values.to("tessera")
    kept = torch.zeros(40, 60, dtype=type)
    views = {
        "whole": kept[:20, :30].contiguous(), "strided": kept[::2, ::2], "transposed": kept[:30, :20].contiguous().t(),
        "wider": torch.zeros(3, 20, 30, dtype=type), "other": torch.zeros(20, 30, dtype=torch.float64 if type != torch.complex64 else type),
    }  # fmt: skip
    for name, to in views.items():
        expected = to.clone().copy_(values)
        to.copy_(card)
        assert torch.equal(to, expected), name
    if type == torch.complex64:
        turned = (values * (1 + 2j)).to(type)
        plain, bits = torch.zeros(20, 30, dtype=type), torch.zeros(20, 30, dtype=type).conj()
        for to in (plain, bits):
            for source in (turned, turned.conj(), turned.conj().imag):
                if source.dtype == to.dtype:
                    assert torch.equal(to.copy_(source.to("tessera")), source), (to.is_conj(), source.is_conj())
                    assert torch.equal(to.copy_(turned.to("tessera").conj()), turned.conj())
