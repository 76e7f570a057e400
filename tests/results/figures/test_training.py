"""The figure of a training: each row is named after what it shows."""

import numpy as np

from goalgrid.results.figures import FIGURES, Study


def test_a_row_shows_what_its_label_says(study: Study) -> None:
    drawn = FIGURES["training"].draw(study)
    assert drawn
    rows = {axes.get_ylabel(): axes for axes in drawn.axes}
    for label, quantity in (("loss", "loss"), ("val. rsum (%)", "val_rsum"), ("gradient norm", "grad_norm")):
        means = [study.curve(name, quantity)[1].mean(axis=0) for name in study.part.cells if study.trials(name)]
        assert rows[label].lines
        assert all(any(np.allclose(line.get_ydata(), mean) for mean in means) for line in rows[label].lines)
