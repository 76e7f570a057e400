"""Memory of this process's GPU, as CUDA reports it: its size, and how much some work takes."""

import gc
from collections.abc import Callable

import torch

CONTEXT = 2 * 2**30
"""Most bytes that a process takes besides its tensors; anything beyond belongs to other processes."""


def devices() -> list[tuple[int, str]]:
    """Bytes and name of each GPU that this process sees."""
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [(gpu.total_memory, gpu.name) for gpu in gpus]


def take_smallest() -> None:
    """Make the GPU with the least memory the current one of this thread."""
    sizes = [total for total, _ in devices()]
    torch.cuda.set_device(sizes.index(min(sizes)))


def peak_of(work: Callable[[], object]) -> int:
    """Most bytes that the work reserves for tensors, gaps included: neighbours on the GPU cannot use them."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_reserved()


def context() -> int:
    """Bytes that this process takes besides tensors: the driver's context and loaded kernels."""
    free, total = torch.cuda.mem_get_info()
    return max(0, min(total - free - torch.cuda.memory_reserved(), CONTEXT))
