"""What is a user's own, beside ours: written into an empty folder, trained, shown, edited, and gone."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from goalgrid.grid import plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.jobs import Job, jobs_for
from goalgrid.runners.training.fingerprint import code_fingerprint

from ..conftest import ROOT, SMALL, Goalgrid, made_once, swapped
from ..retrieval.packages import write_image

PAGE = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")
(LOSSES, CONVERTED, _WEIGHTED, POOLING, ENCODERS, SCORER) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(GRID,) = re.findall(r"```toml\n(name.*?)```", PAGE, re.DOTALL)
(RECIPE,) = re.findall(r"```toml\n(extends.*?)```", PAGE, re.DOTALL)
(OWN_ENCODERS, OWN_SCORER) = re.findall(r"```toml\n(model.*?)```", PAGE, re.DOTALL)
(TABLE,) = re.findall(r"```toml\n(recipes.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user's own, after three commands: `plan`, `run`, `table`."""

    def train(folder: Path) -> None:
        (folder / "losses.py").write_text(LOSSES, encoding="utf-8")
        (folder / "small.toml").write_text(RECIPE, encoding="utf-8")
        (folder / "mine.toml").write_text(GRID, encoding="utf-8")
        for command in (("plan",), ("run", "--here", "--mlflow-uri", "")):
            finished = goalgrid(command[0], str(folder / "mine.toml"), *command[1:], runs=folder / "runs")
            assert finished.returncode == 0, finished.stderr

    return made_once("own", tmp_path_factory, train)


def stale(folder: Path, goalgrid: Goalgrid) -> set[str]:
    status = json.loads(goalgrid("status", "mine", "--json", runs=folder / "runs").stdout)
    names = ("con_con", "soft-hinge", "two-way")
    assert status["stale"].keys() <= {"code"}
    return {
        name for trials in status["stale"].get("code", {}).values() for name in names if any(name in t for t in trials)
    }


def test_the_table_shows_own_losses_by_name_from_any_folder(folder: Path, goalgrid: Goalgrid) -> None:
    table = goalgrid("table", "mine", "--format", "csv", runs=folder / "runs")
    assert table.returncode == 0, table.stderr
    assert all(name in table.stdout for name in ("con_con", "soft-hinge", "two-way"))
    assert stale(folder, goalgrid) == set()


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (swapped(LOSSES, "/ tau", "/ (2 * tau)"), {"soft-hinge"}),
        (swapped(LOSSES, "(scores, scores.T)", "(scores,)"), {"two-way"}),
        (swapped(LOSSES, "Cross entropy of the scores", "Cross entropy") + "# the end\n", set()),
        (LOSSES + '\n\n@goalgrid.objective("third")\ndef third(t):\n    return t.s_neg\n', set()),
    ],
    ids=["the first loss", "the second loss", "words", "a third loss"],
)
def test_an_edit_makes_exactly_the_trials_of_that_loss_stale(
    edit: str, expected: set[str], folder: Path, goalgrid: Goalgrid
) -> None:
    (folder / "losses.py").write_text(edit, encoding="utf-8")
    try:
        assert stale(folder, goalgrid) == expected
    finally:
        (folder / "losses.py").write_text(LOSSES, encoding="utf-8")


def test_a_file_that_is_gone_is_said_once_and_the_table_still_stands(folder: Path, goalgrid: Goalgrid) -> None:
    (folder / "losses.py").rename(folder / "moved.py")
    try:
        table = goalgrid("table", "mine", "--format", "csv", runs=folder / "runs")
        assert table.returncode == 0
        assert table.stderr.count("used by grid 'mine', no longer exists. The copy saved by the last run") == 1
        planned = goalgrid("plan", str(folder / "mine.toml"), runs=folder / "runs")
        assert planned.returncode == 2
        assert "uses './losses.py': no file" in planned.stderr
    finally:
        (folder / "moved.py").rename(folder / "losses.py")


def test_a_job_brings_the_file_to_a_process_that_lacks_it(folder: Path) -> None:
    from goalgrid.grid.expansion import trials_of
    from goalgrid.grid.store.saved_grid import read_grid

    home = Home(folder / "runs")
    grid = read_grid("mine", home)
    text = jobs_for(grid, trials_of(expand(grid)), home, gpus=0)[1].to_json().replace(str(folder), "/elsewhere")
    job = Job.from_json(text)
    loss = job.trials[0].objective.entry.equation
    assert loss is not None
    assert (loss.__module__.rpartition("-")[0], loss.__qualname__) == ("uses:losses", "soft_hinge")
    assert job.trials[0].objective.name == "soft-hinge"


def test_own_objectives_are_explained_and_drawn(folder: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    own = ("--uses", str(folder / "losses.py"))
    assert "soft-hinge" in goalgrid("objectives", *own, runs=tmp_path).stdout
    assert "steepness, per unit of similarity" in goalgrid("objectives", "soft-hinge", *own, runs=tmp_path).stdout
    drawn = goalgrid("diagrams", "soft-hinge", *own, "--set", "tau=20", "-o", str(tmp_path), runs=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "soft-hinge.png").exists()
    refused = goalgrid("diagrams", "two-way", *own, runs=tmp_path)
    assert "'two-way' is a function of all scores of a batch" in refused.stderr
    unknown = goalgrid("objectives", "soft-hinge", runs=tmp_path).stderr
    assert "unknown objective 'soft-hinge'" in unknown
    assert unknown.endswith('A loss of your own: uses = ["losses.py"] in the grid file, or --uses losses.py.\n')


def test_own_recipes_are_shown_and_are_an_axis(folder: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    shown = goalgrid("recipes", str(folder / "small.toml"), runs=tmp_path)
    assert "small: cnn-bow, in a second" in shown.stdout
    assert re.search(r"train.batch_size +250\n", shown.stdout)
    lines = [line for line in GRID.splitlines() if not line.startswith("recipes")]
    grid = folder / "axis.toml"
    grid.write_text("\n".join([*lines, TABLE]), encoding="utf-8")
    planned = goalgrid("plan", str(grid), runs=tmp_path)
    assert "recipe       3  cnn-bow, small, slower" in planned.stdout, planned.stderr


def test_an_own_pooling_learns_and_is_stale_by_itself(folder: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    for name in ("losses.py", "mine.toml", "small.toml"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "pooling.py").write_text(POOLING, encoding="utf-8")
    content = swapped(GRID, '"./losses.py"', '"losses.py", "pooling.py"') + '[set]\n"model.text.pooling" = "weighed"\n'
    (tmp_path / "mine.toml").write_text(content, encoding="utf-8")
    run = ("run", str(tmp_path / "mine.toml"), "--only", "objective=con_con", "--here", "--mlflow-uri", "")
    finished = goalgrid(*run, runs=tmp_path / "runs")
    assert "1 done" in finished.stderr, finished.stderr
    (tmp_path / "losses.py").write_text(swapped(LOSSES, "/ tau", "/ (2 * tau)"), encoding="utf-8")
    assert stale(tmp_path, goalgrid) == set()
    (tmp_path / "pooling.py").write_text(swapped(POOLING, "dim, 1)", "dim, 1, bias=False)"), encoding="utf-8")
    assert stale(tmp_path, goalgrid) == {"con_con"}


def test_own_encoders_learn_and_their_code_and_parameters_count_for_their_trials_alone(
    folder: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    for name in ("losses.py", "small.toml"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "nets.py").write_text(ENCODERS, encoding="utf-8")
    (tmp_path / "theirs.toml").write_text(OWN_ENCODERS + "train.batch_size = 1000\n", encoding="utf-8")
    content = swapped(swapped(GRID, '"./losses.py"', '"losses.py", "nets.py"'), '"./small.toml"', '"./theirs.toml"')
    (tmp_path / "mine.toml").write_text(content, encoding="utf-8")
    run = ("run", str(tmp_path / "mine.toml"), "--only", "objective=con_con", "--here", "--mlflow-uri", "")
    finished = goalgrid(*run, runs=tmp_path / "runs")
    assert "1 done" in finished.stderr, finished.stderr
    swept = ("--set", "sweep.model.image.parameters.width=[64, 128]", "--set", "objectives=con_con")
    planned = goalgrid("plan", str(tmp_path / "mine.toml"), *swept, runs=tmp_path / "runs")
    assert "2 trials: 1 done, 1 planned" in planned.stdout
    assert stale(tmp_path, goalgrid) == set()
    (tmp_path / "losses.py").write_text(swapped(LOSSES, "/ tau", "/ (2 * tau)"), encoding="utf-8")
    assert stale(tmp_path, goalgrid) == set()
    home = Home(tmp_path / "runs")
    other, (trial,) = home.grid("other"), home.trials()
    shutil.copytree(home.grid("mine").path, other.path)
    other.grid.write_text('name = "other"\nof_another_version = 1\n', encoding="utf-8")  # it is read last
    evaluated = goalgrid("evaluate", "--trial", trial.trial_id, runs=home.path)
    assert "the record of this trial matches these numbers" in evaluated.stdout, evaluated.stderr
    (tmp_path / "nets.py").write_text(swapped(ENCODERS, ".relu()", ".tanh()"), encoding="utf-8")
    assert stale(tmp_path, goalgrid) == {"con_con"}
    (tmp_path / "nets.py").unlink()
    assert goalgrid("table", "mine", "--format", "csv", runs=tmp_path / "runs").returncode == 0


def test_an_own_scorer_learns_with_gradients_and_with_losses_and_counts_for_its_trials_alone(
    goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "late.py").write_text(SCORER, encoding="utf-8")
    (tmp_path / "late.toml").write_text(f"train.epochs = 1\n{OWN_SCORER}", encoding="utf-8")
    content = swapped(swapped(GRID, "losses", "late"), '"./small.toml"', '"late.toml", "scan-t2i-tiny"')
    content = swapped(content, "shapes", "few") + f'[data.few]\nroot = "{few_pictures}"\n'
    (tmp_path / "mine.toml").write_text(swapped(content, '"soft-hinge", "two-way"', '"unified"'), encoding="utf-8")
    mine = str(tmp_path / "mine.toml")
    run = ("run", mine, "--only", "recipe=late", "--here", "--mlflow-uri", "")
    finished = goalgrid(*run, runs=tmp_path / "runs")
    assert "2 done" in finished.stderr, finished.stderr
    assert stale(tmp_path, goalgrid) == set()

    def of_code() -> list[str]:
        return [code_fingerprint(cell.trials[0].shared) for cell in expand(load(mine)) if cell.objective == "unified"]

    before = of_code()
    (tmp_path / "late.py").write_text(swapped(SCORER, "dim, 1)", "dim, 1, bias=False)"), encoding="utf-8")
    assert [old == new for old, new in zip(before, of_code(), strict=True)] == [False, True]
    assert stale(tmp_path, goalgrid) == {"con_con"}


def test_own_encoders_and_scorers_are_checked(goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(ENCODERS + SCORER, encoding="utf-8")
    checked = goalgrid("check", str(tmp_path / "nets.py"), runs=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("  ok      batch: the output of an input depends neither on other inputs") == 3


def test_own_poolings_are_checked(goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "pooling.py").write_text(POOLING, encoding="utf-8")
    checked = goalgrid("check", str(tmp_path / "pooling.py"), runs=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "  ok      batch: the output of an input depends neither on other inputs nor on padding" in checked.stdout


def test_a_check_ends_with_4_where_a_line_fails(goalgrid: Goalgrid, tmp_path: Path) -> None:
    printing = f"print('imported')\n{LOSSES}".replace("    return torch", "    print('called')\n    return torch")
    (tmp_path / "losses.py").write_text(printing, encoding="utf-8")
    checked = goalgrid("check", str(tmp_path / "losses.py"), "--json", runs=tmp_path)
    found, printed = json.loads(checked.stdout), checked.stderr.split()
    assert printed.count("imported") == 1
    assert printed.count("called") > 1
    assert {name: [verdict["holds"] for verdict in verdicts] for name, verdicts in found.items()} == {
        "soft-hinge": 7 * [True],
        "two-way": 7 * [True],
    }
    (tmp_path / "losses.py").write_text(LOSSES.replace("(t.s_neg - t", "(t.s_neg.detach() - t"), encoding="utf-8")
    wrong = goalgrid("check", str(tmp_path / "losses.py"), runs=tmp_path)
    assert wrong.returncode == 4
    assert (
        "\n  FAILED  gradient: mining = hardest: it differs from the derivative of the returned value" in wrong.stdout
    )
    assert wrong.stdout.count("FAILED") == 1


def test_a_cause_that_fails_all_checks_is_said_once(goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text(LOSSES.replace("(t.s_neg - t", "(t.s_negg - t"), encoding="utf-8")
    wrong = goalgrid("check", str(tmp_path / "losses.py"), runs=tmp_path)
    assert wrong.stdout.count("no attribute 's_negg'") == 1
    assert (
        "FAILED  gradient, permutation, half precision, empty sets, weights, scale, speed: AttributeError"
        in wrong.stdout
    )


def test_a_converted_loss_has_the_values_that_it_had_before(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text("import torch\nimport goalgrid\nfrom goalgrid import Parameter\n" + CONVERTED)
    use = plugins.read("losses.py", tmp_path)
    after = Catalog.of([use]).objectives["my-hinge"].equation
    before, s = vars(sys.modules[use.module])["hinge"], torch.randn(2, 7, 1)
    assert after is not None
    assert torch.equal(before(s, s.flip(1)), after(SimpleNamespace(s_pos=s, s_neg=s.flip(1)), margin=0.2).mean())


def test_what_the_first_page_shows_makes_a_table_in_an_empty_folder(goalgrid: Goalgrid, tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your own loss")[2].partition("\n## ")[0]
    (losses,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (commands,) = re.findall(r"```\n(goalgrid .*?)```", page, re.DOTALL)
    (tmp_path / "losses.py").write_text(losses, encoding="utf-8")
    small = ("train.batch_size=250", "seeds=0", "model.image.size=16", "train.epochs=2")
    fast = [word for value in small for word in ("--set", value)]
    assert len(commands.splitlines()) == 2
    for command in commands.splitlines():
        _, verb, *words = shlex.split(command)
        words += ["--here", "--mlflow-uri", "", *fast] if verb == "run" else []
        finished = goalgrid(verb, *words, runs=tmp_path / "runs", folder=tmp_path)
        assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "soft-hinge" in finished.stdout


FORKS = """
import multiprocessing
import goalgrid

def hinge(scores):
    return scores.sum() - 2 * scores.diagonal().sum()

@goalgrid.objective("pools", on="scores")
def pools(scores):
    "has processes of its own, which it ends by SIGTERM"
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
    return hinge(scores)
"""


def test_processes_that_a_loss_forks_and_ends_do_not_end_the_launch(goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORKS, encoding="utf-8")
    text = GRID.replace("losses.py", "forks.py").replace('["./small.toml"]', '["cnn-bow"]')
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    words = ("--set", 'objectives=["pools"]', *SMALL, "--set", "train.epochs=1")
    run = goalgrid("run", str(tmp_path / "mine.toml"), *words, "--here", "--mlflow-uri", "", runs=tmp_path / "runs")
    assert run.returncode == 0, run.stderr
    assert "asked to end" not in run.stderr


@pytest.mark.slow
def test_workers_of_ray_and_replicas_get_the_file_from_the_runs_folder_where_it_is_gone(
    folder: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    for name in ("losses.py", "mine.toml", "small.toml"):
        shutil.copy(folder / name, tmp_path)
    goals = ("--set", "reliability.checkpoint_steps=5", "--set", "resources.replicas=2", "--mlflow-uri", "")
    first = goalgrid("run", str(tmp_path / "mine.toml"), "--only", "objective=con_con", *goals, runs=tmp_path / "runs")
    assert first.returncode == 0, first.stderr
    for name in ("losses.py", "small.toml"):
        (tmp_path / name).unlink()
    resumed = goalgrid("resume", "mine", *goals[2:], runs=tmp_path / "runs")
    assert resumed.returncode == 0, resumed.stderr
    assert "losses.py, used by grid 'mine', no longer exists" in resumed.stderr
    assert "mine: 3 trials: 3 done" in resumed.stderr


def test_a_loss_a_recipe_and_a_csv_in_an_empty_folder_are_a_table_after_three_commands(
    goalgrid: Goalgrid, tmp_path: Path
) -> None:
    """The loss of the README, nothing of the package changed."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (loss,) = re.findall(r"```python\n(# losses\.py.*?)```", readme, re.DOTALL)
    (tmp_path / "losses.py").write_text(loss, encoding="utf-8")
    (tmp_path / "small.toml").write_text('extends = "cnn-bow"\ntrain.epochs = 2\n', encoding="utf-8")
    splits = ["train"] * 8 + ["val"] * 4 + ["test"] * 4
    rows = [f"{number}.png,picture {number} of {split},{split}" for number, split in enumerate(splits)]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption,split", *rows]), encoding="utf-8")
    for number in range(len(splits)):
        write_image(tmp_path / f"{number}.png", 15 * number)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nuses = ["losses.py"]\ndatasets = ["ours"]\nrecipes = ["small.toml"]\nseeds = [0]\n'
        f'objectives = ["con_con", "soft-hinge"]\n[data.ours]\nroot = "{tmp_path}"\n'
        '[set]\n"dataset.min_count" = 1\n',
        encoding="utf-8",
    )
    runs = tmp_path / "runs"
    for command in (
        ("data", "check", "ours", "--root", str(tmp_path)),
        ("run", str(tmp_path / "mine.toml"), "--here", "--mlflow-uri", ""),
        ("table", "mine", "--format", "csv"),
    ):
        finished = goalgrid(*command, runs=runs)
        assert finished.returncode == 0, finished.stdout + finished.stderr
    assert all(f",{name}," in finished.stdout for name in ("small", "con_con", "soft-hinge"))


ENDS = """
import sys
import goalgrid

@goalgrid.objective("exits", on="scores")
def exits(scores):
    "leaves"
    sys.exit(0)

@goalgrid.objective("stops", on="scores")
def stops(scores):
    "leaves"
    raise KeyboardInterrupt

class Leaves(BaseException):
    def __str__(self):
        raise ValueError("no text")

@goalgrid.objective("leaves", on="scores")
def leaves(scores):
    "leaves"
    raise Leaves

@goalgrid.objective("forgets")
def forgets(t):
    "returns nothing"

@goalgrid.objective("cuts", on="scores")
def cuts(scores):
    "has no gradient"
    return scores.detach().sum()

@goalgrid.objective("spoils", on="scores")
def spoils(scores):
    "is nan"
    return scores.sum() * float("nan")

@goalgrid.objective("sound", on="scores")
def sound(scores):
    "sum"
    return scores.sum() - 2 * scores.diagonal().sum()
"""


def test_a_loss_that_ends_the_process_or_gives_no_loss_fails_its_own_trial_alone(
    goalgrid: Goalgrid, tmp_path: Path
) -> None:
    (tmp_path / "ends.py").write_text(ENDS, encoding="utf-8")
    text = swapped(swapped(GRID, "losses.py", "ends.py"), '["./small.toml"]', '["cnn-bow"]')
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    words = (
        "--set",
        'objectives=["exits","stops","leaves","forgets","cuts","spoils","sound"]',
        *SMALL,
        "--set",
        "train.epochs=1",
    )
    run = goalgrid("run", str(tmp_path / "mine.toml"), *words, "--here", "--mlflow-uri", "", runs=tmp_path / "runs")
    assert run.returncode == 4
    assert f"bug: SystemExit: 0 ({tmp_path / 'ends.py'}, line 8: sys.exit(0))" in run.stderr
    assert f"bug: KeyboardInterrupt ({tmp_path / 'ends.py'}, line 13: raise KeyboardInterrupt)" in run.stderr
    assert f"bug: Leaves ({tmp_path / 'ends.py'}, line 22: raise Leaves)" in run.stderr
    ends = tmp_path / "ends.py"
    assert f"bug: objective 'forgets' in {ends} gives None for triplets (2, 100, 1); it should give" in run.stderr
    assert f"bug: objective 'cuts' in {ends} gives a value without a gradient for the scores of a batch" in run.stderr
    assert f"non-finite: the loss of objective 'spoils' in {ends} became nan at step 1" in run.stderr
    assert "7 trials: 1 done, 6 failed" in run.stderr
