"""Analyses for `goalgrid effects`, `claims` and `compare`: main effects, tests of claims, differences of two grids."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known, unknown
from goalgrid.grid.messages import Step, leave_out
from goalgrid.grid.store.home import BeforeReplacement, Home, State
from goalgrid.reports.tables import known_protocol, some_scores
from goalgrid.results.analysis import claims, documents, grid_comparison, queries
from goalgrid.results.analysis.block_analysis import DIRECTION_NAMES, Analysis, analyse, metrics_of
from goalgrid.results.analysis.grid_comparison import GridComparison, Side
from goalgrid.results.layouts.captions import METRIC_NAMES, check_judged
from goalgrid.results.layouts.cell_settings import conditions_of
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference.reading import PAPERS
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall
from goalgrid.state.papers import usual_protocol


def _metrics(metric: str, direction: str, protocol: str | None) -> list[str]:
    """Return the metric in this direction or both; raise UserError for unknown or contradictory names."""
    check_known("metric", metric, METRIC_NAMES)
    check_known("direction", direction, DIRECTION_NAMES)
    if metric == "rsum" and direction != "both":
        raise UserError("rsum is the sum over both directions: leave --direction out.")
    check_judged([metric], protocol)
    return metrics_of(metric, direction)


def analysed(
    grid_state: GridState,
    *,
    metric: str = "r1",
    direction: str = "both",
    protocol: str | None = None,
    baseline: str | None = None,
    across: Sequence[str] = (),
    source: str = "",
    overrides: Sequence[str] = (),
) -> list[Analysis]:
    """Analyse every block that has finished trials, for every metric.

    `source`, `overrides`: the grid as the user named it. The other arguments are those of `LoadedGrid.effects`.
    """
    metrics = _metrics(metric, direction, protocol)
    scores = some_scores(grid_state, protocol, source, overrides, "effects")
    ranks = queries.QueryRanks.read(grid_state.cells, grid_state.home)
    return analyse(grid_state.cells, scores, ranks, metrics, baseline=baseline, across=across)


def judged(paper: str | None, grid: str | None, home: Home, overrides: Sequence[str] = ()) -> list[claims.ClaimSource]:
    """Test which claims hold in the papers' published tables and in the finished trials of a grid.

    Args:
        paper: a name in `PAPERS`, or a grid if no paper has this name and `grid` is None; None: all papers.

    Raises UserError if no claim compares two finished cells of the grid.
    """
    if grid is None and paper is not None and paper not in PAPERS:
        given, paper, grid = paper, None, paper
        names = {*PAPERS, *catalog.names("presets"), *home.grids()}
        if given.split("@")[0] not in names and not given.endswith(".toml"):
            hint = f"Papers: {', '.join(PAPERS)}. Or give the path of a grid file, ending in .toml."
            raise UserError(unknown("paper or grid", given, sorted(names), hint=hint))
    papers = [paper] if paper else list(PAPERS)
    check_known("paper", papers[0], PAPERS)
    sources = [claims.ClaimSource(claims.PRINTED, claims.judged(papers))]
    if grid is not None:
        grid_state = GridState.of(recall(grid, home, overrides), home)
        scores = some_scores(grid_state, None, grid, overrides, "claims")
        tested = claims.judged(papers, partial(claims.measured, cells=grid_state.cells, scores=scores))
        if all(claim.verdict == claims.ABSENT for claim in tested):
            compared = f"no two cells that a claim of {', '.join(papers)} compares"
            raise UserError(f"grid {grid_state.grid.name!r} has {compared}. For the published tables: goalgrid claims.")
        sources.append(claims.ClaimSource(grid_state.grid.name, tested, conditions_of(grid_state.cells)))
    return sources


def compared(
    a: str,
    b: str | None,
    home: Home,
    *,
    other: Home | None = None,
    replaced: bool = False,
    metric: str = "r1",
    direction: str = "both",
    protocol: str | None = None,
) -> GridComparison:
    """Compare two grids cell by cell (B minus A); raise UserError if there is no B, or no cells correspond.

    Args:
        b: the grid B; None: the same as `a`.
        other: the runs folder of B; None: that of A.
        replaced: use A's results from before its trials were last retrained; without `b`, only of retrained trials.
    """
    metrics = _metrics(metric, direction, protocol)
    if b is None and other is None and not replaced:
        raise UserError(
            f"nothing to compare {a!r} with. Give a second grid, or another runs folder by --other-runs; --replaced "
            "compares with the results from before trials were retrained."
        )
    if other is not None and not other.path.is_dir():
        raise UserError(f"--other-runs {other.path}: folder does not exist.")
    first, second = BeforeReplacement(home.path) if replaced else home, other or home
    grid = recall(a, first)
    read = partial(  # both sides by one protocol
        Scores.read, protocol=known_protocol(grid, protocol), usual=usual_protocol(grid),
        evaluate=grid.evaluate, leave=leave_out,
    )  # fmt: skip
    ids = first.standing() if replaced and b is None else None
    one, another = (_side(name, side, read, metrics, ids) for name, side in ((a, first), (b or a, second)))
    if one.name == another.name:
        of_a, of_b = ("before", "now") if replaced else (f"in {first.path}", f"in {second.path}")
        one, another = replace(one, name=f"{one.name} {of_a}"), replace(another, name=f"{another.name} {of_b}")
    return grid_comparison.compare(one, another, metrics)


def section(beside: str | None, grid: str, home: Home, other: Home | None) -> documents.Document | None:
    """Compare the grid with another, or with itself in another runs folder, for a report; None if neither is given."""
    if beside is None and other is None:
        return None
    return grid_comparison.document(compared(beside or grid, grid, other or home, other=home))


def _side(
    name: str, home: Home, read: Callable[..., Scores], metrics: Sequence[str], ids: Collection[str] | None
) -> Side:
    """Read one side of a comparison from the disk; raise UserError if there is no such grid, or no trial is done.

    `ids`: the trials to compare; None: all.
    """
    grid = recall(name, home)
    grid_state = GridState.of(grid, home)
    cells, states = grid_state.cells, grid_state.states
    if all(states[trial.id] is not State.DONE for cell in cells for trial in cell.trials):
        if isinstance(home, BeforeReplacement):
            raise UserError(f"grid {grid.name!r} has no trial under {home.path} that was done and then retrained.")
        begin = Step.of("run", name, runs=home.path)
        raise UserError(f"no trial of grid {grid.name!r} is done under {home.path}. Start it: {{step}}", begin)
    if ids is not None:
        few = (replace(cell, trials=tuple(trial for trial in cell.trials if trial.id in ids)) for cell in cells)
        cells = [cell for cell in few if cell.trials]
    return Side.of(grid, cells, read(cells, home), home, metrics, grid_state.data.now)
