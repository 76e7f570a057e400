"""What a surrogate cannot tell: similarities of positives and hardest negatives, and how many triplets are active.

As SelHN Fig. 3 and Unified Fig. 4 draw them over training.
"""

from functools import partial

from goalgrid.results.figures.study import FigureKind
from goalgrid.results.figures.style import over_epochs

QUANTITIES = {"s_pos": "mean $s_{pos}$", "s_neg": "mean $s_{neg}$", "active": "active triplets (share)"}

FIGURE_KIND = FigureKind(
    4,
    partial(over_epochs, quantities=QUANTITIES, row_height=1.5),
    "Similarities and active triplets",
    "trials that were trained here for an epoch or more",
)
