"""Checkpoints: everything that training goes on from, as tensors and plain values, loaded without unpickling code."""

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from grid.files import written_aside


def save(path: Path, content: dict[str, Any]) -> None:
    """Replace the checkpoint at `path` in one step.

    Raises:
        UserError: the disk is full or read-only; the checkpoint before is untouched.
    """
    buffer = io.BytesIO()  # torch, writing by itself, hides a full disk behind an error of its own
    torch.save(content, buffer)
    with written_aside(path) as aside:
        aside.write_bytes(buffer.getbuffer())


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The checkpoint at `path`; None when there is none or it cannot be read."""
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
        return None
    return dict(content)


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """States of the generators that training draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, torch.Tensor], device: torch.device) -> None:
    """Put the generators back to where they were."""
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
