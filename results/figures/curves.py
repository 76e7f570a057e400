"""Learning curves: validation Recall@1 over epochs, both directions, with bands over seeds."""

from matplotlib.figure import Figure

from results.figures.figure_kind import FigureKind
from results.figures.study import Study
from results.figures.style import blank, over_epochs

QUANTITIES = {"val_i2t_r1": "Image → Text\nval. Recall@1 (%)", "val_t2i_r1": "Text → Image\nval. Recall@1 (%)"}


def draw(study: Study) -> Figure | None:
    """Lines are means over seeds, bands ± one sample standard deviation."""
    rows = {quantity: title for quantity, title in QUANTITIES.items() if study.logged(quantity)}
    if not rows:
        return None
    figure = blank(1.75 * len(rows) + 0.9, study, "mean and ± one sample standard deviation over seeds")
    over_epochs(figure, study, rows)
    return figure


FIGURE_KIND = FigureKind(3, draw)
