"""Runs each command of goalgrid in a fork of one process, which has imported everything and in which calls may fail.

A line of JSON in asks for a command, a line of JSON out says how it ended (`commands.py` writes and reads them).
"""

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

MEMORY = 6_000_000_000
"""Bytes that a command may ask for beyond what is imported: a file without end must not be read whole."""
SLOW_TO_IMPORT = ("__main__", "ray", "pretend")


def import_rooms() -> None:
    """Import what a command imports, but for Ray and trackers."""
    for found in pkgutil.walk_packages(["goalgrid"], "goalgrid."):
        if not any(word in found.name for word in SLOW_TO_IMPORT):
            importlib.import_module(found.name)
    for name in ("matplotlib.pyplot", "scipy.stats", "sqlite3", "torch._dynamo"):
        importlib.import_module(name)


def prepare() -> None:
    """Let a few records count as many, so that there are summaries; and let no trial wait before its next try."""
    from goalgrid.grid.store.attempts import Failure
    from goalgrid.results.records import record_cache
    from goalgrid.runners.trial import retries

    record_cache.FEW = 1
    retries.POLICY[Failure.STORAGE] = replace(retries.POLICY[Failure.STORAGE], wait=0.01)


def run(request: dict[str, Any], output: BinaryIO, errors: BinaryIO) -> None:
    """Give the command in this process, which ends with it."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    faulthandler.enable(2)
    memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (memory + MEMORY, memory + MEMORY))
    os.environ |= {"GOALGRID_RUNS": request["runs"], "COLUMNS": "160"}
    sys.argv = ["goalgrid", *request["words"]]
    code = 1
    try:
        from goalgrid.cli.app import main

        if fault := request["fault"]:
            ctypes.CDLL(None).fault_arm(os.fsencode(fault[0]), *map(ctypes.c_long, fault[1:]))
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code of this child, negative for a signal; None if it hung and was killed, with its traceback."""
    descriptor = os.pidfd_open(pid)
    try:
        if select.select([descriptor], [], [], seconds)[0]:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(pid, signal.SIGABRT)
        if not select.select([descriptor], [], [], 5)[0]:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None
    finally:
        os.close(descriptor)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            run(request, output, errors)
        code = ended(pid, request["seconds"])
        output.seek(0)
        errors.seek(0)
        said = [stream.read().decode("utf-8", "replace") for stream in (output, errors)]
    return {"code": code, "stdout": said[0], "stderr": said[1]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    import_rooms()
    prepare()
    gc.freeze()  # a collection in a fork would copy every page
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
