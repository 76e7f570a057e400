"""The benchmark for a GPU, in its short form on a CPU."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from goalgrid.planning.gpu.footprint import estimate

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_runs_to_its_end_and_names_what_needs_a_gpu(tmp_path: Path) -> None:
    found = tmp_path / "gpu.json"
    command = [sys.executable, "benchmarks/gpu.py", "--hour", "--device", "cpu", "--small", "--output", str(found)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    blocks = json.loads(found.read_text())["blocks"]
    states = {name: block["state"] for name, block in blocks.items()}
    assert {name for name, state in states.items() if state == "needs a GPU"} == {"graphs", "tests", "estimate", "tf32"}
    assert states.pop("flickr8k") == "needs --root"
    assert set(states.values()) == {"done", "needs a GPU"}
    assert all(block["rows"] for name, block in blocks.items() if states.get(name) == "done")
    page = found.with_suffix(".md").read_text()
    assert all(row in page for block in blocks.values() for row in block["rows"])
    assert all("out-of-memory" in row for row in blocks["errors"]["rows"])


def test_small_steps_of_the_first_hour_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each test run, since what they import moves."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT)
    first_hour = importlib.import_module("benchmarks.gpu_blocks.first_hour")
    for recipe in ("fc-gru", "cnn-gru"):
        settings, shapes, step = first_hour.made(recipe, "cpu", True)
        step()
        assert estimate(settings, shapes, {}).step.launches > 20
