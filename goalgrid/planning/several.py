"""The grids of one command: names, files and patterns of shipped grids, all read before any is planned or trained."""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from goalgrid.grid import catalog
from goalgrid.grid.content import content_of, read_text
from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.errors.wording import counted
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.overrides import changed
from goalgrid.grid.store.home import Home, State
from goalgrid.planning.overview import Overview, named_tables_exist, recall, wanted

PATTERN = "*?["


def to_train(
    sources: Sequence[str], home: Home, overrides: Sequence[str], *, roots: Sequence[str], weights: Sequence[str]
) -> list[Grid]:
    """The grids to plan or train, each once.

    Args:
        sources: names of shipped grids or of grids that ran, paths of grid files, or patterns of shipped names.
        roots: DATASET=DIR; in several grids, each takes the folders of its own data sets.

    Raises:
        UserError: no grid has this name, two grids have one name, or a grid is wrong.
    """
    names = _spelled_out(sources, catalog.names("presets"), "shipped grid")
    read = partial(wanted, home=home, overrides=overrides, weights=weights)
    if len(names) == 1:
        return _checked([read(names[0], roots=roots)])
    datasets = [_datasets(name, home, overrides) for name in names]
    every = list(dict.fromkeys(name for own in datasets for name in own))
    for root in roots:
        if (dataset := root.partition("=")[0]) not in every:
            hint = "With several grids, say which data set lies there: --root DATASET=DIR."
            raise UserError(unknown("data set", dataset, every, where=f"in --root {root}", hint=hint))
    return _checked(
        [
            read(name, roots=[root for root in roots if root.partition("=")[0] in own])
            for name, own in zip(names, datasets, strict=True)
        ]
    )


def _datasets(name: str, home: Home, overrides: Sequence[str]) -> list[str]:
    """The data sets of a grid to train, of which the user's own may have no root before the roots are given."""
    if name.endswith(".toml") or name in catalog.names("presets"):
        return changed(content_of(read_text(name)), overrides).names("datasets")
    return recall(name, home, overrides).datasets


def as_last_run(sources: Sequence[str], home: Home, overrides: Sequence[str], *, ran: bool = False) -> list[Grid]:
    """The grids as they were last run, each once.

    Args:
        ran: whether a pattern is of the names of grids that ran, rather than of shipped grids.

    Raises:
        UserError: no grid has this name, or two grids have one name.
    """
    known = [folder.path.name for folder in home.grids()] if ran else catalog.names("presets")
    names = _spelled_out(sources, known, "grid that ran" if ran else "shipped grid")
    return _checked([recall(name, home, overrides) for name in names])


def _spelled_out(sources: Iterable[str], known: Collection[str], what: str) -> list[str]:
    """The names, with those of a pattern in its place; each once."""
    names = list[str]()
    for source in sources:
        if source.endswith(".toml") or not set(PATTERN) & set(source):
            names.append(source)
        elif found := fnmatch.filter(known, source):
            names += found
        else:
            raise UserError(unknown(what, source, known or ["none"], hint="It is a pattern: * stands for any letters."))
    return list(dict.fromkeys(names))


def _checked(grids: list[Grid]) -> list[Grid]:
    """The grids, after a check that each has a name of its own, and of the tables that they name."""
    by_name: dict[str, Grid] = {}
    for grid in grids:
        if by_name.setdefault(grid.name, grid) != grid:
            raise UserError(f"two grids have the name {grid.name!r}, and would share a folder of results. Rename one.")
        named_tables_exist(grid)
    return list(by_name.values())


def of_filter(grids: Sequence[Grid], home: Home, only: str, leave: Callable[[str], None]) -> list[Grid]:
    """The grids that have trials of this filter, looked at before the first grid is trained.

    Args:
        leave: called with the grids that have no such trial, and the reason.

    Raises:
        UserError: no grid has such a trial; it gives the reason of each.
    """
    if len(grids) == 1:
        return list(grids)
    found, without = list[Grid](), dict[str, list[str]]()
    for grid in grids:
        overview = Overview.of(grid, home)
        try:
            overview.selected(only)
            found.append(grid)
        except UserError as error:
            without.setdefault(str(error), []).append(repr(grid.name))
    reasons = [f"grid{'s' * (len(names) > 1)} {', '.join(names)}: {reason}" for reason, names in without.items()]
    if not found:
        raise UserError("\n".join(reasons))
    for reason in reasons:
        leave(reason)
    return found


def together(overviews: Sequence[Overview]) -> list[str]:
    """A line about all trials of several grids, each counted once; none for a single grid."""
    if len(overviews) < 2:
        return []
    states: dict[str, State] = {}
    for overview in overviews:
        states |= overview.states
    shared = sum(len(overview.states) for overview in overviews) - len(states)
    done = sum(state is State.DONE for state in states.values())
    also = f"; {counted(shared, 'trial')} that another grid has, too" if shared else ""
    return [f"together: {counted(len(states), 'trial')}, {done:,} done{also}"]
