"""Settings in which the cells of a data set differ, against a loop over the settings of trials."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.unequal import unequal

from ..conftest import checked

OBJECTIVES = ["infonce", "con_con", "sig-ms_cir"]
INFONCE = {"objective": "infonce", "set": {"train.epochs": 9, "train.lr": 0.003}}


def cells_of(*where: Mapping[str, Any], **other: Any) -> list[Cell]:
    content = {"name": "mixed", "datasets": ["shapes"], "recipes": ["cnn-bow"], "objectives": OBJECTIVES, "seeds": [0]}
    common = {"set": {"train.epochs": 3, "train.lr": 0.002}, "where": list(where)}
    return expand(checked({**content, **common, **other}))


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by dotted name."""
    found = dict[str, Any]()
    for name, value in content.items():
        if isinstance(value, dict):
            found.update(dotted(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found


def literal(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The settings in which the trials of one recipe differ, one by one, but for those of the objective."""
    every = [dotted(cell.trials[0].settings.model_dump()) for cell in cells]
    names = [n for n in every[0] if not n.startswith("objective.") and any(one.get(n) != every[0][n] for one in every)]
    return [{name: settings[name] for name in names} for settings in every]


@pytest.mark.parametrize(
    "where",
    [
        (),
        (INFONCE,),
        (INFONCE, {"objective": "con_con", "set": {"train.clip_norm": 1.0, "model.dim": 64}}),
        ({"objective": "*_*", "set": {"dataset.train_images": 20, "train.selection": "last"}},),
        ({"objective": "con_con", "set": {"train.epochs": 3}},),
    ],
)
def test_they_are_those_in_which_the_settings_of_trials_differ(where: Sequence[Mapping[str, Any]]) -> None:
    cells = cells_of(*where)
    assert unequal(cells) == literal(cells)


def test_of_a_grid_with_unequal_cells() -> None:
    own, others = {"train.epochs": 9, "train.lr": 0.003}, {"train.epochs": 3, "train.lr": 0.002}
    assert unequal(cells_of(INFONCE)) == [own, others, others]


def test_axes_are_told_elsewhere() -> None:
    cells = cells_of(
        {"train.lr": 0.1, "set": {"train.epochs": 9}}, set={"train.epochs": 3}, sweep={"train.lr": [0.1, 1]}
    )
    assert [(cell.axes["train.lr"], values) for cell, values in zip(cells, unequal(cells), strict=True)] == [
        *[(0.1, {"train.epochs": 9})] * 3, *[(1, {"train.epochs": 3})] * 3,
    ]  # fmt: skip


def test_what_comes_with_a_recipe_counts_once_a_grid_changes_it_for_some() -> None:
    recipes = {"recipes": ["fc-bow", "fc-gru", "vsepp-r152"], "datasets": ["flickr8k"], "set": {}}
    assert unequal(cells_of(**recipes)) == [{}] * 9
    cells = cells_of({"recipe": "fc-bow", "set": {"train.epochs": 7, "model.dim": 100}}, **recipes)
    dims = [cell.trials[0].shared.model.dim for cell in cells]
    epochs = [cell.trials[0].shared.train.epochs for cell in cells]
    assert unequal(cells) == [{"train.epochs": e, "model.dim": d} for e, d in zip(epochs, dims, strict=True)]


def test_another_encoder_is_told_and_its_settings_are_not_compared() -> None:
    cells = cells_of({"objective": "infonce", "set": {"model.text.encoder": "gru", "model.text.word_dim": 7}})
    assert unequal(cells) == [{"model.text.encoder": name} for name in ("gru", "bow", "bow")]


def test_parameters_of_objectives_count_where_two_that_have_them_differ() -> None:
    names = {"objectives": ["con_cir", "con_nca", "unified"]}
    assert unequal(cells_of(**names)) == [{}, {}, {}]
    gamma = {"objective": "unified", "set": {"objective.gamma": 20.0}}
    assert unequal(cells_of(gamma, **names)) == [{}, {}, {}]  # no other has a gamma
    tau = {"objective": "con_cir", "set": {"objective.tau": 5}}
    assert unequal(cells_of(tau, **names)) == [{"objective.tau": 5}, {"objective.tau": 10}, {}]


def test_data_sets_are_not_compared_with_one_another() -> None:
    cells = cells_of({"dataset": "flickr8k", "set": {"train.epochs": 5}}, datasets=["shapes", "flickr8k"])
    assert unequal(cells) == [{}] * 6


def test_what_trains_nothing_reads_no_settings_of_training() -> None:
    cells = cells_of({"objective": "infonce", "set": {"train.epochs": 0}}, objectives=["infonce", "con_con"])
    assert unequal(cells) == [{"train.epochs": 0}, {"train.epochs": 3}]
