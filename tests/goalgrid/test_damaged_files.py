"""Every kind of file below the runs folder, damaged in a dozen ways: no traceback, and no other trial harmed.

`GOALGRID_DRAWS=2000 GOALGRID_SEED=7 pytest -n 0 -m slow tests/goalgrid/test_damaged_files.py` draws 2,000 damages of
seed 7.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from grid.errors import UserError
from grid.expansion import Cell, expand, trials_of
from grid.gridfile import load
from grid.store import gpu_needs, speed_probes
from grid.store.gpu_needs import Need
from grid.store.home import Home
from grid.store.speed_probes import Probe
from results.checks.run_comparison import differences
from results.records import record, record_cache
from results.records.models import Speed

from ..conftest import Goalgrid, swapped

GRID = """
name = "damaged"
datasets = ["squares"]
recipes = ["cnn-bow", "frozen-bow"]
objectives = ["con_con", "infonce"]
seeds = [0]
[set]
"train.epochs" = 2
"train.batch_size" = 50
"train.trace_every" = 1
"model.image.size" = 16
"model.dim" = 8
[reliability]
checkpoint_steps = 1
[data.squares]
root = "ROOT"
"""

FAST = (
    "plan GRID", "status damaged", "status damaged --json", "table damaged", "table damaged --format csv",
    "effects damaged", "prune", "prune --yes", "resume damaged --here --mlflow-uri=", "run GRID --here --dry-run",
    "run GRID --here", "run GRID --here --stale --mlflow-uri=",
)  # fmt: skip
SLOW = ("report damaged", "export damaged", "figures damaged")
"""Verbs that draw figures, which takes seconds."""
CHANGING = ("run GRID", "resume")
RUN = "run GRID --here --mlflow-uri="
"""The last verb of every draw."""

DRAW = random.Random()
"""Draws the damages; the printed seed begins it."""


def folder_in_its_place(path: Path, other: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def link_to_nothing(path: Path, other: Path) -> None:
    path.unlink()
    if path.name != "done":  # which counts by its name alone, as the only file of a trial
        path.symlink_to(path.parent / "nothing")


def rewritten(change: Callable[[bytes, bytes], bytes]) -> Callable[[Path, Path], None]:
    def damage(path: Path, other: Path) -> None:
        path.write_bytes(change(path.read_bytes(), other.read_bytes()))

    return damage


def one_bit(content: bytes, _: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    place = DRAW.randrange(len(changed))
    changed[place] ^= 1 << DRAW.randrange(8)
    return bytes(changed)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "cut in half": rewritten(lambda content, _: content[: len(content) // 2]),
    "without its last byte": rewritten(lambda content, _: content[:-1]),
    "empty": rewritten(lambda *_: b""),
    "zeros": rewritten(lambda content, _: bytes(len(content))),
    "a flipped bit": rewritten(one_bit),
    "not UTF-8": rewritten(lambda content, _: b"\xff\xfe\x80" + content[3:]),
    "other content": rewritten(lambda _, other: other),
    "twice": rewritten(lambda content, _: content + content),
    "zeros at the end": rewritten(lambda content, _: content[: -len(content) // 4] + bytes(len(content) // 4)),
    "a folder in its place": folder_in_its_place,
    "a link to nothing": link_to_nothing,
    "gone": lambda path, _: path.unlink(),
}


@dataclass(frozen=True)
class Runs:
    """A runs folder in which trials are done, interrupted and failed; and what the grid gives undisturbed."""

    grid: Path
    cells: list[Cell]
    half_done: Path
    undisturbed: Home


def interrupted(train: Callable[[], object], name: str, n: int, event: Callable[[], None]) -> None:
    """Train in a process of its own in which this happens right before a file of that name is opened the n-th time."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    left = [n]

    def hook(what: str, arguments: tuple[object, ...]) -> None:
        if what == "open" and name in str(arguments[0]):
            left[0] -= 1
            if left[0] == 0:
                event()

    sys.addaudithook(hook)
    try:
        train()
    finally:
        os._exit(0)


def fail() -> None:
    raise RuntimeError("made to fail")


def write_data(root: Path) -> None:
    """A small data set in Karpathy's layout, of coloured squares."""
    (root / "images").mkdir(parents=True)
    draw, entries = np.random.default_rng(0), []
    for split, count in (("train", 20), ("val", 6), ("test", 6)):
        for number in range(count):
            name, colour = f"{split}{number}.png", draw.integers(256, size=3)
            Image.new("RGB", (20, 20), tuple(colour.tolist())).save(root / "images" / name)
            sentences = [{"raw": f"a picture {colour[0] // 32} {colour[1] // 32} {c}"} for c in range(5)]
            entries.append({"filename": name, "split": split, "sentences": sentences})
    (root / "dataset.json").write_text(json.dumps({"images": entries}), encoding="utf-8")


@pytest.fixture(scope="module")
def few_records() -> Iterator[None]:
    """A few records count as many, so that there are summaries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_cache, "FEW", 1)
        patch.setattr(record, "MANY", 2)
        yield


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, goalgrid: Goalgrid, few_records: None, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    """Where the request says "all", with MLflow's database and a report, which take seconds."""
    everything = request.param == "all"
    folder = tmp_path_factory.mktemp("damaged")
    write_data(folder / "data")
    grid = folder / "damaged.toml"
    grid.write_text(swapped(GRID, "ROOT", str(folder / "data")), encoding="utf-8")
    cells = expand(load(str(grid), []))
    half, whole = folder / "half", folder / "whole"

    def train(only: str, *options: str) -> Callable[[], object]:
        return lambda: goalgrid("run", str(grid), "--here", "--only", only, *options, runs=half)

    assert goalgrid("run", str(grid), "--here", "--mlflow-uri=", runs=whole).returncode == 0
    train("objective=con_con", *([] if everything else ["--mlflow-uri="]))()
    interrupted(train("recipe=cnn-bow objective=infonce", "--mlflow-uri="), ".last.ckpt", 9, kill_self)
    interrupted(train("recipe=frozen-bow objective=infonce", "--mlflow-uri="), ".best.ckpt", 2, fail)
    for verb in (["table", "damaged", "--format", "parquet"], ["report", "damaged"])[: 2 if everything else 1]:
        assert goalgrid(*verb, runs=half).returncode in (0, 3, 4)
    home, trial = Home(half), trials_of(cells)[0]
    kind = speed_probes.speed_of(trial.settings)
    gpu_needs.remember(home, kind, Need("a GPU", 1e10, 1e8, 1e8))
    Speed(2e6, 1.0, 43_280, 43_280, "a device", 2).write(home.trial(trial.id).speed)
    probe = Probe("squares", "cnn-bow", kind, 1, 0.1, 0.2, 0.1, 2, 10_000, 1_000, gpu=False)
    speed_probes.remember(home.grid("damaged"), [probe])
    home.launches.mkdir(exist_ok=True)
    home.stop_request("a-launch").write_text("")
    (corrupt,) = (
        folder.last_checkpoint
        for folder in home.trials()
        if folder.last_checkpoint.exists() and folder.best_checkpoint.exists() and not folder.error.exists()
    )
    shutil.copy(corrupt, corrupt.with_suffix(".corrupt"))
    return Runs(grid, cells, half, Home(whole))


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def digests(home: Path) -> dict[str, str]:
    return {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files(home)}


def owner(path: Path, home: Path) -> str:
    """The trial to which this file belongs; empty for files of no trial."""
    parts = path.relative_to(home).parts
    return parts[1] if parts[0] == "trials" else ""


def kinds(home: Path) -> dict[str, list[Path]]:
    """The files by kind: the files of the same name of all trials are one kind."""
    found: dict[str, list[Path]] = {}
    for path in files(home):
        found.setdefault(path.name if owner(path, home) else str(path.relative_to(home)), []).append(path)
    return found


def without(cells: list[Cell], trial_id: str) -> list[Cell]:
    """The cells without this trial."""
    left = [replace(cell, trials=tuple(trial for trial in cell.trials if trial.id != trial_id)) for cell in cells]
    return [cell for cell in left if cell.trials]


def draw(runs: Runs, goalgrid: Goalgrid, home: Path, verbs: list[str]) -> list[str]:
    """Damage one file, give a verb, and run the grid; a line for everything that is wrong then."""
    shutil.copytree(runs.half_done, home)
    by_kind = kinds(home)
    damaged = DRAW.choice(by_kind[DRAW.choice(sorted(by_kind))])
    twins = [path for path in files(home) if path != damaged and path.suffix == damaged.suffix] or files(home)
    name, verb = DRAW.choice(sorted(DAMAGES)), DRAW.choice(verbs)
    of = owner(damaged, home)
    DAMAGES[name](damaged, DRAW.choice(twins))
    where = f"{damaged.relative_to(home)} {name}, then {verb}"

    before, wrong, said = digests(home), list[str](), ""
    for command in (verb, RUN):
        words = [str(runs.grid) if word == "GRID" else word for word in command.split()]
        if words[0] in ("export", "figures"):
            words += ["--output"] * (words[0] == "figures") + [str(home.parent / f"{home.name}-{words[0]}")]
        if words[0] == "run" and "mlflow" not in damaged.name and "--mlflow-uri=" not in words:
            words += ["--mlflow-uri="]
        try:
            finished = goalgrid(*words, runs=home)
        except Exception:
            wrong.append(f"{where}: {command}: {traceback.format_exc()[-1500:]}")
            continue
        said += finished.stdout + finished.stderr
        if "Traceback" in said or "bug:" in finished.stderr or finished.returncode not in (0, 2, 3, 4):
            wrong.append(f"{where}: {command}: exit {finished.returncode}: {said[-1500:]}")
        after = digests(home)
        read_only = not verb.startswith(CHANGING) and command == verb
        kept = [path for path in before if path.startswith("trials/") and Path(path).parts[1] != of]
        kept = [path for path in kept if read_only or path.endswith(("/record.parquet", "/done"))]
        kept = [path for path in kept if not path.endswith(".corrupt")]  # prune removes it
        wrong += [f"{where}: {command} changed {path}" for path in kept if before[path] != after.get(path)]
    named = str(damaged.relative_to(home)) in said or bool(of and of in said)
    cells = without(runs.cells, of) if of and named else runs.cells
    try:
        found = differences(cells, runs.undisturbed, Home(home))
    except UserError as error:
        found = [str(error)]
    if found and not (named and not of):
        wrong.append(f"{where}: {found[:5]}; {'named' if named else 'not named'}; {said[-900:]}")
    return wrong


def drawn(runs: Runs, goalgrid: Goalgrid, folder: Path, draws: int, verbs: list[str]) -> list[str]:
    seed = int(os.environ.get("GOALGRID_SEED", random.randrange(10**6)))
    wrong: list[str] = []
    for number in range(draws):
        DRAW.seed(f"{seed} {number}")
        wrong += [f"seed {seed}, draw {number}: {line}" for line in draw(runs, goalgrid, folder / str(number), verbs)]
        for path in folder.glob(f"{number}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return wrong


@pytest.mark.parametrize("runs", ["few"], indirect=True)
def test_a_damaged_file_costs_at_most_its_own_trial(runs: Runs, goalgrid: Goalgrid, tmp_path: Path) -> None:
    wrong = drawn(runs, goalgrid, tmp_path, 8, list(FAST))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("runs", ["all"], indirect=True)
def test_many_damaged_files_cost_at_most_their_own_trials(runs: Runs, goalgrid: Goalgrid, tmp_path: Path) -> None:
    verbs = [*(verb for verb in FAST for _ in range(10)), *SLOW]
    wrong = drawn(runs, goalgrid, tmp_path, int(os.environ.get("GOALGRID_DRAWS", "200")), verbs)
    assert not wrong, "\n".join(wrong)
