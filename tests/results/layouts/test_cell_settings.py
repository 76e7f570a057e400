"""Captions name the settings in which cells differ, and what validation chose, in sentences that stay short."""

from dataclasses import replace
from typing import Any

import pytest

from goalgrid.grid.chosen import Chosen, Tried
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.results.layouts.cell_settings import chosen_values, unequal_settings

from ...grid.test_unequal import INFONCE, cells_of


def test_one_cell_against_all_others() -> None:
    told = "Unequal settings (train.epochs, train.lr): infonce: 9, 0.003; all others: 3, 0.002."
    assert unequal_settings(cells_of(INFONCE)) == told


def test_an_honest_grid_has_no_sentence() -> None:
    assert unequal_settings(cells_of()) == ""
    assert unequal_settings(expand(load("demo"))) == ""


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"recipe": "fc-bow", "set": {"train.lr": 0.1}}, "(train.lr): fc-bow: 0.1; fc-gru: 0.002."),
        ({"recipe": "fc-bow", "objective": "infonce", "set": {"train.lr": 0.1}},
         "(train.lr): fc-bow infonce: 0.1; all others: 0.002."),
        ({"objective": "*o*", "set": {"train.lr": 0.1}}, "(train.lr): sig-ms_cir: 0.002; all others: 0.1."),
        ({"dataset": "flickr8k", "objective": "infonce", "set": {"train.lr": 0.1}},
         "on flickr8k (train.lr): infonce: 0.1; all others: 0.002."),
    ],
)  # fmt: skip
def test_cells_with_equal_values_are_named_by_what_they_share(where: dict[str, Any], told: str) -> None:
    cells = cells_of(where, recipes=["fc-bow", "fc-gru"], datasets=["flickr8k", "flickr30k"])
    assert unequal_settings(cells) == f"Unequal settings {told}"


def test_a_long_sentence_gives_ranges() -> None:
    words = [f"train.{name}" for name in ("lr", "clip_norm", "batch_size", "weight_decay", "ramp_epochs")]
    objectives = [f"{pair}_{triplet}" for pair in ("con", "lin", "sig") for triplet in ("con", "nca", "cir")]
    where = [
        {"objective": name, "set": dict.fromkeys(words, number + 1000)} for number, name in enumerate(objectives[:8])
    ]
    assert unequal_settings(cells_of(*where, objectives=objectives)) == (
        "Unequal settings: train.batch_size 64 to 1007, train.lr 0.002 to 1007, "
        "train.weight_decay 0 to 1007, train.ramp_epochs 0 to 1007, train.clip_norm 2 to 1007; "
        "for the settings of each cell use --format csv, json or parquet-long."
    )


def chosen(cell: Cell, **point: float) -> Cell:
    values = tuple((name.replace("__", "."), value) for name, value in point.items())
    return replace(cell, choices=(Chosen("val_rsum", 2, 2, (Tried("a", values, 1.0), Tried("b", values, 0.0))),))


def test_chosen_values_are_told_for_each_cell_and_are_not_unequal() -> None:
    cells = cells_of(INFONCE)
    assert chosen_values(cells) == ""
    one, two = chosen(cells[0], train__lr=0.00042), chosen(cells[1], objective__tau=10, train__lr=0.001)
    assert chosen_values([one, two]) == "Chosen (train.lr, objective.tau): infonce: 0.00042, --; con_con: 0.001, 10."
    assert unequal_settings([one, two]) == "Unequal settings (train.epochs): infonce: 9; con_con: 3."
    same = [chosen(cell, train__lr=0.001) for cell in cells]
    assert chosen_values(same) == "Chosen (train.lr): all cells: 0.001."


def test_a_shipped_table_names_what_its_source_set_for_some() -> None:
    cells = [cell for cell in expand(load("unified-table4")) if cell.dataset == "msr-vtt"]
    assert unequal_settings(cells) == (
        "Unequal settings (objective.margin, objective.reduction): triplet: 0.0938116, negatives; unified: 0.2, sum."
    )
