"""`goalgrid effects` and `goalgrid claims`: which axis matters, and which of the papers' sentences hold."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known, unknown
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home
from goalgrid.reading.named_grids import recall, start
from goalgrid.showing.tables import cells_and_scores

if TYPE_CHECKING:
    from goalgrid.results.analysis.block_analysis import Analysis
    from goalgrid.results.analysis.claims import JudgedClaim


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
        protocol: another protocol of the data set than the trials' own, or a protocol or data set of [evaluate].
        baseline: the objective that others are compared with; None: con_con if the grid has it, else the first.
        across: axes that are factors beside the objective.
        anew: how to start the grid, for the message where no trial is done.
    """
    from goalgrid.results.analysis.block_analysis import DIRECTION_NAMES, analyse, metrics_of
    from goalgrid.results.analysis.query_bootstrap import QueryRanks
    from goalgrid.results.layouts.captions import METRIC_NAMES, check_judged

    check_known("metric", metric, METRIC_NAMES)
    check_known("direction", direction, DIRECTION_NAMES)
    check_judged([metric], protocol)
    cells, scores = cells_and_scores(grid, home, protocol, anew)
    ranks = QueryRanks.read(cells, home)
    analyses = analyse(cells, scores, ranks, metrics_of(metric, direction), baseline=baseline, across=across)
    return analyses, cells


def judged(
    paper: str | None, grid: str | None, home: Home, overrides: Sequence[str] = ()
) -> "list[tuple[str, list[JudgedClaim]]]":
    """Which claims hold in the papers' own tables, and which hold in the finished trials of a grid.

    Args:
        paper: a name in `PAPERS`; a grid, if `grid` is None and no paper has this name; None: all papers.

    UserError: the grid has no two finished cells that a claim compares.
    """
    from goalgrid.results.analysis import claims
    from goalgrid.results.reference.reading import PAPERS

    if grid is None and paper is not None and paper not in PAPERS:
        given, paper, grid = paper, None, paper
        names = {*PAPERS, *catalog.names("presets"), *(folder.path.name for folder in home.grids())}
        if given.split("@")[0] not in names and not given.endswith(".toml"):
            hint = f"Papers: {', '.join(PAPERS)}. Or give the path of a grid file, ending in .toml."
            raise UserError(unknown("paper or grid", given, sorted(names), hint=hint))
    papers = [paper] if paper else list(PAPERS)
    check_known("paper", papers[0], PAPERS)
    sources = [("printed", claims.judged(papers))]
    if grid is not None:
        recalled = recall(grid, home, overrides)
        cells, scores = cells_and_scores(recalled, home, anew=start(grid, home, overrides, verb="claims"))
        tested = claims.judged(papers, partial(claims.measured, cells=cells, scores=scores))
        if all(claim.verdict == claims.ABSENT for claim in tested):
            compared = f"no two cells that a sentence of {', '.join(papers)} compares"
            raise UserError(f"grid {recalled.name!r} has {compared}. Their own tables: goalgrid claims.")
        sources.append((recalled.name, tested))
    return sources
