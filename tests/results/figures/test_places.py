"""Figures of where triplets and embeddings lie."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from goalgrid.results.figures import FIGURES, Study
from goalgrid.results.figures.points import pairs, rho


def test_triplets_are_drawn_over_the_weight_that_they_get(study: Study) -> None:
    drawn = FIGURES["triplets"].draw(study)
    assert drawn
    name = "sig-ms_cir"
    trial = study.trials(name)[0]
    kept = pq.read_table(study.home.trial(trial).triplets).to_pydict()
    first = [(c, w) for e, c, w in zip(kept["epoch"], kept["count"], kept["weight"], strict=True) if e == 1]
    mean = sum(c * w for c, w in first) / sum(c for c, _ in first)
    assert mean == pytest.approx(study.histories[trial]["val_w_tri"][1], rel=0.3)  # of middles of bins
    panel = drawn.axes[2]  # two epochs of con_con come first
    assert (panel.get_title(), panel.texts[0].get_text()) == ("epoch 1", f"mean {mean:.2g}")


def test_rho_is_the_correlation_of_the_ranks(study: Study) -> None:
    drawn = FIGURES["geometry"].draw(study)
    assert drawn
    points = [pair for name in study.part.cells for pair in pairs(study, name, "val_gap")]
    assert len(points) == 8  # two cells, two seeds, two epochs
    ranks = [np.argsort(np.argsort(side)) for side in np.array(points).T]
    assert rho(points) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert drawn.axes[-1].get_title() == f"ρ = {rho(points):.2f}"


def test_rho_is_left_out_where_it_cannot_be_computed(alone: Study) -> None:
    drawn = FIGURES["geometry"].draw(alone)
    assert drawn
    assert [axes.get_title() for axes in drawn.axes] == [""] * 3
    assert drawn.texts[-1].get_text() == "one point per trial and epoch"
