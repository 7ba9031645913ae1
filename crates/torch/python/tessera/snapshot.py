"""What a card holds, as a file (snapshot_file.py): of one slice or of several, and to be restored on whichever.

Each storage is one tensor of bytes, whole and once, under the name that the program gave it; views are the program's, and are not in the
file. The state of the random numbers is a tensor too. The table says at which frame of the stream the snapshot was taken, and of a card of
several slices where each storage was: one that is divided in the same way, and whose slices are as fast in the same order, has them there
again, so that it computes the same.

Storages are read and written a piece at a time: no host needs room for all that several slices hold.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re

import torch

from tessera.snapshot_file import FORMAT, STORAGE, Damaged, Reading, header, is_begun

__all__ = ["Damaged", "load", "save", "tidy"]
_PIECE = 32 << 20
_PART = ".part"
#: Of snapshots, so that none is a place of a program's own.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
#: A storage of which nothing is known but its size: whole, and wherever the card has room.
_ANYWHERE = (1, 0, 0, 0)


def _random_state(executor) -> torch.Tensor:
    device = torch.device(executor.device)
    return torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)


def save(executor, folder: pathlib.Path | None, name: str, owner: tuple | None) -> pathlib.Path:
    """Writes a snapshot into the folder: complete under its name, or not at all. `owner` is the program whose tensors they are."""
    # Before anything can be refused: an error of the save would be taken for one of the operations before it, and with them for what they gave.
    executor.quiesce()
    if folder is None:
        raise ValueError("this slice server has no folder for snapshots")
    # The name comes from the program, which must not choose a place of its own.
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"{name!r} is no name for a snapshot: letters, digits, '.', '_' and '-'")
    storages, rest = executor.holdings(), {"random": _random_state(executor)}
    if executor.answered_bulk is not None:
        rest["answered"] = executor.answered_bulk.cpu().contiguous().flatten().view(torch.uint8)
    sizes = {f"{STORAGE}{id}": bytes for id, bytes, *_ in storages} | {key: tensor.nbytes for key, tensor in rest.items()}
    begin = header(_table(executor, owner, storages), sizes)
    path, part = folder / name, folder / f".{name}{_PART}"
    try:
        with open(part, "wb") as file:
            _try_lock(file)
            file.write(begin)
            for id, bytes, *_ in storages:
                for at in range(0, bytes, _PIECE):
                    file.write(memoryview(executor.fetch(id, at, min(_PIECE, bytes - at)).numpy()))
            for tensor in rest.values():
                file.write(memoryview(tensor.numpy()))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except BaseException:
        # A part takes the room that the next one needs.
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    _keep_names(folder)
    return path


def tidy(folder: pathlib.Path) -> None:
    """Removes what servers that ended while they wrote have left: nobody else would, and it takes the room that the next save needs."""
    for part in folder.glob(f".*{_PART}"):
        with contextlib.suppress(OSError), open(part, "rb+") as file:
            # Files of others may have such names, and other servers the same folder: what they are writing is locked.
            if re.fullmatch(rf"\.{_NAME}{re.escape(_PART)}", part.name) and is_begun(file) and _try_lock(file):
                part.unlink()


def _try_lock(file) -> bool:
    """Locks a file until it is closed. Where files cannot be locked, none is."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _keep_names(folder: pathlib.Path) -> None:
    """Has the disk know what the files of a folder are called: until then a host that goes down may leave one under its old name."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems know of no such thing, and lose nothing by it that they would have kept.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(handle)


def _table(executor, owner: tuple | None, storages: list) -> dict[str, str]:
    table = {
        "format": FORMAT, "sequence": str(executor.sequence), "operations": str(executor.operations), "device": executor.device,
        "untold": executor.untold.hex(), "owner": json.dumps(owner),
    }  # fmt: skip
    slices, split, order = executor.divided
    if slices > 1:
        where = {str(id): where for id, _, *where in storages}
        table["divided"] = json.dumps({"slices": slices, "split": split, "order": order, "where": where}, separators=(",", ":"))
    return table


def load(executor, path: pathlib.Path) -> tuple | None:
    """Fills an executor that holds nothing yet. Gives the program whose tensors they are."""
    with open(path, "rb") as file:
        reading = Reading(file)
        try:
            storages = _storages(reading, executor.divided)
            for id, bytes, *where in storages:
                executor.hold(id, bytes, *where)
            for id, bytes, *_ in sorted(storages):
                for at in range(0, bytes, _PIECE):
                    executor.store(id, at, reading.piece(f"{STORAGE}{id}", at, min(_PIECE, bytes - at)))
            _restore_random_state(executor, reading)
            owner = _restore_stream(executor, reading)
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(f"{path} holds more than this card has memory for: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError) as error:
            if isinstance(error, Damaged) or executor.lost:
                raise
            raise reading.damaged(str(error).partition("\n")[0]) from None
    executor.restored()
    return owner


def _storages(reading: Reading, divided: tuple[int, str, list[int]]) -> list[tuple]:
    """The storages of a snapshot as an executor is to hold them, in the order in which they get their places."""
    said = json.loads(reading.table.get("divided", "{}"))
    # Numbers of slices mean the same only where the same of them are fast: what is at one is computed there. Files that do not say
    # which those were are of another card.
    same, known = [said.get(key) for key in ("slices", "split", "order")] == [*divided], said.get("where", {})
    storages = []
    for key, bytes in reading.sizes.items():
        if key.startswith(STORAGE):
            kind, holders, units, rows = known.get(key.removeprefix(STORAGE), _ANYWHERE)
            storages.append((holders, int(key.removeprefix(STORAGE)), bytes, kind, holders if same else 0, units, rows))
    # What was together stays together, as parameters and what an optimiser keeps beside them.
    return [storage for _, *storage in sorted(storages)]


def _restore_random_state(executor, reading: Reading) -> None:
    device, state = torch.device(executor.device), reading.whole("random")
    if device.type == torch.device(reading.table["device"]).type:
        torch.set_rng_state(state) if device.type == "cpu" else torch.get_device_module(device).set_rng_state(state, device)
    else:
        # Another kind of device draws other numbers, whatever it is told. They follow from what was drawn, and repeat nothing of it.
        torch.manual_seed(int.from_bytes(hashlib.sha256(state.numpy()).digest()[:7]))


def _restore_stream(executor, reading: Reading) -> tuple | None:
    """Where the program stood, and what it has not been told."""
    table = reading.table
    executor.sequence, executor.operations = int(table["sequence"]), int(table["operations"])
    if "answered" in reading.sizes:
        executor.answered_bulk = reading.whole("answered")
    if untold := table.get("untold"):
        executor.untold = bytes.fromhex(untold)
    owner = json.loads(table.get("owner", "null"))
    return None if owner is None else (str(owner[0]), int(owner[1]), bool(owner[2]))
