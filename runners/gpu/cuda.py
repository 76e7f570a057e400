"""What is asked of CUDA about the memory of this process's GPU: how much there is, what work takes of it, a bound."""

import gc
from collections.abc import Callable

import torch

CONTEXT = 2 * 2**30
"""Bytes that a process takes beside what it allocates, at most; what is more belongs to others."""


def devices() -> list[tuple[int, str]]:
    """Bytes and name of each GPU that this process sees."""
    each = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [(found.total_memory, found.name) for found in each]


def take_smallest() -> None:
    """Make the GPU with the least memory this thread's."""
    sizes = [total for total, _ in devices()]
    torch.cuda.set_device(sizes.index(min(sizes)))


def name() -> str:
    """What the GPU calls itself."""
    return torch.cuda.get_device_name()


def free_and_total() -> tuple[int, int]:
    """Bytes of the GPU that nobody uses, and all that it has."""
    return torch.cuda.mem_get_info()


def allocated_at_peak() -> int:
    """Bytes that this process had reserved for tensors at most, since `peak_of` was called last."""
    return torch.cuda.max_memory_reserved()


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that work reserves for tensors at most: what neighbours cannot have, gaps included."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    return allocated_at_peak()


def context() -> int:
    """Bytes that this process takes beside tensors: the driver's context, and kernels that were loaded."""
    free, total = free_and_total()
    return max(0, min(total - free - torch.cuda.memory_reserved(), CONTEXT))


def bound(part: float) -> None:
    """Let this process allocate no more than this part of the GPU's memory, until the next call; 1: all."""
    torch.cuda.set_per_process_memory_fraction(part)
