"""What a user's file does to torch in one trial is over when the next trial of the process begins."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goalgrid.grid import global_state, plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings.image_encoders import OwnImageSettings
from goalgrid.grid.settings.scorers import OwnScorerSettings
from goalgrid.grid.settings.text_encoders import BowSettings, OwnTextSettings
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records import record
from goalgrid.retrieval import own_networks
from goalgrid.retrieval.encoders.pooling import pooling
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.run import run_trial

from ...conftest import SMALL

CHANGING = """
import goalgrid, torch

torch.set_default_dtype(torch.float64)


class Leaking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        return gradient


@goalgrid.objective("changing")
def changing(t):
    value = Leaking.apply(torch.nn.functional.softplus(t.s_neg - t.s_pos))
    torch.backends.mkldnn.enabled = False
    torch.set_grad_enabled(False)
    torch.set_deterministic_debug_mode("error")
    return value
"""


@pytest.mark.gate
def test_a_loss_that_changes_torch_moves_no_number_of_the_next_trial_and_the_record_names_its_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(CHANGING)
    words = [word for word in SMALL if word != "--set"]
    objectives = f'uses=["{tmp_path / "own.py"}"]', 'objectives=["changing","con_con"]'
    (alone,) = trials_of(expand(load("demo", [*words, 'objectives=["con_con"]', "seeds=[0]"])))
    own, same = trials_of(expand(load("demo", [*words, *objectives, "seeds=[0]"])))
    assert same.id == alone.id
    before, after = Home(tmp_path / "before"), Home(tmp_path / "after")
    events: list[Event] = []

    def state() -> list[Any]:
        flags = torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark, torch.is_grad_enabled()
        threads = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()
        return [*flags, *threads, torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]

    began = state()
    for trial, home in ((alone, before), (own, after), (same, after)):
        folder = home.trial(trial.id)
        assert run_trial(trial.settings, folder, events.append, Machine()) is State.DONE, folder.reason()
        assert state() == began
    assert record.differing(before.trial(alone.id).record, after.trial(same.id).record) == []
    noted = [
        json.loads(record.collect([after.trial(trial.id).record])["environment"][0].as_py()) for trial in (own, same)
    ]
    named, changed = noted[0]["plugins_that_changed_torch"].popitem()
    assert named == str(tmp_path / "own.py")
    assert changed == {
        "torch.set_default_dtype": "torch.float32 -> torch.float64", "torch.backends.mkldnn.enabled": "True -> False",
        "torch.set_grad_enabled": "True -> False",
        "torch.use_deterministic_algorithms": "0 -> 2",
    }  # fmt: skip
    assert "plugins_that_changed_torch" not in noted[1]
    warnings = [event.message for event in events if event.kind == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{tmp_path / 'own.py'} changes settings of torch")


PARTS = """
import goalgrid, torch


def change():
    torch.backends.mkldnn.enabled = not torch.backends.mkldnn.enabled
    torch.set_default_dtype(torch.float64)


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        change()


@goalgrid.image_encoder("seen")
class Seen(Part):
    def __init__(self, shape, dim):
        super().__init__()

    def forward(self, images):
        change()
        return images.float().flatten(1)[:, :4] * self.weight


@goalgrid.text_encoder("read")
class Read(Part):
    def __init__(self, words, dim):
        super().__init__()

    def forward(self, ids, lengths):
        change()
        return ids[:, :4].float() * self.weight


@goalgrid.pooling("front")
class First(Part):
    def __init__(self, dim):
        super().__init__()

    def forward(self, values, present):
        change()
        return values[:, 0] * self.weight


@goalgrid.pooling("back")
def last(values, present):
    change()
    return values[:, -1]


@goalgrid.scorer("dot")
class Dot(Part):
    def __init__(self, dim):
        super().__init__()

    def forward(self, images, regions, words, lengths):
        change()
        return torch.einsum("ind,tmd->it", images, words) * self.weight
"""


def test_encoders_poolings_and_scorers_change_torch_for_nobody_else_either(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    known = Catalog.of([plugins.Use(path=str(tmp_path / "parts.py"), source=PARTS)])

    def untouched() -> bool:
        return torch.backends.mkldnn.enabled and torch.get_default_dtype() is torch.float32

    ids, sets = torch.ones(2, 4, dtype=torch.long), TokenSets(torch.ones(2, 4, 4), torch.tensor([4, 4]))
    seen = known.validated(OwnImageSettings, {"encoder": "own", "name": "seen"})
    read = known.validated(OwnTextSettings, {"encoder": "own", "name": "read"})
    dot = known.validated(OwnScorerSettings, {"kind": "own", "name": "dot"})
    first, last = (known.validated(BowSettings, {"encoder": "bow", "pooling": name}) for name in ("front", "back"))
    members = torch.ones(2, 4, 4), ids.bool()
    calls = {
        "image encoder": (partial(own_networks.image_encoder, seen, (3, 2, 2), 4, {}), (ids.new_ones(2, 3, 2, 2),)),
        "text encoder": (partial(own_networks.text_encoder, read, 9, 4, {}), (ids, torch.tensor([4, 4]))),
        "scorer": (partial(own_networks.OwnScorer, dot, 4, 4), (sets, sets)),
        "pooling, a module": (partial(pooling, first, 4), members),
        "pooling, a function": (partial(pooling, last, 4), members),
    }  # fmt: skip
    for part, (make, inputs) in calls.items():
        global_state.in_calls.clear()
        network = make()
        assert untouched(), f"{part} is made"
        network(*inputs)
        assert untouched(), f"{part} is called"
        assert list(global_state.in_calls) == [str(tmp_path / "parts.py")], part
