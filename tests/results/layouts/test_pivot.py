"""Any axis as rows, columns or blocks: every arrangement holds the same numbers, and the best are bold."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.records import record
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import parquet
from goalgrid.results.tables import Table

from ...conftest import SMALL

SWEPT = "objective.tau"


def made(cells: list[Cell]) -> Scores:
    """Records of all trials but the last, each with values of its own."""
    trials = [(cell, trial) for cell in cells for trial in cell.trials]
    rows = {}
    for place, (cell, trial) in enumerate(trials[:-1]):
        protocol, *others = catalog.protocols(cell.dataset)
        metrics = {name: 100 * (7 * place % 101) / 101 + number for number, name in enumerate(record.METRICS)}
        rows[trial.id] = {
            "trial_id": trial.id,
            "dataset": cell.dataset,
            "recipe": cell.recipe,
            "protocol": protocol,
            "data_fingerprint": "d",
            "code_fingerprint": "code",
            "other_metrics": [(f"{p}/{name}", value + 10) for p in others for name, value in metrics.items()],
            **{f"test_{name}": value for name, value in metrics.items()},
        }
    return Scores(rows)


CELLS = expand(
    load(
        "goal-table3-coco",
        [
            'datasets=["coco","flickr30k"]',
            'recipes=["fc-bow","fc-gru"]',
            'objectives=["con_nca","con_cir","sig_nca","sig_cir"]',
            "seeds=[3,1]",
            f"sweep.{SWEPT}=[1, 10]",
            "dataset.val_images=1000",
        ],
    )
)
SCORES = made(CELLS)
NAMES = ["dataset", "recipe", "objective", "pair", "triplet", SWEPT, "seed", "metric", "protocol"]


def drawn(metric: str = "r1", **places: Any) -> Table:
    return arrange(CELLS, SCORES, metric=metric, axes=TableRequest("", **places).axes)


def texts(table: Table) -> list[list[str]]:
    return [[row.label.text, *(entry.text if entry else "" for entry in row.entries)] for row in table.blocks[0].rows]


def heads(table: Table) -> list[tuple[str, str]]:
    return [(group.title.text, column.text) for group in table.groups for column in group.columns]


def test_a_seed_as_column_shows_every_record(trained: Home) -> None:
    cells = expand(
        load("demo", ['objectives=["con_con","sig-ms_cir"]', "seeds=[0,1]", *(w for w in SMALL if w != "--set")])
    )
    table = arrange(cells, Scores.read(cells, trained), axes=Axes(("objective",), ("seed",), ("metric",)))
    assert heads(table) == [("seed", "0"), ("seed", "1")]
    assert [block.title for block in table.blocks] == [
        "cnn-bow on shapes, Image → Text",
        "cnn-bow on shapes, Text → Image",
    ]
    for block, metric in zip(table.blocks, ("test_i2t_r1", "test_t2i_r1"), strict=True):
        for row, cell in zip(block.rows, cells, strict=True):
            frames = [pd.read_parquet(trained.trial(trial.id).record) for trial in cell.trials]
            assert [entry.score.mean for entry in row.entries if entry] == [frame[metric][0] for frame in frames]
    assert "one seed per value, so no spread" in table.caption


def test_data_sets_stand_side_by_side() -> None:
    table = drawn(rows="recipe,objective", columns="dataset,metric", blocks=SWEPT)
    assert heads(table) == [
        (dataset, direction) for dataset in ("coco", "flickr30k") for direction in ("Image → Text", "Text → Image")
    ]
    assert [block.title for block in table.blocks] == ["objective.tau = 1", "objective.tau = 10"]
    assert table.corner.text == "recipe, objective"
    assert texts(table)[0][0] == "fc-bow, con_nca"


def test_the_papers_matrix_is_one_of_the_arrangements() -> None:
    cells = [cell for cell in CELLS if (cell.dataset, cell.recipe, dict(cell.swept)[SWEPT]) == ("coco", "fc-bow", 1)]
    ours = arrange(cells, SCORES, axes=Axes(("pair",), ("metric", "triplet")))
    goal = arrange(cells, SCORES, layout="goal")
    kept = {row.label.text: [entry.text for entry in row.entries if entry] for row in goal.blocks[0].rows}
    assert texts(ours) == [[label, *kept[label]] for label in ("P^con", "P^sig")]
    assert heads(ours) == [(group.title.text, f"T^{name}") for group in goal.groups for name in ("nca", "cir")]


def test_protocols_stand_side_by_side_where_a_data_set_has_them() -> None:
    table = drawn(rows="objective", columns="protocol", blocks="dataset")
    assert [column for _, column in heads(table)] == ["coco-5k", "coco-5x1k", "f30k-1k"]
    assert [sum(entry is not None for entry in block.rows[0].entries) for block in table.blocks[:1]] == [2]
    first, second, third = table.blocks[0].rows[0].entries
    assert first
    assert second
    assert third is None
    assert second.score.shown == pytest.approx(first.score.shown + 10)
    assert "on coco-5k, coco-5x1k (mean of five folds of 1,000 images), f30k-1k:" in table.caption


def test_several_metrics_stand_direction_by_direction() -> None:
    columns = [column for _, column in heads(drawn("rsum,medr,r1", rows="objective", columns="metric"))]
    ways = [f"{way} {cut}" for way in ("Image → Text", "Text → Image") for cut in ("MedR", "R@1")]
    assert columns == [*ways, "RSUM"]


@st.composite
def arrangements(draw: st.DrawFn) -> dict[str, str]:
    """Axes in any order at any place, with at least one as rows and one as columns."""
    left_out = draw(st.sampled_from([("objective",), ("pair", "triplet")]))
    names = draw(st.permutations([name for name in NAMES if name not in left_out]))
    first = draw(st.integers(1, len(names) - 1))
    second = draw(st.integers(first + 1, len(names)))
    third = draw(st.integers(second, len(names)))
    parts = {"rows": names[:first], "columns": names[first:second], "blocks": names[second:third]}
    return {name: ",".join(part) for name, part in parts.items() if part}


def contents(table: Table, leave_out: set[str]) -> set[tuple[object, ...]]:
    return {
        (tuple(sorted((key, value) for key, value in entry.keys.items() if key not in leave_out)), entry.score)
        for entry in table.entries()
    }


@settings(max_examples=10)
@given(arrangements())
def test_every_arrangement_holds_the_same_values(places: dict[str, str]) -> None:
    table = drawn(**places)
    named = ",".join(places.values()).split(",")
    by_seed = "seed" in named
    by_protocol = "protocol" in named
    plain = drawn(rows="objective", columns=",".join(["metric", *["seed"] * by_seed, *["protocol"] * by_protocol]))
    assert contents(table, set()) == contents(plain, set())
    protocols = 3 if by_protocol else 2
    assert sum(1 for _ in table.entries()) == len(CELLS) // 2 * protocols * (2 if by_seed else 1) * 2
    assert all(any(row.entries) for block in table.blocks for row in block.rows)
    assert parquet.tidy(table).num_rows == sum(1 for _ in table.entries())
    assert all(kind.render(table) for kind in renderers.TEXT.values())


@settings(max_examples=10)
@given(arrangements(), st.sampled_from(["r1", "medr"]))
def test_the_best_of_a_metric_on_a_data_set_by_a_protocol_is_bold(places: dict[str, str], metric: str) -> None:
    table = drawn(metric, **places)
    pick = min if metric == "medr" else max
    for block in table.blocks:
        entries = {
            (row, column): entry
            for row, line in enumerate(block.rows)
            for column, entry in enumerate(line.entries)
            if entry and entry.score.text != "--"
        }
        expected = set()
        for place, entry in entries.items():
            keys = entry.keys
            rivals = [
                other.score.shown
                for other in entries.values()
                if all(other.keys[name] == keys[name] for name in ("dataset", "protocol", "metric"))
            ]
            expected |= {place} if entry.score.shown == pick(rivals) else set()
        assert table.best_of(block) == expected


def test_tidy_rows_carry_every_axis() -> None:
    row = parquet.tidy(drawn(rows="seed", columns="metric")).to_pylist()[0]
    axes = {name: row[name] for name in ("dataset", "protocol", "recipe", SWEPT, "objective", "seed", "metric")}
    assert list(axes.values()) == ["coco", "coco-5k", "fc-bow", "1", "con_nca", 3, "i2t_r1"]
    assert (row["pair_weight"], row["triplet_weight"]) == ("con", "nca")


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"rows": "sed"}, "unknown axis 'sed' in --rows. Did you mean 'seed'? Known: dataset, recipe, objective, pair"),
        ({"rows": "seed", "columns": "seed"}, "'seed' is named more than once in --rows and --columns"),
        ({"rows": "seed,seed"}, "'seed' is named more than once in --rows; name it once"),
        ({"rows": "objective", "blocks": "pair"}, "'pair' is a part of 'objective'"),
        ({"columns": "objective"}, "no axis given for the rows."),
        ({"rows": "metric"}, "no axis given for the columns."),
    ],
)
def test_a_mistake_in_the_axes_is_named(places: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        drawn(**places)
    assert message in str(caught.value)


def test_parts_of_the_matrix_need_the_matrix() -> None:
    cells = expand(load("demo", ['objectives=["con_con","selhn"]']))
    with pytest.raises(UserError, match="is outside GOAL's matrix"):
        arrange(cells, Scores({}), axes=Axes(("pair",), ("triplet",)))


def test_a_grid_of_one_cell_has_axes_too() -> None:
    table = arrange(CELLS[:1], SCORES, axes=Axes(("seed",), ("metric",)))
    assert [row.label.text for block in table.blocks for row in block.rows] == ["3", "1"]


@pytest.mark.parametrize("chosen", [{"layout": "goal"}, {"against": "paper"}])
def test_axes_go_with_no_other_layout(chosen: dict[str, str]) -> None:
    with pytest.raises(UserError, match="--rows, --columns and --blocks define the layout"):
        arrange(CELLS, SCORES, axes=Axes(("seed",)), **chosen)
