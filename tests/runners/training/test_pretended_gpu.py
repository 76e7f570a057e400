"""Training on a pretended GPU: the same numbers as on the CPU, one wait a step, and no copy from pageable memory.

What a real GPU alone can show, its kernels and their speed, `benchmarks/gpu.py` measures.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from grid import catalog
from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "pretended_gpu"
SHORT = ("objectives", "recipe:cnn-gru", "resumed:cnn-gru", "trial:cnn-gru", "probe:cnn-gru")
"""What the fast tests read, from one process."""
ENSEMBLES = ("bfan-tiny", "scan-tiny", "sgraf-tiny")
"""They train nothing."""
FEATURES = ["recipe:fc-bow", "recipe:fc-gru", "recipe:fc-bigru", "recipe:rvsepp-tiny"]
FEATURES += ["recipe:vse-2ad-tiny", "recipe:vse-inf-butd-tiny"]
"""Recipes that read features."""
SMALL_FORMS = [name for name in catalog.names("recipes") if "-tiny" in name or name.startswith("cnn-")]
PIXELS = [word for name in SMALL_FORMS if name not in ENSEMBLES and (word := f"recipe:{name}") not in FEATURES]


@pytest.fixture(scope="module")
def rehearsed() -> Callable[..., dict[str, Any]]:
    """Run words of `rehearsal.py` in a process of its own: the pretended GPU has to be there before torch."""
    spec = spec_from_file_location("loading", FOLDER / "loading.py")
    assert spec is not None
    assert spec.loader is not None
    loading = module_from_spec(spec)
    spec.loader.exec_module(loading)
    if reason := loading.unavailable():
        pytest.skip(reason)

    def run(*words: str) -> dict[str, Any]:
        command = [sys.executable, str(FOLDER / "rehearsal.py"), *words]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        assert finished.returncode == 0, finished.stderr
        return dict(json.loads(finished.stdout))

    return run


@pytest.fixture(scope="module")
def short(rehearsed: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return rehearsed(*SHORT)


def test_every_objective_equals_the_cpus_and_never_waits(short: dict[str, Any]) -> None:
    assert short["objectives"]["count"] > 100
    assert short["objectives"]["differ"] == []


def check(found: dict[str, Any]) -> None:
    """A recipe's history and metrics equal the CPU's; its steps wait for the device once, the first not at all."""
    gpu, cpu = found["gpu"], found["cpu"]
    for here, there in zip(cpu["rows"], gpu["rows"], strict=True):
        assert there["loss"] == pytest.approx(here["loss"], rel=1e-3)
        assert there["grad_norm"] == pytest.approx(here["grad_norm"], rel=1e-2)
    assert gpu["metrics"] == pytest.approx(cpu["metrics"], abs=2)
    assert len(gpu["steps"]) >= 3
    for step in gpu["steps"]:
        assert sum(step["waits"].values()) <= 1, step["waits"]
        assert step["pageable"] == {}


def test_a_recipe_equals_the_cpus_and_its_steps_wait_once(short: dict[str, Any]) -> None:
    check(short["recipe:cnn-gru"])


def test_a_training_cut_off_in_mid_epoch_goes_on_to_the_bit(short: dict[str, Any]) -> None:
    assert short["resumed:cnn-gru"]["weights"] > 10
    assert short["resumed:cnn-gru"]["differ"] == []


def test_a_trial_leaves_its_record_and_the_probe_a_need(short: dict[str, Any]) -> None:
    trial = short["trial:cnn-gru"]
    assert {trial[kind]["state"] for kind in trial} == {"done"}, trial
    assert trial["gpu"]["device"] == "Pretended" != trial["cpu"]["device"]
    assert trial["gpu"]["tf32"] == [False, False]  # cuDNN's layers would compute in it
    assert short["probe:cnn-gru"]["problem"] == ""
    assert short["probe:cnn-gru"]["alone"][0] > 2**20


@pytest.mark.slow
def test_every_recipe_equals_the_cpus_and_its_steps_wait_once(
    rehearsed: Callable[..., dict[str, Any]], few_of_flickr8k: Path
) -> None:
    found = rehearsed(*PIXELS, *(f"{word}:{few_of_flickr8k}" for word in FEATURES))
    for word, facts in found.items():
        try:
            check(facts)
        except AssertionError as error:
            error.add_note(word)
            raise
