"""Where a result comes from: versions, machine, fingerprint of the code. Beside a trial's identity, not in it."""

import hashlib
import platform
import socket
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import objectives
import retrieval
import runners

PACKAGES = ("goalgrid", "torch", "numpy", "ray", "pyarrow", "pillow")


def environment(device: torch.device, threads: int) -> dict[str, Any]:
    """What a reader needs to judge whether another run should give the same numbers."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "versions": {package: version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "device": name,
        "threads": threads,
    }


@cache
def code_fingerprint() -> str:
    """16 hexadecimal digits over the source of the rooms that decide a trial's numbers."""
    digest = hashlib.sha256()
    for package in (objectives, retrieval, runners):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(str(file.relative_to(folder)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
