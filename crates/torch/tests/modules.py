"""PyTorch's own samples of its modules and optimisers, on the virtual card against the device behind it.

    python modules.py [--only Linear,AdamW]        # all of them; prints what does not pass

Run as a program of a slice server (`run_program.py` starts one). Each module of `module_db` is made with each of its samples, in training
and not: what it gives, its gradients and its buffers are compared. Each optimiser of `optim_db` takes steps with each of its settings, in
each of its implementations, and goes on from its saved state.
"""

import argparse
import collections
import copy
import inspect
import warnings

import opinfo
import serving
import torch
from torch import nn
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_map

warnings.simplefilter("ignore")
DEVICE = "tessera"
IMPLEMENTATIONS = ({}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"capturable": True})


def brought(tree, device):
    """A copy there, with gradients where it has them."""

    def copied(value):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value

    return tree_map(copied, tree)


def computed(module, arguments, named, device):
    """What the module gives there, its gradients, and its buffers afterwards."""
    module = copy.deepcopy(module).to(device)
    arguments, named = brought((arguments, named), device)
    torch.manual_seed(3)
    results = module(*arguments, **named)
    given = arguments, named, list(module.parameters())
    has_gradients = all(any(tensor.requires_grad for tensor in opinfo.tensors(tree)) for tree in (given, results))
    gradients = opinfo.gradients(given, results) if has_gradients else ()
    return [*opinfo.tensors(results), *gradients, *module.buffers()]


def check_module(info, is_training):
    """What of its samples does not pass, and how many there are that the device behind the card computes."""
    count, wrong = 0, []
    for at, sample in enumerate(info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=is_training)):
        torch.manual_seed(0)
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(is_training)
        if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            continue
        given = sample.forward_input.args, sample.forward_input.kwargs
        try:
            expected = computed(module, *given, serving.DEVICE)
        except Exception:
            continue
        count += 1
        try:
            opinfo.compare(expected, computed(module, *given, DEVICE), torch.float32)
        except Exception as error:
            wrong.append(f"{info.name} {at} {sample.desc} {'in training' if is_training else ''}: {type(error).__name__}: {str(error)[:300]}")
    return count, wrong


def trained(kind, settings, device):
    """Parameters after some steps, of which the last is made by an optimiser that was loaded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    # Muon is for matrices.
    parameters = [parameter for parameter in model.parameters() if kind is not torch.optim.Muon or parameter.dim() == 2]
    settings = brought(settings, device if settings.get("capturable") else "cpu")
    torch.manual_seed(1)
    inputs, targets = torch.randn(5, 6).to(device), torch.randn(5, 3).to(device)

    def loss():
        model.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    optimiser = kind(parameters, **settings)
    for _ in range(4):
        optimiser.step(loss)
    loaded = kind(parameters, **settings)
    loaded.load_state_dict(optimiser.state_dict())
    loaded.step(loss)
    return [parameter.detach() for parameter in model.parameters()]


def check_optimiser(info):
    """What of its settings does not pass, and how many there are that the device behind the card has."""
    count, wrong = 0, []
    known = inspect.signature(info.optim_cls).parameters
    # What it takes are gradients of rows of a table.
    is_sparse = info.optim_cls is torch.optim.SparseAdam
    for sample in () if is_sparse else info.optim_inputs_func(device="cpu"):
        for implementation in IMPLEMENTATIONS:
            if any(name not in known for name in implementation):
                continue
            settings = {**sample.kwargs, **implementation}
            try:
                expected = trained(info.optim_cls, {name: value for name, value in settings.items() if name != "capturable"}, serving.DEVICE)
            except Exception:
                continue
            count += 1
            try:
                opinfo.compare(expected, trained(info.optim_cls, settings, DEVICE), torch.float32)
            except Exception as error:
                wrong.append(f"{info.optim_cls.__name__} {sample.desc} {implementation}: {type(error).__name__}: {str(error)[:300]}")
    return count, wrong


def checks():
    """Each module, trained and not, and each optimiser, with its name."""
    for info in module_db:
        for is_training in (True, False):
            yield info.name.removeprefix("nn."), lambda info=info, is_training=is_training: check_module(info, is_training)
    for info in optim_db:
        yield info.optim_cls.__name__, lambda info=info: check_optimiser(info)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    only = set(filter(None, parser.parse_args().only.split(",")))
    counted = collections.Counter()
    optimisers = {info.optim_cls.__name__ for info in optim_db}
    for name, check in checks():
        if only and name not in only:
            continue
        count, wrong = check()
        kind = "optimisers" if name in optimisers else "modules"
        counted[kind] += count
        counted[f"{kind} that do not pass"] += len(wrong)
        for line in wrong:
            print(line, flush=True)
    print(dict(counted))


if __name__ == "__main__":
    main()
