"""What a slice holds, as a file: safetensors, with a table of what the program knows it by.

Each storage is one tensor of bytes, once, under the name that the program gave it; views are the program's, and are not in the file.
The state of the random numbers is a tensor too. The table (`__metadata__`) says at which frame of the stream the snapshot was taken.
Nothing in it is ever executed: a snapshot is bytes and numbers.
"""

import contextlib
import json
import os
import pathlib
import re
import struct

import torch

FORMAT = "1"
_LARGEST_HEADER = 64 << 20


def _random_state(executor) -> torch.Tensor:
    device = torch.device(executor.device)
    return torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)


def save(executor, folder: pathlib.Path | None, name: str, owner: tuple | None) -> pathlib.Path:
    """Writes a snapshot into the folder: complete under its name, or not at all. `owner` is the program whose tensors they are."""
    if folder is None:
        raise ValueError("this slice server has no folder for snapshots")
    # The name comes from the program, which must not choose a place of its own.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"{name!r} is no name for a snapshot: letters, digits, '.', '_' and '-'")
    tensors = [(f"storage.{id}", tensor) for id, tensor in sorted(executor.storages())]
    tensors.append(("random", _random_state(executor)))
    if executor.answered_bulk is not None:
        answered = executor.answered_bulk.cpu().contiguous().flatten().view(torch.uint8)
        tensors.append(("answered", answered))
    table = {
        "format": FORMAT, "sequence": str(executor.sequence), "operations": str(executor.operations), "device": executor.device,
        "untold": executor.untold.hex(), "owner": json.dumps(owner),
    }  # fmt: skip
    header, at = {"__metadata__": table}, 0
    for key, tensor in tensors:
        header[key] = {"dtype": "U8", "shape": [tensor.nbytes], "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path, part = folder / name, folder / f".{name}.part"
    try:
        with open(part, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, tensor in tensors:
                if tensor.nbytes:
                    file.write(memoryview(tensor.cpu().numpy()))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except BaseException:
        # A part takes the room that the next one needs.
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    return path


def load(executor, path: pathlib.Path) -> tuple | None:
    """Fills an executor that holds nothing yet. Gives the program whose tensors they are."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _LARGEST_HEADER:
            raise ValueError(f"{path} is no snapshot: its header would be {length} bytes")
        header = json.loads(file.read(length))
        table = header.pop("__metadata__")
        if table.get("format") != FORMAT:
            raise ValueError(f"{path} has format {table.get('format')!r}; this version reads {FORMAT}")
        start = 8 + length
        for key, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            tensor = torch.empty(end - begin, dtype=torch.uint8)
            if end > begin and file.readinto(memoryview(tensor.numpy())) != end - begin:
                raise ValueError(f"{path} is cut short at {key}")
            _take(executor, key, tensor, table["device"])
    executor.sequence, executor.operations = int(table["sequence"]), int(table["operations"])
    if untold := table.get("untold"):
        executor.untold = bytes.fromhex(untold)
    owner = json.loads(table.get("owner", "null"))
    return None if owner is None else (str(owner[0]), int(owner[1]), bool(owner[2]))


def _take(executor, key: str, tensor: torch.Tensor, taken_on: str) -> None:
    if key == "answered":
        executor.answered_bulk = tensor
        return None
    if key != "random":
        return executor.load(int(key.removeprefix("storage.")), tensor)
    device = torch.device(executor.device)
    # Another kind of device draws other numbers: its generator goes on from its own state.
    if device.type == torch.device(taken_on).type:
        torch.set_rng_state(tensor) if device.type == "cpu" else torch.get_device_module(device).set_rng_state(tensor, device)
    return None
