"""Builds guard.cpp against the headers in torch's wheel, once a machine, and loads it before torch."""

import ctypes
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def torch_folder() -> Path:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def unavailable() -> str:
    """Why no GPU can be pretended here; empty if it can."""
    if "+cpu" not in version("torch"):
        return "torch is built for GPUs, so its own device guard stands where the pretended GPU's would"
    return "" if shutil.which("g++") else "there is no g++ to build the pretended GPU's guard with"


def library() -> Path:
    """The built guard, in a folder of temporary files that all test runs share."""
    torch = torch_folder()
    key = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode() + str(torch).encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"goalgrid-pretended-gpu-{key}.so"
    if not path.exists():
        headers = [torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
        with tempfile.TemporaryDirectory() as name:
            made = Path(name) / path.name
            options = ["-std=c++20", "-O1", "-shared", "-fPIC", *(f"-I{folder}" for folder in headers)]
            subprocess.run(["g++", *options, str(SOURCE), "-o", str(made)], check=True)
            shutil.move(made, path)
    return path


def load() -> None:
    """Load the guard. torch must not be imported yet: it looks for guards when it is."""
    assert "torch" not in sys.modules, "load the guard before torch"
    libraries = [torch_folder() / "lib" / name for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")]
    for path in (*libraries, library()):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
