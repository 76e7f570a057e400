"""Sensitivity: what is drawn, and the limits in which a loss is another."""

from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.figures import FIGURES, Study, draw_all, write
from goalgrid.results.figures.sensitivity import lines_over
from goalgrid.results.layouts.pivot import Axes, layout
from goalgrid.results.records.scores import Score, Scores

from ...conftest import SMALL, Goalgrid, made_once

GRID = (
    'objectives=["triplet-hn","selhn","unified"]', "seeds=[0]", "train.epochs=1", "objective.variant=paper",
    "sweep.objective.epsilon=[0.0,0.5]", "sweep.objective.gamma=[5.0,1e5]",
)  # fmt: skip


@pytest.fixture(scope="module")
def study(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Each of the two parameters at an ordinary value, and where its loss is Triplet-HN."""

    def train(folder: Path) -> None:
        overrides = [word for override in GRID for word in ("--set", override)]
        finished = goalgrid("run", "demo", "--here", "--mlflow-uri", "", *SMALL, *overrides, runs=folder)
        assert finished.returncode == 0, finished.stderr

    home = Home(made_once("sensitivity", tmp_path_factory, train))
    cells = expand(load("demo", [*(word for word in SMALL if word != "--set"), *GRID]))
    (found,) = FIGURES["sensitivity"].gather(Study.read(cells, Scores.read(cells, home), home))
    return found


def test_points_equal_the_table_over_the_axis(study: Study) -> None:
    drawn = FIGURES["sensitivity"].draw(study)
    assert drawn
    cells = list(study.part.cells.values())
    columns = ("objective.epsilon", "objective.gamma")
    assert [axes.get_xlabel() for axes in drawn.axes[-2:]] == list(columns)
    for place, axis in enumerate(columns):
        table = layout(cells, study.scores, ["r1", "rsum"], Axes(("objective",), (axis, "metric")))
        entries = [entry for block in table.blocks for row in block.rows for entry in row.entries if entry]
        means = {(*map(entry.keys.get, ("objective", *columns, "metric")),): entry.score for entry in entries}
        for axes, metric in zip(drawn.axes[place::2], ("i2t_r1", "t2i_r1", "rsum"), strict=True):
            shown = []
            for line, of_line in zip(axes.lines, lines_over(axis, cells).values(), strict=True):
                keys = [
                    (cell.objective, *(str(dict(cell.swept)[name]) for name in columns))
                    for cell in of_line.cells.values()
                ]
                expected = [score.mean for key in keys if isinstance(score := means[*key, metric], Score)]
                heights = list(line.get_ydata())
                assert heights == (expected if len(expected) > 1 else expected * 2)
                assert len(expected) == 1 or list(line.get_xdata()) == [float(key[1 + place]) for key in keys]
                shown.append((keys[0][0], len(expected)))
            own, other = ("selhn", "unified")[:: 1 - 2 * place]
            assert sorted(shown) == sorted([("triplet-hn", 1), (own, 2), (other, 1), (other, 1)])


def test_at_its_limit_a_loss_gives_the_numbers_of_triplet_hn(study: Study) -> None:
    """SelHN §4.5: epsilon = 0; Unified Eq. (6): gamma without bound. In float32 a rank or two may change."""
    rsum = {name: study.scores.of(cell, "rsum").mean for name, cell in study.part.cells.items()}
    expected = next(value for name, value in rsum.items() if name.startswith("triplet-hn"))
    ordinary = next(value for name, value in rsum.items() if name.startswith("selhn") and "epsilon = 0.5" in name)
    limits = [value for name, value in rsum.items() if name.startswith("selhn") and "epsilon = 0.0" in name]
    limits += [value for name, value in rsum.items() if name.startswith("unified") and "gamma = 100000.0" in name]
    assert limits == pytest.approx([expected] * len(limits), abs=1.0)
    assert abs(ordinary - expected) > 1.0


def test_one_picture_shows_all_values(study: Study, tmp_path: Path) -> None:
    (drawn,) = write(draw_all([study], ["sensitivity"]), tmp_path, ["png"])
    assert drawn.name == "sensitivity-cnn-bow-on-shapes.png"


def test_a_single_value_of_a_swept_parameter_is_a_point_at_its_place(study: Study) -> None:
    """As where its other cells are excluded, or not yet trained. Objectives without the parameter stay horizontal."""
    cells = dict(study.part.cells)
    (name,) = (name for name in cells if name.startswith("selhn") and "0.5" in name and "5.0" in name)
    cells["other"] = replace(cells[name], objective="other")
    cells["flat"] = replace(next(cell for cell in cells.values() if cell.objective == "triplet-hn"), objective="flat")
    drawn = FIGURES["sensitivity"].draw(replace(study, part=replace(study.part, cells=cells)))
    assert drawn
    lines = lines_over("objective.epsilon", list(cells.values()))
    place = list(lines).index("other")
    assert (list(lines["other"].cells), lines["other"].horizontal, lines["flat"].horizontal) == ([0.5], False, True)
    for axes, metric in zip(drawn.axes[::2], ("i2t_r1", "t2i_r1", "rsum"), strict=True):
        point, mean = axes.lines[place], study.scores.of(cells[name], metric).mean
        assert (list(point.get_xdata()), list(point.get_ydata())) == ([0.5], [mean])
        assert point.get_marker() not in ("None", "")
        assert list(axes.lines[list(lines).index("flat")].get_xdata()) == [0, 1]  # of the width of the axes
