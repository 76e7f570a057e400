"""A Ray without a part that it never promised: a launch trains all the same, and says what it loses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SMALL

HIDING = """
import importlib, os, sys
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray, ray.tune, ray.air._internal.usage, ray.tune.execution.class_cache, ray.tune.execution.tune_controller
from goalgrid.runners.launch import ray_private
def hide(names):
    modules = {name.rpartition(".")[0] for name in names}
    there = {name: sys.modules[name] for name in modules}
    sys.modules.update(dict.fromkeys(modules))
    try:
        importlib.reload(ray_private)
    finally:
        sys.modules.update(there)
"""
EACH = """
assert ray_private.losses() == []
for name in ray_private.LOSSES:
    hide([name])
    lost = [line for line in ray_private.losses() if f" has no {name}: {ray_private.LOSSES[name]}" in line]
    assert len(lost) == 1, (name, ray_private.losses())
    ray_private.replace(name, None)
"""
LAUNCH = """
hide(ray_private.LOSSES)
from goalgrid.cli.app import main
main()
"""


def test_each_part_that_is_missing_is_named_with_what_it_costs() -> None:
    subprocess.run([sys.executable, "-c", HIDING + EACH], check=True)


@pytest.mark.slow
def test_a_launch_goes_on_without_any_of_them(tmp_path: Path) -> None:
    words = ["run", "demo", *SMALL, "--only", "objective=con_con seed=0", "--mlflow-uri", ""]
    command = [sys.executable, "-c", HIDING + LAUNCH, *words, "--runs", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, "Recall" in ended.stdout) == (0, True), ended.stderr
    assert "Ray listens on this host's address" in ended.stderr
    assert len(list(tmp_path.glob("trials/*/record.parquet"))) == 1
