"""A runs folder in which trials of two grids are done, stopped, interrupted and failed; and what the grids give."""

import hashlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store import gpu_needs, speed_probes
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.speed_probes import Probe
from goalgrid.results.records.models import Speed
from goalgrid.state.grid_state import GridState

from ..conftest import Goalgrid
from .processes import forked

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
folder_seconds = 0.5
[data.squares]
root = "ROOT"
"""
SEARCH = """
name = "searched"
datasets = ["shapes"]
recipes = ["cnn-bow"]
objectives = ["con_con"]
seeds = [0, 1]
[select]
over = { "train.lr" = [1e-2, 1e-5, 1e-3] }
stop = "asha"
grace = 2
[set]
"train.epochs" = 3
"train.batch_size" = 100
"dataset.train_images" = 500
"model.image.size" = 16
"model.dim" = 16
[reliability]
folder_seconds = 0.5
"""


@dataclass(frozen=True)
class GridRuns:
    """A grid of the runs folder, and what it gives.

    Args:
        points: cells of all its trials, those of its search included.
        done: ids of the trials that are done.
        lines: what the table as CSV says of trials that are done; nothing of those of a search.
    """

    name: str
    file: Path
    points: list[Cell]
    done: list[str]
    lines: dict[str, list[str]]

    @property
    def trials(self) -> list[str]:
        return [trial.id for trial in trials_of(self.points)]


@dataclass(frozen=True)
class Runs:
    """A runs folder in which trials are done, stopped, interrupted and failed; and the same run undisturbed."""

    place: Path
    grids: dict[str, GridRuns]
    half_done: Path
    undisturbed: Home

    def grid_of(self, path: Path, home: Path) -> GridRuns | None:
        """The grid to which a file or folder belongs; None: to both."""
        trial, parts = owner(path, home), path.relative_to(home).parts
        named = [grid for grid in self.grids.values() if trial in grid.trials or parts[1:2] == (grid.name,)]
        return named[0] if named else None


def interrupted(train: Callable[[], object], name: str, n: int, event: Callable[[], None]) -> None:
    """Train in a process of its own in which this happens right before a file of that name is opened the n-th time."""
    os.waitpid(forked(train, lambda what, arguments: what == "open" and name in str(arguments[0]), n, event), 0)


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


def made(folder: Path, goalgrid: Goalgrid, *, everything: bool) -> Runs:
    """Make the runs folder below this one.

    Args:
        everything: with MLflow's database and a report, which take seconds.
    """
    write_data(folder / "data")
    grid, search, half, whole = folder / "damaged.toml", folder / "searched.toml", folder / "half", folder / "whole"
    grid.write_text(GRID.replace("ROOT", str(folder / "data")), encoding="utf-8")
    search.write_text(SEARCH, encoding="utf-8")

    def train(file: Path, only: str, *options: str) -> Callable[[], object]:
        return lambda: goalgrid("run", str(file), "--here", "--only", only, *options, runs=half)

    for file in (grid, search):
        assert goalgrid("run", str(file), "--here", "--mlflow-uri=", runs=whole).returncode == 0
    train(search, "seed=0", "--mlflow-uri=")()
    interrupted(train(search, "seed=1", "--mlflow-uri="), ".last.ckpt", 2, kill_self)
    train(grid, "objective=con_con", *([] if everything else ["--mlflow-uri="]))()
    interrupted(train(grid, "recipe=cnn-bow objective=infonce", "--mlflow-uri="), ".last.ckpt", 9, kill_self)
    interrupted(train(grid, "recipe=frozen-bow objective=infonce", "--mlflow-uri="), ".best.ckpt", 2, fail)
    for verb in (["table", "damaged", "--format", "parquet"], ["report", "damaged"])[: 2 if everything else 1]:
        assert goalgrid(*verb, runs=half).returncode in (0, 3, 4)
    grids = {file.stem: _ran(file, Home(half), Home(whole), goalgrid) for file in (grid, search)}
    _leave_more(Home(half), grids["damaged"])
    return Runs(folder, grids, half, Home(whole))


def _ran(file: Path, half: Home, whole: Home, goalgrid: Goalgrid) -> GridRuns:
    """What became of a grid under both homes; a line of its table shows the first seed of a cell."""
    grid_state = GridState.of(load(str(file), []), whole)
    done = [trial.id for trial in grid_state.trials if half.trial(trial.id).is_done()]
    table = goalgrid("table", file.stem, "--format", "csv", runs=half.path).stdout.splitlines()
    shown = [cell for cell in grid_state.cells if cell.trials[0].id in done]
    lines = {
        cell.trials[0].id: [line for line in table if f",{cell.recipe},{cell.objective}," in line] for cell in shown
    }
    assert all(lines.values()), (lines, table)
    return GridRuns(file.stem, file, grid_state.points, done, lines)


def _leave_more(home: Home, grid: GridRuns) -> None:
    """Leave files in the runs folder that other machines and verbs leave."""
    trial = trials_of(grid.points)[0]
    kind = speed_probes.speed_of(trial.settings)
    gpu_needs.remember(home, kind, Need("a GPU", 1e10, 1e8, 1e8))
    Speed(2e6, 1.0, 43_280, 43_280, "a device", 2).write(home.trial(trial.id).speed)
    probe = Probe("squares", "cnn-bow", kind, 1, 0.1, 0.2, 0.1, 2, 10_000, 1_000, gpu=False)
    speed_probes.remember(home.grid("damaged"), [probe])
    home.launches.mkdir(exist_ok=True)
    home.stop_request("a-launch").write_text("")
    (corrupt,) = (
        folder.last_checkpoint
        for folder in map(home.trial, grid.trials)
        if folder.last_checkpoint.exists() and folder.best_checkpoint.exists() and not folder.error.exists()
    )
    shutil.copy(corrupt, corrupt.with_suffix(".corrupt"))


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def digests(home: Path, *below: str) -> dict[str, str]:
    """The content of each file of a folder, or of the folders of these names in it."""
    found = [path for name in below for path in files(home / name)] if below else files(home)
    return {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def entries(place: Path) -> dict[str, str]:
    """What stands at a path and below it: kinds of files, links and contents."""
    found = {}
    for path in (place, *sorted(place.rglob("*") if place.is_dir() and not place.is_symlink() else ())):
        if not os.path.lexists(path):
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path)] = f"{stat.S_IFMT(path.lstat().st_mode)} {content}"
    return found


def owner(path: Path, home: Path) -> str:
    """The trial to which this file or folder belongs; empty for what belongs to no trial."""
    parts = path.relative_to(home).parts
    return parts[1] if parts[:1] == ("trials",) and len(parts) > 1 else ""


def kinds(home: Path) -> dict[str, list[Path]]:
    """The files and folders by kind: those of the same name of all trials are one kind."""
    found: dict[str, list[Path]] = {}
    for path in (path for path in sorted(home.rglob("*")) if not path.is_relative_to(home / "mlflow")):
        trial = owner(path, home)
        kind = path.relative_to(home / "trials" / trial) if trial else path.relative_to(home)
        found.setdefault(str(kind), []).append(path)
    return found


def others(cells: list[Cell], trial_id: str) -> list[Cell]:
    """The cells without this trial."""
    left = [replace(cell, trials=tuple(trial for trial in cell.trials if trial.id != trial_id)) for cell in cells]
    return [cell for cell in left if cell.trials]
