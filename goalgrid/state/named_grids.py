"""Find the grids given on the command line: by name, file or pattern, as shipped or as last run."""

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from goalgrid.grid import catalog, plugins
from goalgrid.grid.document import content_of, read_text
from goalgrid.grid.errors import UserError, check_known, counted, unknown
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.messages import Note, Step, leave_out, tell
from goalgrid.grid.overrides import changed, changed_name, key_and_value
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.saved_grid import read_grid
from goalgrid.state.grid_state import GridState

PATTERN = "*?["


def grid_to_train(
    source: str, home: Home, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> Grid:
    """Return a grid to train: from a file or preset, otherwise as it was last run; raise UserError if there is none."""
    if source.endswith(".toml") or source in catalog.names("presets"):
        table = {**read_text(source).table, **dict(map(key_and_value, overrides))}
        seeds = table.get("seeds")
        if type(seeds) is int and seeds > 1:  # a list of one seed, where a reader may mean so many seeds
            several = ", ".join(map(str, range(seeds))) if seeds < 10 else f"0, 1, ..., {seeds - 1}"
            tell(f"seeds = {seeds} means the single seed {seeds}. For {seeds} seeds: seeds = [{several}].", kind="note")
        if source.endswith(".toml") and (name := table.get("name")) in catalog.names("presets"):
            shadowed = (
                f"a shipped grid is also called {name}; goalgrid plan, run and resume {name} use the shipped one."
            )
            tell(shadowed, kind="note")
        return _with_known_tables(load(source, overrides, roots=roots, weights=weights))
    return recall(source, home, overrides, roots=roots, weights=weights)


def recall(
    source: str, home: Home, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> Grid:
    """Return a grid from a file, or as it last ran here (with or without the overrides), or the preset of this name.

    Raises UserError if there is no such grid.
    """
    if not home.path.exists():
        _tell_once(f"runs folder {home.path} does not exist yet.", "note")
    run_before = home.grids()
    known = sorted({*run_before, *catalog.names("presets")})
    if not source.endswith(".toml"):
        for name in (changed_name(source, map(key_and_value, overrides)), source):
            if name in run_before:
                grid = read_grid(name, home, overrides, roots=roots, weights=weights)
                for path in (use.path for use in grid.uses if use.gone()):
                    which = f"{path}, used by grid {name!r}, no longer exists."
                    _tell_once(f"{which} The copy saved by the last run is used instead.", "warning")
                return _with_known_tables(grid)
        file = Path(f"{source}.toml")
        hint = (
            f"Or use the file {file}, which exists here."
            if file.exists()
            else "Or give the path of a grid file, ending in .toml."
        )
        check_known("grid", source, known, hint=_filled_by_other_grids(source) or hint)
    return _with_known_tables(load(source, overrides, roots=roots, weights=weights))


def _filled_by_other_grids(name: str) -> str:
    """Return a hint on how to find the grids that fill a paper's table; empty if `name` is not a table."""
    from goalgrid.results.reference.reading import table_names

    return (
        f"{name} is a table of a paper; the grids that fill it: goalgrid tables {name}."
        if name in table_names()
        else ""
    )


@cache
def _tell_once(message: str, kind: str) -> None:
    """Report a note only once, however often the grid is read."""
    tell(message, kind=kind)


def variants(name: str, home: Home) -> list[str]:
    """Return the names under which a grid has run with overrides."""
    return [variant for variant in home.grids() if variant.startswith(f"{name}@")]


def start(name: str, home: Home, overrides: Sequence[str] = (), *, verb: str = "table") -> Note:
    """Say how to start a grid; if it has only run with overrides, say under which names and how to use `verb` on it."""
    known = variants(name, home)
    before = f"It was run as {', '.join(known)}. " if known else ""
    if known and not overrides and not home.grid(name).grid.exists():
        purpose = "Continue it" if verb == "resume" else "Show it"
        return Note(f"{before}{purpose}: {{step}}", Step.of(verb, known[0], runs=home.path, load=True))
    return Note(f"{before}Start it: {{step}}", Step.of("run", name, set=tuple(overrides), runs=home.path))


def _with_known_tables(grid: Grid) -> Grid:
    """Check the names of papers' tables in a grid, and return the grid; the UserError lists all unknown names.

    Warns about files the grid uses that differ from the copies saved with it.
    """
    for use in plugins.differing.keys() & grid.uses:
        _tell_once(plugins.differing[use], "warning")
    if grid.tables:
        from goalgrid.results.reference.coverage import check_names

        check_names(grid)
    return grid


def grids_to_train(
    sources: Sequence[str], home: Home, overrides: Sequence[str], *, roots: Sequence[str], weights: Sequence[str]
) -> list[Grid]:
    """Return the grids to plan or train, without duplicates.

    Args:
        sources: names of shipped grids or of grids that have run, paths of grid files, or patterns of shipped names.
        roots: DATASET=DIR; with several grids, each takes the folders of its own data sets.

    Raises UserError if a grid does not exist or is invalid, or two have the same name.
    """
    names = _spelled_out(sources, catalog.names("presets"), "shipped grid")
    read = partial(grid_to_train, home=home, overrides=overrides, weights=weights)
    if len(names) == 1:
        return _checked([read(names[0], roots=roots)])
    datasets = [  # data of the user's own may have no root before the roots are given
        changed(content_of(read_text(name)), overrides).names("datasets")
        if name.endswith(".toml") or name in catalog.names("presets")
        else recall(name, home, overrides).datasets
        for name in names
    ]
    every = list(dict.fromkeys(name for of_grid in datasets for name in of_grid))
    hint = "With several grids, name the data set in that folder: --root DATASET=DIR."
    of_root = {root: root.partition("=")[0] for root in roots}
    for root, dataset in of_root.items():
        check_known("data set", dataset, every, where=f"in --root {root}", hint=hint)
    of_grids = zip(names, datasets, strict=True)
    return _checked([read(name, roots=[root for root in roots if of_root[root] in of]) for name, of in of_grids])


def as_last_run(sources: Sequence[str], home: Home, overrides: Sequence[str], *, ran: bool = False) -> list[Grid]:
    """Return the grids as last run, without duplicates; raise UserError if one is unknown or two share a name.

    `ran`: match patterns against grids that have run, rather than against shipped grids.
    """
    known = home.grids() if ran else catalog.names("presets")
    names = _spelled_out(sources, known, "grid that ran" if ran else "shipped grid")
    return _checked([recall(name, home, overrides) for name in names])


def _spelled_out(sources: Iterable[str], known: Collection[str], what: str) -> list[str]:
    """Expand patterns into the names they match, without duplicates."""
    names = list[str]()
    for source in sources:
        if source.endswith(".toml") or not set(PATTERN) & set(source):
            names.append(source)
        elif matches := fnmatch.filter(known, source):
            names += matches
        else:
            raise UserError(
                unknown(what, source, known or ["none"], hint="It is read as a pattern: * matches any characters.")
            )
    return list(dict.fromkeys(names))


def _checked(grids: list[Grid]) -> list[Grid]:
    """Check that all names are different, and return the grids."""
    by_name: dict[str, Grid] = {}
    for grid in grids:
        if by_name.setdefault(grid.name, grid) != grid:
            raise UserError(f"two grids are both named {grid.name!r} and would share one results folder. Rename one.")
    return list(by_name.values())


def of_filter(grids: Sequence[Grid], home: Home, only: str) -> list[Grid]:
    """Return the grids with trials that match the filter, and report the others; raise UserError if none has any."""
    if len(grids) == 1:
        return list(grids)
    chosen, without = list[Grid](), dict[str, list[str]]()
    for grid in grids:
        grid_state = GridState.of(grid, home)
        try:
            grid_state.selected(only)
            chosen.append(grid)
        except UserError as error:
            without.setdefault(str(error), []).append(repr(grid.name))
    reasons = [f"grid{'s' * (len(names) > 1)} {', '.join(names)}: {reason}" for reason, names in without.items()]
    if not chosen:
        raise UserError("\n".join(reasons))
    for reason in reasons:
        leave_out(reason)
    return chosen


def together(grid_states: Sequence[GridState]) -> list[str]:
    """Return one line on the trials of several grids together, each counted once; empty for a single grid."""
    if len(grid_states) < 2:
        return []
    states = {trial_id: state for grid_state in grid_states for trial_id, state in grid_state.states.items()}
    shared = sum(len(grid_state.states) for grid_state in grid_states) - len(states)
    done = sum(state is State.DONE for state in states.values())
    also = f"; {counted(shared, 'trial')} shared between grids" if shared else ""
    return [f"together: {counted(len(states), 'trial')}, {done:,} done{also}"]
