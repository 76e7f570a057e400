"""`goalgrid.log`: what a user's own parts log stands in the history, and a resumed training has the same."""

import re
from pathlib import Path

import numpy as np
import pytest

import goalgrid
from goalgrid.grid.errors import UserError
from goalgrid.grid.step_log import of_step
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer

from ...conftest import swapped
from .interruptions import without_seconds
from .test_trainer import settings_of

LOSS = """
import torch
import goalgrid

SEEN = []


@goalgrid.objective("mine", on="scores")
def mine(scores):
    goalgrid.log("temperature", scores.std())
    goalgrid.log("twice", 1.0)
    goalgrid.log("twice", torch.tensor([2], device=scores.device))
    SEEN.append((scores.requires_grad, float(scores.detach().std())))
    pairs = torch.arange(len(scores), device=scores.device)
    return torch.nn.functional.cross_entropy(9 * scores, pairs)
"""


@pytest.fixture
def loss(tmp_path: Path) -> Path:
    (tmp_path / "losses.py").write_text(LOSS, encoding="utf-8")
    return tmp_path / "losses.py"


def trainer(folder: Path, loss: Path, hooks: Hooks | None = None) -> Trainer:
    settings = settings_of(f'uses=["{loss}"]', 'objectives=["mine"]', "train.trace_every=1", "train.epochs=2")
    return Trainer(settings, prepare(settings, Machine()), TrialFolder(folder), hooks=hooks or Hooks())


def test_logged_values_stand_in_history_and_trace_and_outlive_a_resume(loss: Path, tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", loss)
    whole.fit()
    rows, trace = list(TrialFolder(tmp_path / "whole").rows()), list(whole.progress.trace.rows())
    assert whole.objective.user_loss
    seen = [value for learns, value in whole.objective.user_loss[1].__globals__["SEEN"] if learns]
    epochs = np.array(seen).reshape(2, -1)  # validation, whose scores have no gradient, logs nothing
    assert [row["temperature"] for row in rows] == pytest.approx(epochs.mean(axis=1).tolist())
    assert [row["temperature"] for row in trace] == pytest.approx(seen)
    assert {row["twice"] for row in (*rows, *trace)} == {1.5}
    with pytest.raises(Preempted):
        trainer(tmp_path / "resumed", loss, Hooks(beat=lambda step: step == 3)).fit()
    resumed = trainer(tmp_path / "resumed", loss)
    resumed.fit()
    assert without_seconds(resumed.progress.rows) == without_seconds(whole.progress.rows)
    assert list(resumed.progress.trace.rows()) == trace


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('"val_rsum", 1', "goalgrid.log('val_rsum', ...): a name has letters, digits and _"),
        ('"a name", 1', "goalgrid.log('a name', ...): a name has letters"),
        ('"lr", 1', "is not the trainer's own"),
        ('"loss", 1', "goalgrid.log('loss', ...): the trainer reserves this name. Use another name."),
        ('"s_pos", 1', "goalgrid.log('s_pos', ...): the trainer reserves this name"),
        ('"word", "hello"', "goalgrid.log('word', ...) got 'hello'. Give one number."),
        ('"spread", scores.std(0)', "goalgrid.log('spread', ...) got values of shape (100,). Give one number."),
    ],
)
def test_what_cannot_be_logged_is_named(call: str, message: str, loss: Path, tmp_path: Path) -> None:
    loss.write_text(swapped(LOSS, '"temperature", scores.std()', call), encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(message)):
        trainer(tmp_path / "run", loss).fit()


def test_outside_a_training_step_nothing_is_logged() -> None:
    goalgrid.log("temperature", 1.0)
    with of_step() as values:
        goalgrid.log("temperature", 2.0)
    goalgrid.log("temperature", 3.0)
    assert values == {"temperature": [2.0]}
