"""How far a trial is: what a row holds, which epoch is selected, and when a checkpoint is due."""

import json
import math
from pathlib import Path

import pytest
import torch

from goalgrid.grid.settings import TrainSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training.progress import Cadence, Progress, best_of

CPU = torch.device("cpu")


def progress_in(folder: Path, **train: object) -> Progress:
    settings = TrainSettings.model_validate({"epochs": 4, **train})
    return Progress(settings, TrialFolder(folder), CPU, {"data": "these"})


@pytest.mark.parametrize(("selection", "selected"), [("best-val-rsum", 2), ("last", 4)])
def test_the_first_of_the_best_epochs_or_the_last_is_selected_and_its_weights_are_kept(
    tmp_path: Path, selection: str, selected: int
) -> None:
    progress = progress_in(tmp_path, selection=selection)
    for epoch, rsum in enumerate((10.0, 12.0, 12.0, 11.0), start=1):
        progress.step += 5
        weights = {"weight": torch.tensor(float(epoch))}
        progress.end_epoch({"val_rsum": rsum}, 0.5, lambda: {"model": weights}, dict)  # noqa: B023 - called at once
        weights["weight"] += 100  # as training goes on; the write may have begun or not
    progress.writer.wait()
    assert progress.over
    assert progress.selected["epoch"] == selected
    content = best_of(progress.folder, CPU)
    assert (content["row"]["epoch"], content["model"]["weight"].item()) == (selected, selected)
    rows = [json.loads(line) for line in progress.folder.history.read_text().splitlines()]
    assert rows == progress.rows
    assert rows[2] == {"epoch": 3, "step": 15, "seconds": 0.5, "val_rsum": 12.0}


def test_an_epochs_row_has_the_mean_of_each_value_over_the_batches_that_measured_it(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    for loss, active in ((1.0, 0.5), (2.0, 0.0), (6.0, 0.25)):
        progress.note({"loss": torch.tensor(loss), "active": torch.tensor(active), "unknown": torch.tensor(math.nan)})
    progress.note({"loss": torch.tensor(3.0), "infinite": torch.tensor(math.inf)})
    assert progress.means() == pytest.approx({"loss": 3.0, "active": 0.25})


@pytest.mark.parametrize(
    ("cadence", "due"),
    [
        (Cadence(), []),
        (Cadence(steps=3), [3, 6]),
        (Cadence(minutes=1e-9), [1, 2, 3, 4, 5, 6, 7]),
        (Cadence(7, 99), [7]),
    ],
)
def test_a_checkpoint_is_due_so_many_steps_or_minutes_after_the_last(
    tmp_path: Path, cadence: Cadence, due: list[int]
) -> None:
    progress, found = progress_in(tmp_path), []
    for step in range(1, 8):
        progress.step = step
        if progress.due(cadence):
            found.append(step)
            progress.save({"model": {}})
    assert found == due
