"""What `goalgrid effects` says of a grid: which axis matters, and how sure that is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home
from goalgrid.showing.tables import cells_and_scores
from goalgrid.terminal.options import all_known

if TYPE_CHECKING:
    from goalgrid.results.analysis.block_analysis import Analysis


def analysed(
    grid: Grid,
    home: Home,
    *,
    metric: str = "r1",
    direction: str = "both",
    protocol: str | None = None,
    baseline: str | None = None,
    across: Sequence[str] = (),
    anew: str = "",
) -> "tuple[list[Analysis], list[Cell]]":
    """An analysis for every block that has finished trials, and every metric; with the cells of the grid.

    Args:
        metric: r1, r5, r10, medr or rsum.
        direction: i2t, t2i or both.
        protocol: another protocol of the data set than the trials' own.
        baseline: the objective that others are compared with; None: con_con if the grid has it, else the first.
        across: axes that are factors beside the objective.
        anew: how to start the grid, for the message where no trial is done.

    Raises:
        UserError: an unknown name, or records that cannot be read.
        NothingDone: no trial is done.
    """
    from goalgrid.results.analysis.block_analysis import DIRECTION_NAMES, analyse, metrics_of
    from goalgrid.results.analysis.query_bootstrap import QueryRanks
    from goalgrid.results.layouts.captions import METRIC_NAMES

    all_known(("metric", metric, METRIC_NAMES), ("direction", direction, DIRECTION_NAMES))
    cells, scores = cells_and_scores(grid, home, protocol, anew)
    ranks = QueryRanks.read(cells, home)
    analyses = analyse(cells, scores, ranks, metrics_of(metric, direction), baseline=baseline, across=across)
    return analyses, cells
