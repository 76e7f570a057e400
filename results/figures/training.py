"""Learning curves: validation Recall@1 over epochs, both directions, with bands over seeds."""

from functools import partial

from results.figures.study import FigureKind
from results.figures.style import over_epochs

QUANTITIES = {"val_i2t_r1": "Image → Text\nval. Recall@1 (%)", "val_t2i_r1": "Text → Image\nval. Recall@1 (%)"}

FIGURE_KIND = FigureKind(3, partial(over_epochs, quantities=QUANTITIES, row_height=1.75))
