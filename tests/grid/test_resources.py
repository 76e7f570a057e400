"""CPUs that a process may use: fewer than the machine has, under an affinity or in a container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goalgrid.grid.resources import cpus_here

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("named", "files", "cpus"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 1),
        ("0::/", {"cpu.max": "100000 100000"}, 1),
        ("0::/elsewhere", {"cpu.max": "50000 100000"}, 1),
        ("3:cpu,cpuacct:/job", {"cpu/job/cpu.cfs_quota_us": "100000", "cpu/job/cpu.cfs_period_us": "100000"}, 1),
        ("3:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, HERE),
        ("0::/", {"cpu.max": "max 100000"}, HERE),
        ("0::/", {"cpu.max": f"{HERE + 1}00000 100000"}, HERE),
        ("", {}, HERE),
    ],
)
def test_the_quota_of_a_control_group_bounds_the_cpus(
    named: str, files: dict[str, str], cpus: int, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.write_text(named)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cpus_here(tmp_path, own) == cpus


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_affinity_bounds_the_cpus() -> None:
    script = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    script += "from goalgrid.grid.resources import cpus_here; print(cpus_here())"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "1\n"
