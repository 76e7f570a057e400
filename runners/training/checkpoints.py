"""Checkpoints: the complete state of a training as tensors and plain values, loaded without unpickling code.

A checkpoint is the zip file that `torch.save` writes, with its SHA-256 in the zip's comment. So `torch.load` can read
it as usual, and truncated or damaged files are detected.
"""

import copy
import hashlib
import io
import os
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goalgrid.grid.errors import check_regular, regular_bytes
from goalgrid.grid.store.files import atomic_write

_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64
"""Length of the zip's comment in bytes; the zip stores it in the two bytes before the comment."""


class Corrupt(Exception):
    """The file is not a complete checkpoint."""


def save(path: Path, content: dict[str, Any], *, previous: Path | None = None, durable: bool = True) -> None:
    """Replace the checkpoint at `path` atomically, and move the old one to `previous`."""
    with atomic_write(path, durable=durable, previous=previous) as aside, aside.open("w+b") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # torch hides the disk's error behind one of its own
                raise error.__context__ from None
            raise
        file.seek(-2, os.SEEK_END)
        file.write(_COMMENT.to_bytes(2, "little"))
        file.seek(0)
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        file.write(_MARK + checksum.encode())


class Writer:
    """Copies the state of a training to host memory, and writes it in a background thread.

    Only one write runs at a time, so memory holds at most one copy; a second one waits for the first.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._write = self._pool.submit(lambda: None)
        self._copies = dict[tuple[Any, ...], Tensor]()
        """Copies by position, shape and type of the tensor, reused from one checkpoint to the next."""

    def start(self, write: Callable[..., None], *contents: Any) -> None:
        """Start a write of copies of the contents, after the previous write; raise UserError if that one failed."""
        self.wait()
        self._write = self._pool.submit(write, *self.copied(contents))

    def wait(self) -> None:
        """Wait for the current write; re-raise its error if it failed."""
        self._write.result()

    def close(self) -> None:
        """Wait for the current write, end the thread and free the copies; re-raise its error if it failed."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()
            self._copies.clear()

    def check(self) -> None:
        """Re-raise the error of a failed write, without waiting for a running one."""
        if self._write.done():
            self.wait()

    def copied(self, content: Any) -> Any:
        """Copy the tensors in dicts, lists and tuples into the buffers of the previous copies, shared tensors once.

        The buffers are kept for the next content, since allocation takes longer than copying.
        """
        copies = dict[tuple[Any, ...], Tensor]()
        taken = self._copied(content, copies)
        self._copies = copies
        return taken

    def _copied(self, value: Any, copies: dict[tuple[Any, ...], Tensor]) -> Any:
        """Return a copy of the value, and add the copies of its tensors to `copies`."""
        if isinstance(value, Tensor):
            key = value.data_ptr(), value.shape, value.stride(), value.dtype
            if not value.data_ptr():  # without elements, it has no place of its own
                return value.detach().to("cpu", copy=True)
            if key not in copies:
                new, old = value.detach(), self._copies.get(key)
                copies[key] = new.to("cpu", copy=True) if old is None else old.copy_(new)
            return copies[key]
        if isinstance(value, dict):
            entries = copy.copy(value)  # keeps the versions of modules, an attribute of a state_dict
            entries.update({name: self._copied(part, copies) for name, part in value.items()})
            return entries
        if isinstance(value, list | tuple):
            return type(value)(self._copied(part, copies) for part in value)
        return value


def load(path: Path, device: torch.device) -> dict[str, Any]:
    """Read the checkpoint at `path`; raise FileNotFoundError if it is missing, `Corrupt` if truncated or damaged."""
    try:
        check_regular(path)
        checksum(path)  # first: of a file that is not whole, nothing is read into memory
        data = regular_bytes(path, None)
    except IsADirectoryError as error:
        raise Corrupt(f"{path} is a folder") from error
    body, comment = data[:-_COMMENT], data[-_COMMENT:]
    if comment != _MARK + hashlib.sha256(body).hexdigest().encode():
        raise Corrupt(f"{path} is damaged: its checksum is wrong")
    try:
        return loaded(data, device)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Corrupt(f"{path} cannot be read: {error}") from error


def checksum(path: Path) -> str:
    """Return the checksum stored in the checkpoint at `path`; raise `Corrupt` if it has none."""
    with path.open("rb") as file:
        file.seek(-min(_COMMENT, path.stat().st_size), os.SEEK_END)
        comment = file.read()
    if not comment.startswith(_MARK):
        raise Corrupt(f"{path} is damaged: it has no checksum")
    return comment.removeprefix(_MARK).decode()


def dumped(content: dict[str, Any]) -> bytes:
    """Serialise tensors and plain values to bytes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def loaded(data: bytes, device: torch.device) -> dict[str, Any]:
    """Load tensors and values from the bytes of `dumped` to a device, without running pickled code."""
    return dict(torch.load(io.BytesIO(data), map_location=device, weights_only=True))


def random_states(device: torch.device) -> dict[str, Any]:
    numbers = np.random.get_state(legacy=False)
    numbers["state"]["key"] = numbers["state"]["key"].tolist()  # an array would be loaded by pickled code
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"python": random.getstate(), "numpy": numbers, "cpu": torch.get_rng_state(), **cuda}


def seed_all(seed: int, device: torch.device) -> None:
    """Seed Python, NumPy and torch; faster than `torch.manual_seed`, which also seeds unused devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
