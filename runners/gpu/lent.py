"""The GPUs that Slurm lends a process, held against those that torch sees: a broken one would train on the CPU."""

import os

import torch

from goalgrid.grid.errors import counted

MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that narrow what a process sees, by lists of GPUs."""


def lent_gpus() -> int:
    """Return how many GPUs this process of a Slurm job should see; 0 outside Slurm, or where Slurm lends none."""
    lent = os.environ.get("SLURM_GPUS_ON_NODE", "")
    masks = [[name for name in os.environ[mask].split(",") if name] for mask in MASKS if mask in os.environ]
    return min([int(lent) if lent.isdecimal() else 0, *map(len, masks)])


def broken() -> str:
    """Return why lent GPUs do not work here, with both numbers; empty if torch sees them all."""
    lent, seen = lent_gpus(), torch.cuda.device_count()
    if seen >= lent:
        return ""
    why = "this torch is built for CPUs" if not torch.backends.cuda.is_built() else "look at nvidia-smi there"
    return f"Slurm lends {counted(lent, 'GPU')} (SLURM_GPUS_ON_NODE), and torch sees {seen or 'none'}: {why}"
