"""What stopping search trials early saves, and what it costs the choice: a finished [select] grid, replayed.

    python benchmarks/halving.py GRID --runs DIR [--workers 2] [--grace 4] [--factor 3]

The grid ran with `stop = "none"`, so that the disk holds every epoch of every search trial. The rule of `stop = "asha"`
judges these epochs again: of each cell in the order in which `--here` trains, or as so many workers reach them, by the
seconds that each epoch took. A choice is **tied** if its validation metric is behind the best by less than final
trials of one cell spread from seed to seed (pooled standard deviation). Nothing is trained.
"""

import argparse
import heapq
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import measuring
import numpy as np

from goalgrid.grid.select import Halving
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.halving import Judge
from goalgrid.state.choices import Search
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall

Rows = list[dict[str, Any]]


@dataclass
class Replay:
    """Of a cell: how many epochs each search trial trains, by id; those that end are done."""

    epochs: dict[str, int]
    done: set[str]


def epochs_reached(histories: Mapping[str, Rows], workers: int) -> Generator[tuple[str, dict[str, Any]], bool | None]:
    """Each epoch of each trial, in the order in which so many workers end them; send True to stop the trial."""
    waiting = iter(histories)
    running = [(0.0, order, name, iter(histories[name])) for order, name in enumerate(islice(waiting, workers))]
    order = workers
    while running:
        now, place, name, rows = heapq.heappop(running)
        row = next(rows, None)
        if row is not None and not (yield name, row):
            heapq.heappush(running, (now + row["seconds"], place, name, rows))
        elif name := next(waiting, ""):
            heapq.heappush(running, (now, order := order + 1, name, iter(histories[name])))


def replay(histories: Mapping[str, Rows], halving: Halving, workers: int) -> Replay:
    """Judge every epoch of a cell's search trials by the literal rule."""
    judge = Judge(dict.fromkeys(histories, halving), Home(Path("nowhere")), ())
    ended = Replay(dict.fromkeys(histories, 0), set(histories))
    epochs, stop = epochs_reached(histories, workers), None
    while True:
        try:
            name, row = epochs.send(stop)
        except StopIteration:
            return ended
        ended.epochs[name] = row["epoch"]
        stop = judge(name, row["epoch"], row) is not None
        if stop and row["epoch"] < len(histories[name]):
            ended.done.discard(name)


def spread(grid_state: GridState, by: str) -> float:
    """Standard deviation of the best validation metric from seed to seed, pooled over the cells' final trials."""
    variances = []
    for cell in grid_state.cells:
        best = [max(row[by] for row in grid_state.folder(trial).rows()) for trial in cell.trials]
        variances.append(np.var(best, ddof=1))
    return float(np.sqrt(np.mean(variances)))


def rows(grid_state: GridState, workers: int, grace: int, factor: int) -> Iterator[str]:
    """A line for each cell, then one for all."""
    select = grid_state.grid.select
    assert select
    noise, all_epochs, spared, alike = spread(grid_state, select.by), 0, 0, 0
    for search in grid_state.searches:
        histories = {name: list(grid_state.home.trial(name).rows()) for name in search.trials}
        values = {name: max(row[select.by] for row in history) for name, history in histories.items()}
        ended = replay(histories, Halving(search.title, select.by, grace, factor), workers)
        best, chosen = (max(names, key=values.__getitem__) for names in (values, in_order(search, ended)))
        total, trained = sum(map(len, histories.values())), sum(ended.epochs.values())
        behind = values[best] - values[chosen]
        same = "the same" if chosen == best else f"{behind:.1f} behind, {'tied' if behind < noise else 'worse'}"
        all_epochs, spared, alike = all_epochs + total, spared + total - trained, alike + (behind < noise)
        yield measuring.row(
            f"{search.title}: epochs trained; choice {same}",
            f"{trained}",
            peer=f"{total}, all",
            ratio=f"{trained / total:.2f}",
        )
    cells = len(grid_state.searches)
    yield measuring.row(
        f"all {cells} cells, {workers} at a time, grace {grace}, factor {factor}: epochs saved",
        f"{spared / all_epochs:.0%}",
        goal=">= 50 %",
        met=spared >= all_epochs / 2,
    )
    yield measuring.row(
        f"the same or a tied choice (final trials spread by {noise:.2f} of {select.by})",
        f"{alike} of {cells}",
        goal=">= 13 of 15",
        met=alike * 15 >= 13 * cells,
    )


def in_order(search: Search, ended: Replay) -> Sequence[str]:
    """The trials that may be chosen, in the order in which they were drawn."""
    return [name for name in search.trials if name in ended.done] or search.trials


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--workers", type=int, default=1, help="of one cell at a time; 1: as --here")
    parser.add_argument("--grace", type=int, default=2)
    parser.add_argument("--factor", type=int, default=3)
    given = parser.parse_args()
    home = Home(given.runs)
    grid_state = GridState.of(recall(given.grid, home), home)
    measuring.begin("numpy")
    measuring.show(rows(grid_state, given.workers, given.grace, given.factor))


if __name__ == "__main__":
    main()
