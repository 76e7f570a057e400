"""What `goalgrid compare` shows: two grids, or a grid in two runs folders or before and after a training anew."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.store.home import BeforeReplacement, Home, State
from goalgrid.reading.data_at_hand import DataAtHand, now
from goalgrid.reading.named_grids import named_tables_exist, recall
from goalgrid.reading.overview import cells_of
from goalgrid.showing.tables import known_protocol
from goalgrid.terminal.options import runs_option
from goalgrid.terminal.views import say_left_out

if TYPE_CHECKING:
    from goalgrid.results.analysis.documents import Document
    from goalgrid.results.analysis.grid_comparison import GridComparison, Side


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
) -> "GridComparison":
    """B minus A, cell by cell; UserError: nothing to compare with, or grids in which no cells correspond.

    Args:
        b: None: the grid `a`.
        other: the runs folder of B; None: that of A.
        replaced: whether A is as it was before its trials were last trained anew.
    """
    from goalgrid.results.analysis.block_analysis import DIRECTION_NAMES, metrics_of
    from goalgrid.results.analysis.grid_comparison import Side, compare
    from goalgrid.results.layouts.captions import METRIC_NAMES, check_judged
    from goalgrid.results.reference.coverage import usual_protocol

    check_known("metric", metric, METRIC_NAMES)
    check_known("direction", direction, DIRECTION_NAMES)
    check_judged([metric], protocol)
    if b is None and other is None and not replaced:
        raise UserError(
            f"compare {a!r} with what? Name a second grid, or its runs folder by --other-runs; --replaced compares "
            "with the trials before they were trained anew."
        )
    if other is not None and not other.path.is_dir():
        raise UserError(f"--other-runs {other.path}: there is no such folder.")
    metrics = metrics_of(metric, direction)
    first, second = BeforeReplacement(home.path) if replaced else home, other or home
    grid = recall(a, first)
    read = partial(  # both sides by one protocol
        Side.read, metrics=metrics, protocol=known_protocol(grid, protocol), usual=usual_protocol(grid),
        evaluate=grid.evaluate, leave=say_left_out,
    )  # fmt: skip
    one, another = (_side(name, side, read) for name, side in ((a, first), (b or a, second)))
    return compare(*_named_apart(one, another, first, second), metrics)


def section(beside: str | None, grid: str, home: Home, other: Home | None) -> "Document | None":
    """A report's section: the grid minus another grid, or minus itself in another runs folder; None without either."""
    if beside is None and other is None:
        return None
    from goalgrid.results.analysis.grid_comparison import document

    return document(compared(beside or grid, grid, other or home, other=home))


def _side(name: str, home: Home, read: "Callable[..., Side]") -> "Side":
    """The side as it stands on the disk; UserError: no grid has this name, or none of its trials is done."""
    grid = recall(name, home)
    named_tables_exist(grid)
    cells = cells_of(grid, home)
    states = {trial.id: home.trial(trial.id).state() for cell in cells for trial in cell.trials}
    if State.DONE not in states.values():
        if isinstance(home, BeforeReplacement):
            raise UserError(f"no trial of grid {grid.name!r} was done and then trained anew under {home.path}.")
        raise UserError(
            f"no trial of grid {grid.name!r} is done under {home.path}. "
            f"Start it: goalgrid run {name}{runs_option(home)}"
        )
    data = now(DataAtHand(grid, home))
    return read(grid.name, cells, home, now=data)


def _named_apart(a: "Side", b: "Side", of_a: Home, of_b: Home) -> "tuple[Side, Side]":
    """The sides under names that differ."""
    if a.name != b.name:
        return a, b
    if isinstance(of_a, BeforeReplacement):
        return replace(a, name=f"{a.name} before"), replace(b, name=f"{b.name} now")
    return replace(a, name=f"{a.name} in {of_a.path}"), replace(b, name=f"{b.name} in {of_b.path}")
