"""What a process that trains asks of its machine."""

import ctypes
import platform
import resource

import pytest
import torch

from goalgrid.runners.training.machine import Machine


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library manages memory in its own way")
def test_memory_that_a_step_frees_is_there_for_the_next_step() -> None:
    def new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for _ in range(3):
            [torch.ones(6 << 20) for _ in range(6)]  # of 24 MiB each
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    libc = ctypes.CDLL(None)
    for name in (-1, -3):  # what glibc starts with
        libc.mallopt(name, 128 << 10)
    libc.malloc_trim(0)
    assert new_pages() > 10_000  # large pages are few
    Machine().begin()
    assert min(new_pages() for _ in range(5)) < 100  # the first makes them; another thread may take a block once
