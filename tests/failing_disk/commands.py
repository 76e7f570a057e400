"""Commands of goalgrid on a disk that fails: each in a process of its own, in which calls of the system may fail.

The calls fail in the C library (`shim.c`), so that Python, torch, Arrow and SQLite meet the same disk.
"""

import enum
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("shim.c")

HUNG = 124
"""The exit code of a command that did not end in time."""
POWER_CUT = -1
"""In place of an error: files that were not flushed are emptied, and the process is killed."""


class Call(enum.IntFlag):
    """Calls that may fail, as `shim.c` numbers them; `open` only reads, `create` may write."""

    LIST = enum.auto()
    STAT = enum.auto()
    OPEN = enum.auto()
    CREATE = enum.auto()
    READ = enum.auto()
    WRITE = enum.auto()
    SYNC = enum.auto()
    CLOSE = enum.auto()
    RENAME = enum.auto()
    LINK = enum.auto()
    MKDIR = enum.auto()
    UNLINK = enum.auto()


@dataclass(frozen=True)
class Fault:
    """Calls that fail.

    Args:
        below: the file or folder that they concern.
        number: the error, e.g. `errno.EIO`, or `POWER_CUT`.
        after: how many of these calls succeed before.
        lasting: whether all later ones fail, or one alone.
        inside: of the folder itself, only a listing fails, as where a user lacks the permission.
    """

    below: Path
    calls: Call
    number: int
    after: int = 0
    lasting: bool = True
    inside: bool = False

    def __str__(self) -> str:
        names = ", ".join(str(call.name).lower() for call in self.calls)
        how = f"after {self.after}, {'for good' if self.lasting else 'once'}"
        error = "a power cut" if self.number == POWER_CUT else os.strerror(self.number)
        return f"{error} at {names} below {self.below} {how}"


def unavailable() -> str:
    """Why no calls can be made to fail here; empty if they can."""
    if sys.platform != "linux":
        return "calls are made to fail by a preloaded library, as Linux has it"
    return "" if shutil.which("gcc") else "there is no gcc to build the library with in which calls fail"


def library() -> Path:
    """The built shim, in a folder of temporary files that all test runs share."""
    key = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"goalgrid-failing-disk-{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory() as name:
            made = Path(name) / path.name
            subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(made)], check=True)
            shutil.move(made, path)
    return path


class Commands:
    """Gives commands; a context. The first one waits until everything is imported."""

    def __enter__(self) -> Self:
        environment = {**os.environ, "LD_PRELOAD": str(library()), "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.failing_disk.server"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.server.communicate()

    def __call__(
        self, *words: str, runs: Path, fault: Fault | None = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A command, with the exit code HUNG if it did not end within so many seconds."""
        assert self.server.stdin
        assert self.server.stdout
        armed = None
        if fault:
            armed = [str(fault.below), fault.calls, fault.number, fault.after, fault.lasting, fault.inside]
        request = {"words": words, "runs": str(runs), "fault": armed, "seconds": seconds}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        ended = json.loads(self.server.stdout.readline())
        code = HUNG if ended["code"] is None else ended["code"]
        return subprocess.CompletedProcess(words, code, ended["stdout"], ended["stderr"])
