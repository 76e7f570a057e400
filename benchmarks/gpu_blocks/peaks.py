"""Blocks of `gpu.py`: what is said ahead of a trial's memory, beside its real peak."""

from functools import partial

import measuring

from benchmarks.gpu_blocks.sample import Size, inputs_of, settings_of
from goalgrid.grid.store.gpu_needs import MARGIN
from goalgrid.planning.gpu.footprint import estimate
from goalgrid.planning.gpu.shapes_of_data import Shapes
from goalgrid.runners.gpu import memory_probe


def memory_rows(size: Size, device: str) -> list[str]:
    """The probe's prediction for a trial beside what an epoch of it takes."""
    inputs, settings = inputs_of(size, device), settings_of(size)
    peak_of = memory_probe.peak_of if device == "cuda" else lambda work: 2**20 * measuring.peak_megabytes(work)
    few = memory_probe.longest(inputs, memory_probe.STEPS * size.batch)
    predicted = peak_of(partial(memory_probe.train, memory_probe.heavy(settings), few))
    real = peak_of(partial(memory_probe.train, settings, inputs))
    within = real / max(predicted, 1)
    return [
        measuring.row(
            "memory of a trial",
            f"{predicted / 2**20:.0f} MB, as the probe predicts",
            limit=f"{real / 2**20:.0f} MB, the peak of an epoch and its tests",
            ratio=f"{within:.2f} of it",
            goal=f"<= {MARGIN}",
            met=within <= MARGIN,
        )
    ]


def estimate_rows(size: Size) -> list[str]:
    """Two steps: what the estimate says, and what the allocator of the GPU holds."""
    settings = memory_probe.heavy(settings_of(size))
    shapes = Shapes((size.features,), size.words, 12, 20, 0)
    found = estimate(settings, shapes, {})
    inputs = inputs_of(size, "cuda")
    few = memory_probe.longest(inputs, 2 * size.batch)
    real = memory_probe.peak_of(partial(memory_probe.train, settings, few))
    return [
        measuring.row(
            "estimate of memory",
            f"{found.reserved / 2**20:.0f} MB",
            limit=f"{real / 2**20:.0f} MB, the real peak",
            ratio=f"{found.reserved / real:.2f}",
        )
    ]
