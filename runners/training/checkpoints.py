"""Checkpoints: everything that training goes on from, as tensors and plain values, loaded without unpickling code.

A checkpoint is what `torch.save` writes, a zip file, with a SHA-256 of itself in the zip's comment: `torch.load` reads
it as it is, and half a file, or one with a wrong bit, is found out.
"""

import hashlib
import io
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grid.store.files import written_aside

_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64
"""Bytes of the zip's comment; its last two bytes before say how many."""


class Corrupt(Exception):
    """What stands there is no whole checkpoint."""


def save(path: Path, content: dict[str, Any], *, previous: Path | None = None, durable: bool = True) -> None:
    """Replace the checkpoint at `path` in one step; what stood there before becomes `previous`.

    Args:
        durable: wait until it stands on the disk.

    Raises:
        UserError: the disk is full or read-only; the checkpoint before is untouched.
    """
    body = dumped(content)[:-2]  # torch, writing by itself, hides a full disk behind an error of its own
    length = _COMMENT.to_bytes(2, "little")
    digest = hashlib.sha256(body)
    digest.update(length)
    with written_aside(path, durable=durable) as aside:
        with aside.open("wb") as file:
            file.write(body)
            file.write(length + _MARK + digest.hexdigest().encode())
        if previous is not None and path.exists():
            path.replace(previous)


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The checkpoint at `path`; None when there is none.

    Raises:
        Corrupt: it is not whole.
        OSError: it cannot be read at all.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, comment = data[:-_COMMENT], data[-_COMMENT:]
    if comment != _MARK + hashlib.sha256(body).hexdigest().encode():
        raise Corrupt(f"{path} is not whole: its checksum is wrong")
    try:
        return loaded(data, device)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Corrupt(f"{path} cannot be read: {error}") from error


def dumped(content: dict[str, Any]) -> memoryview:
    """Tensors and plain values as bytes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getbuffer()


def loaded(data: bytes, device: torch.device) -> dict[str, Any]:
    """What `dumped` gave, on a device; without unpickling code."""
    return dict(torch.load(io.BytesIO(data), map_location=device, weights_only=True))


def set_aside(path: Path) -> Path:
    """Rename a corrupt checkpoint, so that nothing takes it and a reader can look at it."""
    aside = path.with_name(f"{path.stem}.corrupt")
    path.replace(aside)
    return aside


def random_states(device: torch.device) -> dict[str, Any]:
    """States of all generators of this process."""
    numbers = np.random.get_state(legacy=False)
    version, words, gauss = random.getstate()
    states = {
        "python": [version, list(words), gauss],
        "numpy": [
            numbers["state"]["key"].tolist(),
            int(numbers["state"]["pos"]),
            int(numbers["has_gauss"]),
            float(numbers["gauss"]),
        ],
    }
    return states | torch_states(device)


def seed_torch(seed: int, device: torch.device) -> None:
    """Start torch's generators. `torch.manual_seed` takes a millisecond more, to note it for devices not in use."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def torch_states(device: torch.device) -> dict[str, Any]:
    """States of torch's generators, from which weights, dropout and augmentation on a device are drawn."""
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put the generators back to where they were."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    key, position, has_gauss, cached = states["numpy"]
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), position, has_gauss, cached))
    restore_torch_states(states, device)


def restore_torch_states(states: dict[str, Any], device: torch.device) -> None:
    """Put torch's generators back."""
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
