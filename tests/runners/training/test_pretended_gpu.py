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

import numpy as np
import pyarrow.parquet as pq
import pytest

from goalgrid.grid import catalog
from goalgrid.grid.store.home import Home
from goalgrid.results.records.record import write_records
from tests.conftest import ROOT, Goalgrid
from tests.retrieval.components.video import made

FOLDER = ROOT / "tests" / "pretended_gpu"
SHORT = ("objectives", "poolings", "seeds")
"""What the fast tests read, from one process."""
ENSEMBLES = ("bfan-tiny", "scan-tiny", "sgraf-tiny", "vse-2ad-rgp-tiny")
"""They train nothing."""
UNTRAINED = "clip-zero-shot-tiny"
FEATURES = ["recipe:fc-bow", "recipe:fc-gru", "recipe:fc-bigru", "recipe:rvsepp-tiny"]
FEATURES += ["recipe:vse-2ad-tiny", "recipe:vse-inf-butd-tiny", "recipe:vsrn-tiny"]
"""Recipes that read features."""
SMALL_FORMS = [name for name in catalog.names("recipes") if "-tiny" in name or name.startswith("cnn-")]
VIDEOS = ["recipe:ce-tiny", "recipe:mmt-tiny"]
TRAINED = [f"recipe:{name}" for name in SMALL_FORMS if name not in (*ENSEMBLES, UNTRAINED)]
PIXELS = [word for word in TRAINED if word not in (*FEATURES, *VIDEOS)]
SETS = [word for word in PIXELS if word.startswith(("recipe:saf", "recipe:sgr", "recipe:scan", "recipe:bfan"))]


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
        return dict(map(json.loads, finished.stdout.splitlines()))

    return run


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the runs folders `cpu` and `gpu`, of the same trial."""
    return tmp_path_factory.mktemp("both")


@pytest.fixture(scope="module")
def short(rehearsed: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return rehearsed(*SHORT)


@pytest.fixture(scope="module")
def trial(rehearsed: Callable[..., dict[str, Any]], both: Path) -> dict[str, Any]:
    (facts,) = rehearsed(f"trial:cnn-gru:{both}").values()
    return facts


@pytest.mark.gate
def test_every_objective_equals_the_cpus_and_never_waits(short: dict[str, Any]) -> None:
    assert short["objectives"]["count"] > 100
    assert short["objectives"]["differ"] == []


@pytest.mark.gate
def test_every_pooling_equals_the_cpus_and_never_waits(short: dict[str, Any]) -> None:
    assert short["poolings"]["count"] > 10
    assert short["poolings"]["differ"] == []


@pytest.mark.gate
def test_a_trials_seed_and_its_checkpoints_decide_what_the_gpu_draws(short: dict[str, Any]) -> None:
    assert short["seeds"] == dict.fromkeys(short["seeds"], True)
    assert len(short["seeds"]) == 4


def check(found: dict[str, Any], *, drawn: bool = False) -> None:
    """The first loss and gradient equal the CPU's; each step waits for the device at most once.

    Later losses are compared where training does not enlarge rounding errors: Adam makes a whole step of each.

    Args:
        drawn: the loss has negatives that each device draws in its own way.
    """
    gpu, cpu = found["gpu"], found["cpu"]
    first, expected = gpu["steps"][0], cpu["steps"][0]
    assert first["loss"] == pytest.approx(expected["loss"], rel=0.1 if drawn else 1e-5)
    assert drawn or first["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)
    assert gpu["metrics"].keys() == cpu["metrics"].keys()
    assert len(gpu["steps"]) >= 3
    for step in gpu["steps"]:
        assert sum(step["waits"].values()) <= 1, step["waits"]
        assert step["pageable"] == {}


@pytest.mark.gate
def test_a_recipe_equals_the_cpus_and_its_steps_wait_once(rehearsed: Callable[..., dict[str, Any]]) -> None:
    (found,) = rehearsed("recipe:cnn-gru").values()
    check(found)
    losses = ([step["loss"] for step in found[kind]["steps"]] for kind in ("gpu", "cpu"))
    assert next(losses) == pytest.approx(next(losses), rel=1e-3)
    assert found["gpu"]["metrics"] == pytest.approx(found["cpu"]["metrics"], abs=2)


@pytest.mark.slow
def test_weights_of_pairs_learn_as_on_the_cpu(rehearsed: Callable[..., dict[str, Any]]) -> None:
    (found,) = rehearsed("recipe:cnn-bow::meta-spn").values()
    check(found)


@pytest.mark.gate
def test_a_training_cut_off_goes_on_to_the_bit_and_the_probe_finds_a_need(
    rehearsed: Callable[..., dict[str, Any]],
) -> None:
    resumed, probe = rehearsed("resumed:cnn-gru", "probe:cnn-gru").values()
    assert resumed["weights"] > 10
    assert resumed["differ"] == []
    assert resumed["restoring"] == 0, "a checkpoint was read to the GPU, where it has no room"
    assert probe["problem"] == ""
    assert probe["alone"][0] > 2**20


def check_trial(trial: dict[str, Any]) -> None:
    """Its record has the numbers that its best weights have on the CPU, and so has `goalgrid evaluate`."""
    assert trial["state"] == "done", trial
    assert trial["device"] == "Pretended"
    assert trial["metrics"] == trial["recorded"]
    for key, apart in trial["apart"].items():
        assert apart <= (1 if key.endswith("_ranks") else 1e-5), key


@pytest.mark.gate
def test_a_trial_and_its_evaluation_equal_the_cpus(trial: dict[str, Any]) -> None:
    check_trial(trial)
    assert trial["apart"].keys() >= {"images", "texts", "i2t_ranks", "t2i_ranks"}
    assert trial["tf32"] == [False, False]  # cuDNN's layers would compute in it


OF_A_RUN = ("train_seconds", "environment", "finished_at")
"""Columns of a record that say when and where a trial was trained."""


def columns(home: Home, scratch: Path) -> dict[str, Any]:
    """What `goalgrid export` writes of the trial's record, without what is of its run; the history by name."""
    write_records(home.grid("demo").ids(), home, scratch)
    (row,) = pq.read_table(scratch).to_pylist()
    logged = {entry["name"]: entry["value"] for entry in row.pop("history") if entry["name"] != "seconds"}
    return {name: value for name, value in {**row, **logged}.items() if name not in OF_A_RUN}


@pytest.mark.gate
def test_exported_records_and_tables_equal_the_cpus(
    trial: dict[str, Any], both: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    assert trial["state"] == "done"
    ours, expected = (columns(Home(both / kind), tmp_path / f"{kind}.parquet") for kind in ("gpu", "cpu"))
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        if name.endswith("_ranks"):
            np.testing.assert_allclose(ours[name], value, atol=1)
        else:
            assert ours[name] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value), name
    tables = [goalgrid("table", "demo", "--format", "csv", runs=both / kind) for kind in ("gpu", "cpu")]
    assert [table.returncode for table in tables] == [0, 0]
    assert tables[0].stdout == tables[1].stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [[word for word in PIXELS if word not in SETS], SETS, FEATURES, VIDEOS],
    ids=["pixels", "sets", "features", "videos"],
)
def test_every_recipe_equals_the_cpus_and_its_steps_wait_once(
    words: list[str], rehearsed: Callable[..., dict[str, Any]], few_pictures: Path, tmp_path: Path
) -> None:
    videos = made.write(tmp_path / "videos", made.TINY, {"train": 60, "validate": 6, "test": 8})
    places = dict.fromkeys(FEATURES, few_pictures) | dict.fromkeys(VIDEOS, videos)
    for word, facts in rehearsed(*(f"{word}:{places[word]}" if word in places else word for word in words)).items():
        try:
            check(facts, drawn=word == "recipe:xvlm-tiny")
        except AssertionError as error:
            error.add_note(word)
            raise


@pytest.mark.slow
def test_trials_that_train_nothing_and_of_sets_equal_the_cpus(rehearsed: Callable[..., dict[str, Any]]) -> None:
    for trial in rehearsed(f"trial:{UNTRAINED}", "trial:scan-t2i-tiny").values():
        check_trial(trial)
