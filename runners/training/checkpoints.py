"""Checkpoints: the whole state of a training, as tensors and plain values, loaded without unpickling code.

A checkpoint is the zip file that `torch.save` writes, with its SHA-256 in the zip's comment: `torch.load` reads it
unchanged, and a truncated or damaged file is detected.
"""

import hashlib
import io
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goalgrid.grid.errors import regular_bytes
from goalgrid.grid.store.files import written_aside

_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64
"""Length of the zip's comment in bytes; the two bytes before the comment hold it."""


class Corrupt(Exception):
    """The file is not a whole checkpoint."""


def save(path: Path, content: dict[str, Any], *, previous: Path | None = None, durable: bool = True) -> None:
    """Replace the checkpoint at `path` in one step; the old one becomes `previous`.

    Args:
        durable: flush it to the disk.

    Raises:
        UserError: the disk is full or read-only; the checkpoint before is untouched.
    """
    body = dumped(content)[:-2]  # torch, writing by itself, hides a full disk behind an error of its own
    length = _COMMENT.to_bytes(2, "little")
    digest = hashlib.sha256(body)
    digest.update(length)
    with written_aside(path, durable=durable, previous=previous) as aside, aside.open("wb") as file:
        file.write(body)
        file.write(length + _MARK + digest.hexdigest().encode())


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The checkpoint at `path`; None without a file.

    Raises:
        Corrupt: it is truncated or damaged.
        OSError: the file cannot be read.
    """
    try:
        data = regular_bytes(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise Corrupt(f"{path} is a folder") from error
    body, comment = data[:-_COMMENT], data[-_COMMENT:]
    if comment != _MARK + hashlib.sha256(body).hexdigest().encode():
        raise Corrupt(f"{path} is not whole: its checksum is wrong")
    try:
        return loaded(data, device)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Corrupt(f"{path} cannot be read: {error}") from error


def checksum(path: Path) -> str:
    """The checksum that the checkpoint at `path` carries; raises `Corrupt` without one."""
    with path.open("rb") as file:
        file.seek(-min(_COMMENT, path.stat().st_size), os.SEEK_END)
        comment = file.read()
    if not comment.startswith(_MARK):
        raise Corrupt(f"{path} is not whole: it has no checksum")
    return comment.removeprefix(_MARK).decode()


def dumped(content: dict[str, Any]) -> memoryview:
    """Tensors and plain values as bytes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getbuffer()


def loaded(data: bytes, device: torch.device) -> dict[str, Any]:
    """Tensors and values from the bytes of `dumped`, on a device; runs no pickled code."""
    return dict(torch.load(io.BytesIO(data), map_location=device, weights_only=True))


def random_states(device: torch.device) -> dict[str, Any]:
    """States of all random generators of this process."""
    numbers = np.random.get_state(legacy=False)
    numbers["state"]["key"] = numbers["state"]["key"].tolist()  # an array would be loaded by pickled code
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"python": random.getstate(), "numpy": numbers, "cpu": torch.get_rng_state(), **cuda}


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's generators. `torch.manual_seed` also seeds devices not in use, which takes a millisecond more."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore all random generators."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
