"""Check that torch sees all GPUs allocated by Slurm; otherwise a broken GPU would mean silent training on the CPU."""

import os

import torch

from goalgrid.grid.errors import counted

MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Environment variables that restrict the visible GPUs of a process."""


def lent_gpus() -> int:
    """Return how many GPUs this process of a Slurm job should see; 0 outside Slurm, or if Slurm allocates none."""
    lent = os.environ.get("SLURM_GPUS_ON_NODE", "")
    masks = [[name for name in os.environ[mask].split(",") if name] for mask in MASKS if mask in os.environ]
    return min([int(lent) if lent.isdecimal() else 0, *map(len, masks)])


def broken() -> str:
    """Return why allocated GPUs do not work here, with both counts; empty if torch sees them all."""
    lent, seen = lent_gpus(), torch.cuda.device_count()
    if seen >= lent:
        return ""
    why = "this torch is built for CPUs" if not torch.backends.cuda.is_built() else "check nvidia-smi there"
    return f"Slurm allocated {counted(lent, 'GPU')} (SLURM_GPUS_ON_NODE), but torch sees {seen or 'none'}: {why}"
