"""Which process this is, in a way that neither a changed clock nor a reused number can confuse."""

import os
import socket
from functools import cache
from pathlib import Path

_HAS_PROC = Path("/proc/self/stat").exists()


@cache
def machine() -> str:
    """Host, boot and process namespace: processes can be looked up from where this is the same."""
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    parts = [socket.gethostname()]
    parts += [boot.read_text(encoding="ascii").strip()] if boot.exists() else []
    parts += [str(namespace.readlink())] if namespace.is_symlink() else []
    return " ".join(parts)


def started(pid: int) -> float | None:
    """When a process began; None if there is none, or if it is dead and only not yet reaped.

    On Linux in ticks since the machine's start: unlike a time of day they stay as they are when the clock is set.
    """
    if _HAS_PROC:
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in b"ZX" else float(fields[19])
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def own_start() -> float:
    """When this process began."""
    return started(os.getpid()) or 0.0
