"""How training here differs from the source of a printed row: all that differs, and nothing else."""

import re
import tomllib
from itertools import islice
from random import Random
from typing import Any

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.results.reference.coverage import PaperRow, paper_rows
from goalgrid.results.reference.differences import common, sources
from goalgrid.results.reference.reading import paper_table, table_names
from goalgrid.state.papers import shipped
from tests.cases import every
from tests.grid.test_recipes import text_of

TABLES = [name for name in table_names() if name != "goal-table1"]
Grids = list[tuple[Grid, list[Cell]]]
NLTK = "plain words and the training captions' vocabulary (published: nltk's, a file)"
CHECKPOINT = "1,000 validation images of MS-COCO pick the checkpoint (§4.1: 5,000)"


@pytest.fixture(scope="module")
def rows() -> dict[str, list[PaperRow]]:
    """The rows of each table that are trainable here."""
    return {table: [row for row in paper_rows(table, shipped()) if row.grids] for table in TABLES}


def of(row: str, rows: list[PaperRow]) -> PaperRow:
    (match,) = (one for one in rows if one.label == row)
    return match


def trained_by(table: str, *overrides: str) -> Grids:
    """The grid that names a table, after overrides."""
    (name,) = (grid.name for grid, _ in shipped() if table in grid.tables)
    grid = load(name, overrides)
    return [(grid, expand(grid))]


def words_of(recipe: str) -> str:
    """What files of recipes say of the words of the published setting: its own, or that of the recipe it extends."""
    content = tomllib.loads(text_of(recipe))
    members = [words_of(member) for member in content.get("ensemble", [])]
    return content.get("words") or (words_of(content["extends"]) if "extends" in content else " ".join(members))


def test_no_row_is_empty_whose_recipe_or_protocol_says_otherwise(rows: dict[str, list[PaperRow]]) -> None:
    """The files of the recipes of 185 rows say nltk's words; of 99 rows, §4.1 has 5,000 images that validate."""
    every_row = [row for table in TABLES for row in rows[table]]
    by_words = [row for row in every_row if any("nltk" in words_of(recipe) for recipe in row.recipes)]
    on_coco = [
        row
        for table in TABLES
        for row in rows[table]
        if not table.startswith("goal") and table != "unified-table2"
        if any(
            (row_block.dataset or part.dataset) == "coco"
            for part in paper_table(table).parts
            for row_block in paper_table(table).blocks
        )
    ]
    assert (len(every_row), len(by_words), len(on_coco)) == (225, 185, 99)
    assert [row for row in every_row if NLTK in row.differs] == by_words
    assert [row for row in every_row if CHECKPOINT in row.differs] == on_coco
    assert all(row.differs for row in every_row)


LITERAL = {
    ("unified-table6", "SCAN* [23]"): ["epochs 30 in place of 20, decay every 15 in place of 10"],
    ("unified-table6", "BFAN* [27]"): ["epochs 30 in place of 20"],
    ("unified-table6", "SGRAF* [11]"): [
        "epochs 30 in place of 20, learning rate 0.0005 in place of 0.0002, decay every 15 in place of 10"
    ],
    ("unified-table6", "BFAN* + L_Unified"): [],
    ("unified-table1", "BFAN* [27]"): [
        "on Flickr30K: epochs 30 in place of 15, learning rate 0.0005 in place of 0.0002",
        "on MS-COCO: epochs 30 in place of 20",
    ],
    ("unified-table5", "SGRAF* [11]"): [
        "on Flickr30K: epochs 30 in place of 40, learning rate 0.0005 in place of 0.0002, "
        "decay every 15 in place of 30 and 20",
        "on MS-COCO: epochs 30 in place of 20, learning rate 0.0005 in place of 0.0002, decay every 15 in place of 10",
    ],
    ("unified-table3", "SCAN T2I AVG"): ["learning rate 0.0005 in place of 0.0002"],
    ("unified-table3", "BFAN* + AOQ"): [
        "a VSRN trained here ranks the offline negatives (AOQ: the authors' candidates)"
    ],
    ("unified-table4", "CE"): [
        "GPT's states are computed here (its code: read from a file)",
        "validation rsum picks the checkpoint (its code: the geometric mean of text-to-video recalls)",
    ],
    ("selhn-table11", "VSRN(ICCV'19) [18]"): [
        "the captioner's weights make one step a batch (its code: two)",
        "the best rsum of an epoch picks the checkpoint (its code: R@1 + R@5 every 500 steps)",
    ],
    ("selhn-table1", "VSE (FC), L_Triplet"): [
        "boundaries, augmentation, weight decay and clipping as in VSE-infinity's code (SelHN: not named)"
    ],
}  # fmt: skip
"""All that some rows say but for words and checkpoint, which stand in the papers and codes as in these lines."""


@every(("table", "label"), list(LITERAL))
def test_a_row_says_what_its_source_has_for_that_data_set(
    table: str, label: str, rows: dict[str, list[PaperRow]]
) -> None:
    assert [phrase for phrase in of(label, rows[table]).differs if phrase not in (NLTK, CHECKPOINT)] == LITERAL[
        table, label
    ]


def test_phrases_are_short_and_point_nowhere(rows: dict[str, list[PaperRow]]) -> None:
    for phrase in {phrase for table in TABLES for row in rows[table] for phrase in row.differs}:
        assert len(phrase) < 170, phrase
        assert not re.search(r";|docs/|--|comments|^as \w|train\.|model\.|dataset\.|objective\.|[<>_]", phrase), phrase


CHANGES: dict[str, Any] = {
    "train.epochs": 3, "train.lr": 0.00321, "train.batch_size": 72, "train.clip_norm": 1.25, "train.decay_every": 13,
    "train.decay_factor": 0.625, "train.precision": "bf16", "dataset.max_words": 12, "dataset.train_images": 77,
    "dataset.noise": 0.25, "dataset.min_count": 9, "objective.margin": 0.375, "objective.tau": 6.5,
    "objective.gamma": 31.5, "objective.epsilon": 0.0625, "objective.mining": "all",
    "objective.ignore_same_image": "true", "objective.variant": "released", "model.dim": 96,
}  # fmt: skip
"""A value of each setting that no source has."""


def changed(table: str, setting: str) -> Grids:
    """The grid of a table with another value; empty: none of its trials reads the setting."""
    try:
        return trained_by(table, f"{setting}={CHANGES[setting]}")
    except UserError:
        return []


@every("table", TABLES)
@pytest.mark.gate
def test_a_drawn_setting_that_is_changed_appears(table: str) -> None:
    """In every row whose trials have other ids than before: ids hang on all that changes a result."""
    before = list(paper_rows(table, trained_by(table)))
    ids = {(c.dataset, c.recipe, c.objective): c.trials[0].id for c in trained_by(table)[0][1]}
    drawn = Random(table).sample(list(CHANGES), len(CHANGES))
    known = (pair for pair in ((name, changed(table, name)) for name in drawn) if pair[1])
    for setting, grids in islice(known, 1):
        value = CHANGES[setting]
        cells = {(c.dataset, c.recipe, c.objective): c.trials[0].id for c in grids[0][1]}
        for old, new in zip(before, paper_rows(table, grids), strict=True):
            places = [place for place in cells if place[2] in new.objectives and place[1] in new.recipes]
            said = {word for phrase in set(new.differs) - set(old.differs) for word in phrase.split(", ")}
            other = any(cells[place] != ids[place] for place in places)
            name = setting.partition(".")[2].replace("_", " ").replace("lr", "learning rate")
            assert other == any(f"{name} {value} in place of" in text for text in said), (setting, new)


def test_what_is_set_as_the_source_has_it_is_no_longer_said() -> None:
    def said(*overrides: str, table: str = "selhn-table8") -> set[str]:
        return {phrase for row in paper_rows(table, trained_by(table, *overrides)) for phrase in row.differs}

    assert {NLTK, CHECKPOINT} <= said()
    words = ("dataset.words=nltk", "dataset.vocabulary=vocab/coco.json")
    assert not any("words" in phrase or "vocabulary" in phrase for phrase in said(*words))
    assert "the training captions' vocabulary (published: a file)" in said(words[0])
    assert "plain words (published: nltk's)" in said(words[1])
    assert not any("pick the checkpoint" in phrase for phrase in said("dataset.val_images=none"))
    assert "50 validation images of MS-COCO pick the checkpoint (§4.1: 5,000)" in said("dataset.val_images=50")
    hinge = "T^con with the hinge of GOAL's Eq. (5) (GOAL's code: without)"
    assert hinge in said(table="goal-table3-coco")
    assert hinge not in said("objective.variant=released", table="goal-table3-coco")


@every("name", ["bfan-equal", "bfan-prob", "sgr", "saf"])
def test_the_schedule_on_coco_is_that_of_the_recipe_for_coco(name: str) -> None:
    """What sources.toml says of rows that have one recipe for both data sets."""
    (told,) = (s.set for s in sources() if s.dataset == ("coco",) and name in s.recipe)
    train = catalog.recipe(name).train.model_copy(update={key.partition(".")[2]: v for key, v in told.items()})
    assert train == catalog.recipe(f"{name}-coco").train


def test_what_all_rows_share_stands_apart() -> None:
    assert common([("a", "b", "c"), ("c", "b"), ("b", "c", "d")]) == ("b", "c")
    assert common([("a", "b")]) == common([]) == ()
