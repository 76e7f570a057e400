"""The self-test: passes where goalgrid can be trusted, and says in one line why where it cannot."""

import ctypes
import errno
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import ROOT, Goalgrid


@pytest.mark.slow
def test_nothing_is_lost_on_this_machine(tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid("selftest", runs=tmp_path, timeout=900)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    *claims, verdict = finished.stdout.splitlines()
    assert len(claims) == 3
    assert all(claim.startswith("ok ") for claim in claims)
    assert verdict.startswith("goalgrid can be trusted with")
    assert list(tmp_path.iterdir()) == []


LINKS = {"x86_64": (86, 265), "aarch64": (37,)}
"""Numbers of the system calls that make a hard link."""


def without_hard_links() -> None:
    """Have the kernel refuse hard links to this process and its children, as vfat and many network mounts do."""
    give_back, load, jump_equal = 0x06, 0x20, 0x15
    refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000
    numbers = LINKS[platform.machine()]
    code = [(load, 0, 0, 0)]  # the number of the call
    code += [(jump_equal, len(numbers) - turn, 0, number) for turn, number in enumerate(numbers)]
    code += [(give_back, 0, 0, allow), (give_back, 0, 0, refuse)]
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    program = ctypes.create_string_buffer(packed, len(packed))
    pointer = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter = 38, 22
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_filter, 2, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), "no system call filter")


@pytest.mark.gate
@pytest.mark.skipif(platform.machine() not in LINKS or sys.platform != "linux", reason="filters Linux's system calls")
def test_a_folder_without_hard_links_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "goalgrid", "selftest", "--runs", str(tmp_path)]
    filtered: Callable[[], None] = without_hard_links
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, preexec_fn=filtered)
    assert finished.returncode == 4, finished.stdout + finished.stderr
    failed, verdict = finished.stdout.splitlines()
    assert failed.startswith("FAILED  a tiny grid trains here: ")
    assert "its file system has no hard links, which processes need to lock trials" in failed
    assert verdict.startswith(f"Results may be lost in {tmp_path}: do not train there yet. ")
    assert "Traceback" not in finished.stderr
    assert [path.name[:9] for path in tmp_path.iterdir()] == ["selftest-"]
