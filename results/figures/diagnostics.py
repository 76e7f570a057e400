"""What a surrogate cannot tell: similarities of positives and hardest negatives, and how many triplets are active.

As SelHN Fig. 3 and Unified Fig. 4 draw them over training.
"""

from matplotlib.figure import Figure

from results.figures.figure_kind import FigureKind
from results.figures.study import Study
from results.figures.style import blank, over_epochs

QUANTITIES = {"s_pos": "mean $s_{pos}$", "s_neg": "mean $s_{neg}$", "active": "active triplets (share)"}


def draw(study: Study) -> Figure | None:
    """Lines are means over seeds, bands ± one sample standard deviation; None where nothing of it was logged."""
    rows = {quantity: title for quantity, title in QUANTITIES.items() if study.logged(quantity)}
    if not rows:
        return None
    figure = blank(1.5 * len(rows) + 0.9, study, "mean and ± one sample standard deviation over seeds")
    over_epochs(figure, study, rows)
    return figure


FIGURE_KIND = FigureKind(4, draw)
