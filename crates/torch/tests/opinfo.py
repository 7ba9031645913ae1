"""PyTorch's own samples of its operators, on the virtual card against the device behind it, which is a processor where tests run.

    python opinfo.py [--dtype float32|bfloat16] [--report FILE]     # all of them, with gradients; prints what does not pass
    python opinfo.py --only add,matmul
    python opinfo.py --divided                                      # on a card of several slices, with tensors of which each has some rows

Run as a program of a slice server (`run_program.py` starts one). Every operator of `op_db` that takes the type is tried with up to
three of its samples: forward, and backward where PyTorch says that it has gradients and that device computes them. Results are
compared in value, shape, type and device. One line of JSON for each operator that does not pass, and a summary.
"""

import argparse
import collections
import json
import signal
import warnings

import serving
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

warnings.simplefilter("ignore")
DEVICE = "tessera"
#: Where gradients are compared with what they should be. PyTorch has one kind of accelerator in a process, which is the card: its engine of
#: gradients does not run on another.
GRADIENTS_OF = "cpu"
SAMPLES = 3
WIDEST = 1024
TOLERANCE = {torch.float32: dict(rtol=1e-4, atol=1e-4), torch.bfloat16: dict(rtol=2e-2, atol=2e-2)}


class Skip(Exception):
    """The device behind the card does not do it itself."""


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def operators(dtype):
    return [op for op in op_db if dtype in op.dtypes]


def copied(tree, device):
    def copy(value):
        return value.detach().clone().to(device) if isinstance(value, torch.Tensor) else value

    return tree_map(copy, tree)


def divided(value):
    """The same, made by a product: a card that divides rows has some at each slice then."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0 or not value.numel() or value.is_complex() or not value.isfinite().all():
        return value
    rows = value.detach().float().reshape(len(value), -1)
    if rows.shape[1] > WIDEST:
        return value
    return (rows @ torch.eye(rows.shape[1], device=value.device)).to(value.dtype).view(value.shape)


def copied_divided(tree, device):
    return tree_map(divided, copied(tree, device))


def brought(sample, device, bring=copied):
    input, arguments, named = bring((sample.input, sample.args, dict(sample.kwargs)), device)
    return input, arguments, {**named, **({"device": device} if "device" in named else {})}


def with_gradients(tree):
    def want(value):
        tensor = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        return value.detach().requires_grad_() if tensor else value

    return tree_map(want, tree)


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def gradients(arguments, results):
    inputs = [x for x in tensors(arguments) if x.requires_grad]
    outputs = [x for x in tensors(results) if x.requires_grad]
    total = [x.abs().sum() if x.is_complex() else x.sum() for x in outputs]
    return torch.autograd.grad(total, inputs, allow_unused=True)


def compare(expected, got, dtype, values=True):
    expected, got = tree_leaves(expected), tree_leaves(got)
    assert len(expected) == len(got), f"{len(got)} results, not {len(expected)}"
    for one, other in zip(expected, got, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one == other or one != one, f"{other}, not {one}"
            continue
        assert other.shape == one.shape and other.dtype == one.dtype, f"{other.dtype} of {other.shape}, not {one.dtype} of {one.shape}"
        if values:
            torch.testing.assert_close(other.cpu(), one.cpu(), equal_nan=True, **TOLERANCE[dtype])


def call(op, arguments):
    torch.manual_seed(1)
    return op(arguments[0], *arguments[1], **arguments[2])


def check_sample(op, sample, dtype, bring=copied):
    values = "empty" not in op.name
    here, there = brought(sample, serving.DEVICE), brought(sample, DEVICE, bring)
    try:
        expected = call(op, copied(here, serving.DEVICE))
    except Exception as error:
        raise Skip(str(error)) from error
    compare(expected, call(op, bring(there, DEVICE)), dtype, values)
    if not op.supports_autograd:
        return
    try:
        arguments = with_gradients(here if serving.DEVICE == GRADIENTS_OF else brought(sample, GRADIENTS_OF))
        expected = gradients(arguments, call(op, arguments))
    except Exception:
        return
    arguments = with_gradients(there)
    got = gradients(arguments, call(op, arguments))
    for one, other in zip(expected, got, strict=True):
        assert (one is None) == (other is None), "a gradient that is there on one side only"
        if one is not None and values:
            compare(one, other, dtype)


def check(op, dtype, bring=copied):
    """One of pass, skip, unsupported, fail; and why."""
    signal.alarm(60)
    try:
        torch.manual_seed(0)
        for count, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            if count == SAMPLES:
                break
            check_sample(op, sample, dtype, bring)
        torch.tessera.synchronize()
        return "pass", ""
    except Skip as error:
        return "skip", str(error)
    except NotImplementedError as error:
        return "unsupported", str(error)
    except Exception as error:
        return "fail", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        try:
            torch.tessera.synchronize()
        except RuntimeError:
            pass


def too_slow(*_):
    raise TimeoutError("more than a minute")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--only", default="")
    parser.add_argument("--report")
    parser.add_argument("--divided", action="store_true")
    options = parser.parse_args()
    dtype, only = getattr(torch, options.dtype), set(filter(None, options.only.split(",")))
    signal.signal(signal.SIGALRM, too_slow)
    counted, lines = collections.Counter(), []
    for op in operators(dtype):
        if only and name_of(op) not in only:
            continue
        result, why = check(op, dtype, copied_divided if options.divided else copied)
        counted[result] += 1
        if result != "pass":
            lines.append(json.dumps({"operator": name_of(op), "result": result, "why": why[:300]}))
            print(lines[-1], flush=True)
    of = sum(counted.values()) - counted["skip"]
    print(f"{options.dtype}: {counted['pass']} of {of} pass ({100 * counted['pass'] / max(of, 1):.1f} %); {dict(counted)}")
    if options.report:
        open(options.report, "w").write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
