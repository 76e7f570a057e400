"""How benchmarks measure and print: interleaved medians of CPU or GPU time, peaks of memory, rows of one table."""

import ctypes
import importlib
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

COLUMNS = ("what", "ours", "peer", "limit", "ratio", "goal", "met")
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
"""`peer`: what people use today; `limit`: what nobody can do without; `ratio`: of ours and what stands there."""


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int, device: str = "cpu") -> dict[str, float]:
    """Median seconds of each case, all of them in every round, in another order each."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds):
        for name in random.Random(turn).sample(list(cases), len(cases)):
            times[name].append(seconds(cases[name], device))
    return {name: statistics.median(values) for name, values in times.items()}


def seconds(work: Callable[[], object], device: str = "cpu") -> float:
    """CPU seconds on a CPU; on a GPU those between two events around the work, once all before it is over."""
    if device == "cpu":
        return cpu_seconds(work)
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process, all its threads together."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_megabytes(work: Callable[[], object], device: str = "cpu") -> float:
    """How far the resident set grows above what it is now, Linux only; on a GPU, what tensors take."""
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
        allocated = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - allocated) / 2**20
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory that was freed before would hide the growth
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = _kilobytes("VmRSS")
    work()
    return (_kilobytes("VmHWM") - before) / 2**10


@dataclass(frozen=True)
class Spent:
    """What a command took, its start included."""

    seconds: float
    cpu: float
    megabytes: float
    """At its peak. `ru_maxrss` would count what the process that started it held."""


def goalgrid(*words: str) -> Spent:
    """Run the command line in a process of its own."""
    code = (
        f"import json, resource, sys\nfrom pathlib import Path\nsys.argv = {['goalgrid', *words]!r}\n"
        "from goalgrid.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code in (None, 0, 3, 4), end\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "peak = next(int(l.split()[1]) for l in Path('/proc/self/status').read_text().splitlines() if 'VmHWM' in l)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, peak / 2**10]), file=sys.stderr)"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    cpu, megabytes = json.loads(done.stderr.splitlines()[-1])
    return Spent(time.monotonic() - began, cpu, megabytes)


def _kilobytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def processor() -> str:
    """The model that Linux names, and how many cores this machine has of it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def begin(*packages: str, note: str = "") -> None:
    """Print on what is measured, and the head of the table.

    Args:
        packages: those whose versions matter.
        note: what else does.
    """
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in packages]
    said = ", ".join([processor(), *([note] if note else []), f"Python {platform.python_version()}", *versions])
    print(f"{said}\n\n{HEADER}", flush=True)


def row(
    what: str,
    ours: str,
    *,
    peer: str = "",
    limit: str = "",
    ratio: str = "",
    goal: str = "",
    met: bool | None = None,
) -> str:
    """A line of the table; `met` is left empty where there is no goal."""
    said = "" if met is None else "yes" if met else "no"
    return f"| {' | '.join((what, ours, peer, limit, ratio, goal, said))} |"


def show(rows: Iterable[str]) -> None:
    """Print lines of the table at once: what follows may take long."""
    for line in rows:
        print(line, flush=True)
