"""The figure of a training: each row is named after what it shows."""

from dataclasses import replace

import numpy as np
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives.goal_matrix import CELLS
from goalgrid.results.figures import FIGURES, Study, draw_all


def test_a_row_shows_what_its_label_says(study: Study) -> None:
    drawn = FIGURES["training"].draw(study)
    assert drawn
    rows = {axes.get_ylabel(): axes for axes in drawn.axes}
    for label, quantity in (("val. rsum (%)", "val_rsum"), ("gradient norm", "grad_norm")):
        means = [study.curve(name, quantity)[1].mean(axis=0) for name in study.part.cells if study.trials(name)]
        assert rows[label].lines
        assert all(any(np.allclose(line.get_ydata(), mean) for mean in means) for line in rows[label].lines)


def test_a_loss_is_drawn_of_those_that_have_one_and_the_surrogate_of_cells_is_no_loss(study: Study) -> None:
    cells = {name: cell for name, cell in study.part.cells.items() if study.trials(name)}
    assert set(cells) <= set(CELLS)
    of_cells = FIGURES["training"].draw(study)
    assert of_cells
    assert not any("loss" in axes.get_ylabel() for axes in of_cells.axes)
    asked = FIGURES["training"].draw(study, ["loss"])
    assert asked
    assert asked.axes[0].get_ylabel() == "mean surrogate\n(no loss)"
    first = next(iter(cells))
    mixed = replace(study, part=replace(study.part, cells={**cells, "unified": cells[first]}))
    drawn = FIGURES["training"].draw(mixed)
    assert drawn
    (row,) = (axes for axes in drawn.axes if axes.get_ylabel() == "loss, of those\nthat have one")
    (line,) = row.lines
    np.testing.assert_allclose(line.get_ydata(), study.curve(first, "loss")[1].mean(axis=0))


def test_a_spread_is_told_where_seeds_have_one(study: Study, alone: Study) -> None:
    notes = [drawn.texts[-1].get_text() for seen in (study, alone) if (drawn := FIGURES["training"].draw(seen))]
    assert notes == ["mean and ± one sample standard deviation over seeds", "one seed, no spread"]


def test_a_papers_curve_that_has_no_place_in_the_figure_is_refused(study: Study) -> None:
    adopt = replace(study.part.cells["con_con"], objective="adopt")
    for cell in (study.part.cells["con_con"], adopt):  # another objective; another data set
        other = replace(study, part=replace(study.part, cells={cell.objective: cell}))
        with pytest.raises(UserError, match="curves of adopt and triplet-hn on coco: add one"):
            next(draw_all([other], ["training"], reference="2ad-figureA1"))
    cell = replace(adopt, dataset="coco")
    same = replace(study, part=replace(study.part, cells={"adopt": cell}))
    with pytest.raises(UserError, match="add --quantity val_rsum"):
        next(draw_all([same], ["training"], ["loss"], "2ad-figureA1"))
    elsewhere = replace(study, part=replace(study.part, cells={"adopt": replace(cell, dataset="flickr30k")}))
    drawn = list(draw_all([same, elsewhere], ["training"], ["val_rsum"], "2ad-figureA1"))
    labels = [[text.get_text() for text in figure.legends[0].get_texts()] for _, _, figure in drawn]
    assert labels == [["adopt", "adopt, VSE+2AD Fig. A.2-1 (model not said)"], ["adopt"]]
