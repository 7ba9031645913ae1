"""Says which accelerators PyTorch finds on this host, so that an agent can offer them as cards:

    python -m tessera.devices
    python -m tessera.devices --measure 0 1

One line of JSON, `{"pytorch": "2.15.0", "cards": [...]}`. Each card has the name by which a slice server computes on it, the variables that
make that name this card and no other, those with which a process sees none of its kind, and what PyTorch says of it. The cards at
the places that --measure names also have their rates in `tflops`, by precision: matrices that fit are multiplied for a moment, and what that
takes counts. What is left out is said on the error output.
"""

import argparse
import importlib
import importlib.util
import json
import math
import os
import statistics
import sys
import threading
import time
import typing

if __name__ == "__main__":
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # A virtual card is no card of this host.
    # As tools of the maker number them, and not by speed.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")

import torch


class Kind(typing.NamedTuple):
    """A kind of accelerator."""

    vendor: str
    card: str
    #: The variable that says which of them a process sees, and a value of it with which it sees none.
    variable: str
    none: str
    #: The package that PyTorch has it from, when it is not its own.
    package: str | None = None


#: By PyTorch's name.
KINDS = {
    "cuda": Kind("AMD", "gpu", "HIP_VISIBLE_DEVICES", "-1") if torch.version.hip else Kind("NVIDIA", "gpu", "CUDA_VISIBLE_DEVICES", ""),
    "xpu": Kind("Intel", "gpu", "ZE_AFFINITY_MASK", "255"),
    "npu": Kind("Huawei", "npu", "ASCEND_RT_VISIBLE_DEVICES", "-1", "torch_npu"),
    "mlu": Kind("Cambricon", "npu", "MLU_VISIBLE_DEVICES", "-1", "torch_mlu"),
    "musa": Kind("Moore Threads", "gpu", "MUSA_VISIBLE_DEVICES", "-1", "torch_musa"),
}
#: How long one precision is measured, in seconds, the part of the memory that its matrices may take, and the part that must be free.
MEASURE, PART, FREE = 0.25, 0.2, 0.9
#: Sides of the matrices that are multiplied, the largest that fits first.
SIDES = (8192, 4096, 2048, 1024)
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def present() -> dict:
    """The kinds of accelerators of this host, and the module of each."""
    modules = {}
    for name, kind in KINDS.items():
        if kind.package and importlib.util.find_spec(kind.package):
            importlib.import_module(kind.package)
        module = getattr(torch, name, None)
        if module is not None and hasattr(module, "is_available") and module.is_available():
            modules[name] = module
    return modules


def cards(measured: list[int] = ()) -> list[dict]:
    """All of them; those at these places with their rates."""
    found = []
    for name, module in present().items():
        for index in range(module.device_count()):
            properties = module.get_device_properties(index)
            if why := left_out(properties):
                print(f"{name}:{index} ({properties.name}) is left out: {why}", file=sys.stderr)
                continue
            card = describe(name, properties, index)
            if len(found) in measured:
                card["tflops"] = rates(f"{name}:{index}", module)
            found.append(card)
    return found


def left_out(properties) -> str:
    """Why this is no card to be offered."""
    if " MIG " in properties.name:
        return "it is an instance of a card that is divided by its driver (MIG), which PyTorch knows by no name of its own"
    return "its memory is that of the host" if getattr(properties, "is_integrated", False) else ""


def describe(name: str, properties, index: int) -> dict:
    """One of them."""
    kind = KINDS[name]
    uuid = str(getattr(properties, "uuid", "") or "")
    if kind.vendor == "NVIDIA" and uuid:
        uuid = f"GPU-{uuid.removeprefix('GPU-')}"
        environment = {kind.variable: uuid}
    else:
        environment = {kind.variable: seen_as(kind.variable, index)}
        if name == "cuda":
            environment["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return {
        "device": f"{name}:0",
        "environment": environment,
        "hidden": {kind.variable: kind.none},
        "vendor": kind.vendor,
        "kind": kind.card,
        "model": properties.name.removeprefix(f"{kind.vendor} ").strip(),
        "uuid": uuid,
        "memory_bytes": properties.total_memory,
        "pci_address": pci_address(properties),
    }


def seen_as(variable: str, index: int) -> str:
    """What a process sets so that it sees this one alone. Of those that this one sees itself, the variable may name few."""
    named = [word.strip() for word in os.environ.get(variable, "").split(",") if word.strip()]
    return named[index] if index < len(named) else str(index)


def pci_address(properties) -> str:
    """Such as `0000:4d:00.0`; empty where PyTorch does not tell it."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    except AttributeError:
        return ""


def rates(device: str, module) -> dict[str, float]:
    """TFLOPS by precision. A precision that the card does not have is left out; a card that others compute on has none."""
    try:
        free, total = module.mem_get_info(device)
    except (AttributeError, RuntimeError, TypeError) as error:
        print(f"how much of {device} is free is not known: {error}", file=sys.stderr)
    else:
        if free < total * FREE:
            print(f"{device} is not measured: of {total >> 20} MiB only {free >> 20} are free, so that somebody computes on it", file=sys.stderr)
            return {}
    found = {}
    for precision, dtype in PRECISIONS.items():
        if precision == "tf32" and (not device.startswith("cuda") or torch.version.hip):
            continue
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        try:
            measured = rate(device, module, dtype)
        except (RuntimeError, TypeError) as error:
            print(f"{device} is not measured in {precision}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            continue
        if math.isfinite(measured):
            found[precision] = measured
    return found


def rate(device: str, module, dtype: torch.dtype) -> float:
    """TFLOPS of this card when it multiplies matrices of this type."""
    room = module.get_device_properties(device).total_memory * PART
    side = next((side for side in SIDES if 3 * side * side * dtype.itemsize <= room), SIDES[-1])
    # Random numbers: a card that multiplies zeros takes less power, and is faster than it is with anything else.
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = left @ right
    module.synchronize(device)
    times, end = [], time.perf_counter() + MEASURE
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(4):
            torch.mm(left, right, out=out)
        module.synchronize(device)
        times.append((time.perf_counter() - began) / 4)
    return 2 * side**3 / statistics.median(times) / 1e12


def end_with_input() -> None:
    """Whoever asked holds the other end. Without it nobody is left to tell."""
    # Not by `sys.stdin`: Python aborts at its end when a thread holds that.
    while os.read(0, 1):
        pass
    os._exit(3)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tessera.devices", description="Says which accelerators PyTorch finds on this host.")
    parser.add_argument("--measure", nargs="+", type=int, default=[], metavar="PLACE", help="measure what the cards at these places compute, from 0")
    parser.add_argument("--held", action="store_true", help="end when standard input does")
    options = parser.parse_args()
    if options.held:
        threading.Thread(target=end_with_input, daemon=True).start()
    # What libraries print goes where errors go, whenever they do.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"pytorch": torch.__version__, "cards": cards(options.measure)}), file=answer, flush=True)


if __name__ == "__main__":
    main()
