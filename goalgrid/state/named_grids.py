"""The grids that a command names: by name, file or pattern, as they are shipped or as they were last run."""

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
    """Return a grid to train: by file or preset, else as it was last run under this name; UserError: there is none."""
    if source.endswith(".toml") or source in catalog.names("presets"):
        table = {**read_text(source).table, **dict(map(key_and_value, overrides))}
        seeds = table.get("seeds")
        if type(seeds) is int and seeds > 1:  # a list of one seed, where a reader may mean so many seeds
            several = ", ".join(map(str, range(seeds))) if seeds < 10 else f"0, 1, ..., {seeds - 1}"
            tell(f"seeds = {seeds} is seed {seeds} alone. {seeds} seeds: seeds = [{several}].", kind="note")
        if source.endswith(".toml") and (name := table.get("name")) in catalog.names("presets"):
            shadowed = f"a shipped grid is called {name}, too; goalgrid plan, run and resume {name} mean that one."
            tell(shadowed, kind="note")
        return _with_known_tables(load(source, overrides, roots=roots, weights=weights))
    return recall(source, home, overrides, roots=roots, weights=weights)


def recall(
    source: str, home: Home, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> Grid:
    """Return a grid by file, else as it last ran here, with or without the overrides, else the preset; or UserError."""
    if not home.path.exists():
        _tell_once(f"there is no runs folder {home.path} yet.", "note")
    run_before = home.grids()
    known = sorted({*run_before, *catalog.names("presets")})
    if not source.endswith(".toml"):
        for name in (changed_name(source, map(key_and_value, overrides)), source):
            if name in run_before:
                grid = read_grid(name, home, overrides, roots=roots, weights=weights)
                for path in (use.path for use in grid.uses if use.gone()):
                    which = f"{path}, which grid {name!r} uses, is gone."
                    _tell_once(f"{which} Its text of the last run stands for it.", "warning")
                return _with_known_tables(grid)
        file = Path(f"{source}.toml")
        hint = f"Or {file}, which is here." if file.exists() else "Or give the path of a grid file, ending in .toml."
        check_known("grid", source, known, hint=_filled_by_other_grids(source) or hint)
    return _with_known_tables(load(source, overrides, roots=roots, weights=weights))


def _filled_by_other_grids(name: str) -> str:
    """Say where the grids of a paper's table are named; empty: no table has the name."""
    from goalgrid.results.reference.reading import table_names

    return f"Other grids fill that table of a paper: goalgrid tables {name}." if name in table_names() else ""


@cache
def _tell_once(message: str, kind: str) -> None:
    """Report a note once, however often the grid is read."""
    tell(message, kind=kind)


def variants(name: str, home: Home) -> list[str]:
    """Return the names under which a grid was run with overrides."""
    return [variant for variant in home.grids() if variant.startswith(f"{name}@")]


def start(name: str, home: Home, overrides: Sequence[str] = (), *, verb: str = "table") -> Note:
    """Say how to start a grid; of one that ran with overrides alone, under which names, and how to see it by a verb."""
    known = variants(name, home)
    before = f"It was run as {', '.join(known)}. " if known else ""
    if known and not overrides and not home.grid(name).grid.exists():
        purpose = "Go on" if verb == "resume" else "See it"
        return Note(f"{before}{purpose}: {{step}}", Step.of(verb, known[0], runs=home.path, load=True))
    return Note(f"{before}Start it: {{step}}", Step.of("run", name, set=tuple(overrides), runs=home.path))


def _with_known_tables(grid: Grid) -> Grid:
    """Check the names of the papers' tables in a grid, and return it; UserError: with every unknown name.

    It warns of files that the grid uses and that are not as the grid has them.
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
    """Return the grids to plan or train, each once; UserError: no such grid, two of one name, or a grid is wrong.

    Args:
        sources: names of shipped grids or of grids that ran, paths of grid files, or patterns of shipped names.
        roots: DATASET=DIR; in several grids, each takes the folders of its own data sets.
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
    hint = "With several grids, say which data set lies there: --root DATASET=DIR."
    of_root = {root: root.partition("=")[0] for root in roots}
    for root, dataset in of_root.items():
        check_known("data set", dataset, every, where=f"in --root {root}", hint=hint)
    of_grids = zip(names, datasets, strict=True)
    return _checked([read(name, roots=[root for root in roots if of_root[root] in of]) for name, of in of_grids])


def as_last_run(sources: Sequence[str], home: Home, overrides: Sequence[str], *, ran: bool = False) -> list[Grid]:
    """Return the grids as they were last run, each once; UserError: no such grid, or two of one name.

    `ran`: whether a pattern is of the names of grids that ran, rather than of shipped grids.
    """
    known = home.grids() if ran else catalog.names("presets")
    names = _spelled_out(sources, known, "grid that ran" if ran else "shipped grid")
    return _checked([recall(name, home, overrides) for name in names])


def _spelled_out(sources: Iterable[str], known: Collection[str], what: str) -> list[str]:
    """Return the names, with those of a pattern in its place; each once."""
    names = list[str]()
    for source in sources:
        if source.endswith(".toml") or not set(PATTERN) & set(source):
            names.append(source)
        elif matches := fnmatch.filter(known, source):
            names += matches
        else:
            raise UserError(unknown(what, source, known or ["none"], hint="It is a pattern: * stands for any letters."))
    return list(dict.fromkeys(names))


def _checked(grids: list[Grid]) -> list[Grid]:
    """Check that each grid has a name of its own, and return them."""
    by_name: dict[str, Grid] = {}
    for grid in grids:
        if by_name.setdefault(grid.name, grid) != grid:
            raise UserError(f"two grids have the name {grid.name!r}, and would share a folder of results. Rename one.")
    return list(by_name.values())


def of_filter(grids: Sequence[Grid], home: Home, only: str) -> list[Grid]:
    """Return the grids that have trials of this filter, and report the others; UserError: none has, with reasons."""
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
    """Return a line about all trials of several grids, each counted once; none for a single grid."""
    if len(grid_states) < 2:
        return []
    states = {trial_id: state for grid_state in grid_states for trial_id, state in grid_state.states.items()}
    shared = sum(len(grid_state.states) for grid_state in grid_states) - len(states)
    done = sum(state is State.DONE for state in states.values())
    also = f"; {counted(shared, 'trial')} that another grid has, too" if shared else ""
    return [f"together: {counted(len(states), 'trial')}, {done:,} done{also}"]
