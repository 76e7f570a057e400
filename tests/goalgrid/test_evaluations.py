"""[evaluate]: further evaluations of finished trials, made once, kept beside the record, and shown by all verbs."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.cli.exits import INCOMPLETE
from goalgrid.grid.errors import UserError
from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home
from goalgrid.results.records.models import CAPTIONS, UNKNOWN, FurtherEvaluation
from goalgrid.retrieval.eccv import best
from goalgrid.runners.launch import shared_folder, worker
from goalgrid.runners.launch.jobs import Job, Launched, evaluating, jobs_for
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop
from goalgrid.state.named_grids import recall
from tests.fork_server import client

from ..conftest import Goalgrid
from ..retrieval.test_eccv import literal
from .conftest import PAIR, Verb

KILLED = """
import os, signal, sys
from goalgrid.results.records.models import FurtherEvaluation
whole = FurtherEvaluation.write
def write(self, path):
    whole(self, path)
    os.kill(os.getpid(), signal.SIGKILL)
FurtherEvaluation.write = write
from goalgrid.cli.app import main
main()
"""
"""The program, killed once it has written an evaluation."""


def further(root: Path, *more: str) -> tuple[str, ...]:
    """The grid of `pair` with [evaluate], as a user adds it to a grid that ran."""
    return ("demo", "--set", 'evaluate.datasets=["few"]', "--set", f"data.few.root={root}", *more)


@pytest.fixture
def strange_words(few_pictures: Path, tmp_path: Path) -> Path:
    """The few pictures, of which a test caption has words that no training on `shapes` read."""
    root = Path(shutil.copytree(few_pictures, tmp_path / "few"))
    content = json.loads((root / "dataset.json").read_text())
    image = next(image for image in content["images"] if image["split"] == "test")
    image["sentences"][0] |= {"raw": "A zebra grazes .", "tokens": ["a", "zebra", "grazes"]}
    (root / "dataset.json").write_text(json.dumps(content))
    return root


def contents(home: Home) -> dict[Path, bytes]:
    """Every file of the trials but their evaluations."""
    files = (path for path in home.trials_folder.rglob("*") if path.is_file() and path.parent.name != "evaluations")
    return {path: path.read_bytes() for path in files}


def assert_shown(pair: Home, verb: Verb, tmp_path: Path) -> None:
    """Effects, figures and the report read the evaluations."""
    effects = json.loads(verb("effects", "demo", "--on", "few", "--json", runs=pair).stdout)
    values = [FurtherEvaluation.read(folder.evaluation("few-test")) for folder in pair.trials()]
    assert effects[0]["means"] == [value.metrics["i2t_r1"] for value in values if value]
    drawn = verb("figures", "demo", "effects", "--on", "few", "-o", str(tmp_path / "figures"), runs=pair)
    assert "effects-cnn-bow-on-shapes.png" in drawn.stderr
    verb("report", "demo", runs=pair)
    page = pair.grid("demo").report.read_text()
    assert re.findall(r'<label for="protocol-\d">(.*?)</label>', page) == ["shapes-500", "few-test"]
    assert f"goalgrid table demo --metric rsum --protocol few-test --runs {pair.path}" in page


@contextmanager
def moved_away(root: Path) -> Iterator[None]:
    aside = root.rename(root.with_name("aside"))
    yield
    aside.rename(root)


def assert_told_apart(pair: Home, copy: Home, trained_pair: Home, root: Path, verb: Verb) -> None:
    """Evaluations are merged and compared; those of another trial are refused, those of other data made again."""
    assert "2 taken" in verb("merge", str(pair.path), runs=copy).stdout
    assert "missing" not in verb("status", "demo", runs=copy).stdout
    compared = verb("compare", "demo", "--other-runs", str(copy.path), "--on", "few", runs=pair).stdout
    assert "the same trials" in compared
    without = ("compare", "demo", "--other-runs", str(trained_pair.path), "--on", "few")
    assert "no finished trial in B" in verb(*without, runs=pair).stdout
    one, other = (folder.evaluation("few-test") for folder in copy.trials())
    shutil.copy(one, other)
    said = verb("table", "demo", "--on", "few", runs=copy)
    assert f"the file {other} holds the evaluation of {one.parent.parent.name} by few-test" in said.stderr
    assert "1 of 2 cells are missing" in " ".join(said.stdout.split())
    FurtherEvaluation(other.parent.parent.name, "few-test", {"i2t_r1": 1.0}, "2:other").write(other)
    assert "missing evaluations: 1 by few-test" in verb("status", "demo", runs=copy).stdout
    assert "1 of 2 cells are missing" in " ".join(verb("table", "demo", "--on", "few", runs=copy).stdout.split())
    with moved_away(root):  # then nobody can tell which evaluation is of other data
        assert "missing" not in verb("status", "demo", runs=copy).stdout
        with pytest.raises(UserError, match=r"saw different data.*`goalgrid resume GRID` on a machine"):
            verb("table", "demo", "--on", "few", runs=copy)
        assert "left out: the table by few-test: trials on" in verb("report", "demo", runs=copy).stderr
    assert verb("resume", "demo", "--here", "--mlflow-uri", "", runs=copy).exit_code == 0
    evaluation = FurtherEvaluation.read(other)
    assert evaluation
    assert evaluation.data_fingerprint != "2:other"
    assert "missing" not in verb("table", "demo", "--on", "few", runs=copy).stdout


@pytest.mark.gate
def test_what_a_kill_left_out_is_evaluated_by_the_next_run(
    pair: Home, trained_pair: Home, strange_words: Path, verb: Verb, tmp_path: Path
) -> None:
    before = contents(pair)
    asked = further(strange_words)
    with pytest.raises(UserError, match=r"unknown protocol or data set 'few' of grid 'demo'. Known: shapes-500."):
        verb("table", "demo", "--on", "few", runs=pair)
    assert "missing evaluations: 2 by few-test" in verb("plan", *asked, *PAIR, runs=pair).stdout
    arguments = ["resume", *asked, "--here", "--mlflow-uri", "", "--runs", str(pair.path)]
    killed = client.run([sys.executable, "-c", KILLED, *arguments])
    assert killed.returncode == -9, killed.stderr
    status = verb("status", "demo", runs=pair).stdout
    assert f"missing evaluations: 1 by few-test; to compute them: goalgrid resume demo --runs {pair.path}" in status
    (first,) = pair.trials_folder.glob("*/evaluations/*.parquet")
    table = verb("table", "demo", "--on", "few", "--layout", "listing", "--format", "markdown", runs=pair).stdout
    assert "1 of 2 cells are missing (--): 1 trial not evaluated by few-test" in table
    assert "To run the missing evaluations: goalgrid resume demo." in table
    assert "Up to 1 of 60 captions contain words unseen in training." in table
    stood = first.stat().st_mtime_ns

    (other,) = (folder for folder in pair.trials() if folder.trial_id != first.parent.parent.name)
    aside = other.best_checkpoint.rename(tmp_path / "best.ckpt")
    failed = verb("resume", "demo", "--here", "--mlflow-uri", "", runs=pair)
    assert failed.exit_code == INCOMPLETE
    assert f"warning {other.trial_id}: not evaluated by few-test: the best checkpoint" in failed.stderr
    aside.rename(other.best_checkpoint)

    assert verb("resume", "demo", "--here", "--mlflow-uri", "", runs=pair).exit_code == 0
    assert first.stat().st_mtime_ns == stood
    assert contents(pair) == before  # no record, checkpoint or attempt
    for folder in pair.trials():
        evaluation = FurtherEvaluation.read(folder.evaluation("few-test"))
        assert evaluation
        root = ("--root", f"few={strange_words}", "--json")
        again = json.loads(verb("evaluate", "--trial", folder.trial_id, *root, runs=pair).stdout)
        assert evaluation.metrics == again["metrics"] | {CAPTIONS: 60, UNKNOWN: 1}
    assert "missing" not in verb("status", "demo", runs=pair).stdout
    assert "not evaluated" not in verb("table", "demo", "--on", "few", runs=pair).stdout
    assert_shown(pair, verb, tmp_path)
    assert_told_apart(pair, Home(tmp_path / "copy"), trained_pair, strange_words, verb)


def test_an_evaluation_that_kills_its_process_is_tried_once_a_launch(
    trained_pair: Home, strange_words: Path, tmp_path: Path
) -> None:
    """Ray starts the job anew; what the dead process left says that this launch tried."""
    home = Home(Path(shutil.copytree(trained_pair.path, tmp_path / "runs")))
    grid = recall("demo", home, further(strange_words)[2::2])
    (trial, *_) = trials_of(expand(grid))
    evaluation = home.trial(trial.id).evaluation("few-test")
    for launch, ends in (("one", ["warning", "done"]), ("two", ["done"]), ("three", [])):
        launched = Launched(launch, shared_folder.mark(home))
        (job,) = jobs_for(grid, [trial], home, gpus=0, launched=launched)
        (job,) = evaluating(job, grid.evaluate)
        if launch == "one":
            write_text(evaluation.with_suffix(".begun"), launch)
        events = list[Event]()
        worker.work(Job.from_json(job.to_json()), events.append, Stop())
        assert [event.kind for event in events] == ends
        assert evaluation.exists() is (launch != "one")
        assert evaluation.with_suffix(".begun").exists() is (launch == "one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (('evaluate.datasets=["few"]', "data.few.root=/nowhere"), "root of data set 'few': no folder at /nowhere"),
        (('evaluate.datasets=["few"]',), "unknown dataset 'few' in evaluate.datasets"),
        (('evaluate.protocols=["eccv"]',), "unknown protocol 'eccv' in evaluate.protocols. Known: shapes-500"),
        (('evaluate.protocols=["x"]', 'evaluate.datasets=["shapes"]'), "in evaluate.protocols. Known: shapes-500."),
        (('evaluate.datasets="flickr30k"',), "evaluate.datasets"),
        (('evaluate.metrics=["r1"]',), "evaluate"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_is_trained(
    changes: tuple[str, ...], message: str, verb: Verb, tmp_path: Path
) -> None:
    words = [word for change in changes for word in ("--set", change)]
    for command in (("plan",), ("run", "--here", "--mlflow-uri", "")):
        with pytest.raises(UserError, match=re.escape(message)):
            verb(command[0], "demo", *PAIR, *words, *command[1:], runs=Home(tmp_path))
    assert not list(tmp_path.glob("trials/*/*"))


def test_options_that_nothing_was_evaluated_by_are_refused(trained_pair: Home, verb: Verb) -> None:
    for arguments, message in {
        ("table", "--protocol", "eccv"): "unknown protocol or data set 'eccv' of grid 'demo'. Known: shapes-500.",
        ("table", "--metric", "cxc_r1"): "unknown metric 'cxc_r1' without --protocol eccv",
        ("effects", "--metric", "eccv_r1"): "unknown metric 'eccv_r1' without --protocol eccv",
        ("figures", "--on", "coco"): "--set 'evaluate.datasets=[\"coco\"]'",
    }.items():
        with pytest.raises(UserError, match=re.escape(message)):
            verb(arguments[0], "demo", *arguments[1:], runs=trained_pair)


def test_a_trial_is_evaluated_by_what_it_does_not_know_already() -> None:
    trial, second_stage = (
        trials_of(expand(load("demo", [f'datasets=["{data}"]', f'recipes=["{recipe}"]'])))[-1].settings
        for data, recipe in (("coco", "fc-bow"), ("flickr30k", "xvlm"))
    )
    ensemble = trial.model_copy(update={"ensemble": ("a", "b")})
    asked = Evaluate(protocols=["coco-5x1k", "eccv"], datasets=["coco", "flickr30k", "mine"])
    assert asked.names == ["eccv", "coco-5x1k", "f30k-1k", "mine-test"]
    assert asked.of(trial) == {"coco": ["eccv"], "flickr30k": ["f30k-1k"], "mine": ["mine-test"]}
    assert asked.of(second_stage) == {"coco": ["coco-5x1k"], "mine": ["mine-test"]}
    assert asked.of(ensemble) == {}
    assert Evaluate(datasets=["coco"]).of(second_stage) == {"coco": ["coco-5k", "coco-5x1k"]}


def test_evaluations_change_no_trial() -> None:
    plain, asked = load("demo"), load("demo", ['evaluate.datasets=["flickr30k"]'])
    assert (asked.name, trials_of(expand(asked))) == (plain.name, trials_of(expand(plain)))


JUDGED = """
name = "judged"
datasets = "coco"
recipes = "fc-bow"
objectives = "con_con"
seeds = [0, 1]
set = {{ "train.epochs" = 1, "model.dim" = 16, "dataset.min_count" = 1, "dataset.val_images" = 50 }}
data.coco.root = "{root}"
evaluate.protocols = "{protocol}"
"""


@pytest.mark.slow
def test_a_table_of_judgements_is_that_of_the_package(goalgrid: Goalgrid, tmp_path: Path) -> None:
    """Through Ray; on 5,000 images that say some of what their captions say."""
    root, grid, rng = tmp_path / "coco", tmp_path / "judged.toml", np.random.default_rng(0)
    root.mkdir()
    for split, images in (("train", 200), ("dev", 60), ("testall", 5000)):
        kinds = rng.integers(0, 40, (images, 5))
        features = np.zeros((images, 40), np.float32)
        features[np.arange(images)[:, None], kinds] = 1 + rng.random((images, 1)) / 1000  # so that none are equal
        np.save(root / f"{split}_ims.npy", features)
        (root / f"{split}_caps.txt").write_text("".join(f"word{kind}\n" for row in kinds for kind in row))
    grid.write_text(JUDGED.format(root=root, protocol="coco-5x2k").replace('"coco-5x2k"', '["coco-5x2k"]'))
    told = goalgrid("plan", str(grid), runs=tmp_path)
    assert "unknown protocol 'coco-5x2k' in evaluate.protocols" in told.stderr
    grid.write_text(JUDGED.format(root=root, protocol="eccv").replace('"eccv"', '["eccv"]'))
    home = Home(tmp_path / "runs")
    done = goalgrid("run", str(grid), "--mlflow-uri", "", runs=home.path)
    assert done.returncode == 0, done.stderr
    values = []
    for folder in home.trials():
        vectors, trial = tmp_path / "v.npz", ("evaluate", "--trial", folder.trial_id, "--protocol", "eccv")
        again = json.loads(goalgrid(*trial, "--embeddings", str(vectors), "--json", runs=home.path).stdout)["metrics"]
        evaluation = FurtherEvaluation.read(folder.evaluation("eccv"))
        assert evaluation
        metrics = {name: value for name, value in evaluation.metrics.items() if name not in (CAPTIONS, UNKNOWN)}
        assert metrics == {name: again[name] for name in metrics}
        with np.load(vectors) as arrays:
            answers = best(*(torch.from_numpy(arrays[name]) for name in ("images", "texts")))
        assert metrics == pytest.approx(literal(*(rows.numpy() for rows in answers)))
        values.append(metrics)
    table = goalgrid("table", "judged", "--protocol", "eccv", "--format", "json", runs=home.path).stdout
    means = {entry["metric"]: entry["mean"] for entry in json.loads(table)["records"]}
    assert means == {name: pytest.approx(np.mean([value[name] for value in values])) for name in values[0]}
