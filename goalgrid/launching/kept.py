"""Launches by what they keep: written before jobs wait for their turn, and compared with the code that is here then."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.expansion import Trial
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import Note, Step
from goalgrid.grid.store.home import LaunchFolder, State
from goalgrid.grid.store.kept_launch import KeptLaunch, version_words
from goalgrid.grid.store.saved_grid import read_kept, save_grid
from goalgrid.results.records import provenance
from goalgrid.runners.training.fingerprint import code_fingerprint
from goalgrid.state.grid_state import GridState


def of(grid_state: GridState, archive: bytes = b"") -> KeptLaunch:
    """Return what a launch of the grid keeps, by the code that is here now, of which it may keep an archive."""
    snapshot = hashlib.sha256(archive).hexdigest() if archive else ""
    return KeptLaunch(grid_state.grid.to_toml(), codes(grid_state), provenance.made_by(), snapshot)


def save_new(grid_state: GridState, launch: KeptLaunch) -> None:
    """Save a grid that never ran as its launch keeps it, so that other commands know it while its jobs wait."""
    if grid_state.grid.name not in grid_state.home.grids():
        save_grid(grid_state.grid, grid_state.trials, grid_state.home, launch.grid)


def codes(grid_state: GridState) -> dict[str, str]:
    """Return the fingerprint of the code here that trains each trial that the grid may come to have, by id."""
    cells = [cell for cell in [*grid_state.candidates, *grid_state.points] if not cell.published]
    return provenance.of_trials(cells, {trial.id for cell in cells for trial in cell.trials}, code_fingerprint)


def read(
    folders: Iterable[Path], overrides: Sequence[str], *, roots: Sequence[str], weights: Sequence[str]
) -> tuple[list[Grid], dict[str, KeptLaunch]]:
    """Read the grids that launches keep, and what they keep, by grid; raises as `KeptLaunch.read` and `read_kept`."""
    grids, launches = list[Grid](), dict[str, KeptLaunch]()
    for folder in map(LaunchFolder, folders):
        launch = KeptLaunch.read(folder)
        grid = read_kept(folder.grid, overrides, roots=roots, weights=weights)
        if grid.name in launches:
            raise UserError(f"two launches are of the grid {grid.name!r}: give one --launch for each grid.")
        grids.append(grid)
        launches[grid.name] = launch
    return grids, launches


def of_other_code(launch: KeptLaunch, grid_state: GridState, trials: Sequence[Trial]) -> dict[str, tuple[str, str]]:
    """Return the trials that other code would train now than the launch keeps, as `KeptLaunch.other_code`."""
    return launch.other_code(codes(grid_state), [trial.id for trial in trials])


def untrained_note(launch: KeptLaunch, other: Mapping[str, tuple[str, str]], again: Step) -> Note:
    """Say why trials of a launch were not trained, by both versions, and what helps; `again` continues it."""
    trial_id, (then, now) = next(iter(other.items()))
    there, here = version_words(launch.made_by), version_words(provenance.made_by())
    code = f"{there} with code {then}" if then else f"{there}, which resolves the grid to other trials"
    return Note(
        f"{counted(len(other), 'trial')} not trained, e.g. {trial_id}: launch {launch.id} was made by {code}; here is "
        f"{here} with code {now}. Bring that version back, then: {{step}}. Or launch the grid again with this "
        "version: it retrains from scratch what the other version has begun.",
        again,
        "error",
    )


def differing(grid_state: GridState, now: KeptLaunch | None) -> list[Note]:
    """Name each earlier launch whose unfinished trials have other settings or other code than the grid now."""
    folders = grid_state.home.grid(grid_state.grid.name).kept_launches()
    notes, here = list[Note](), dict[str, str]()
    for folder in folders:
        try:
            launch = KeptLaunch.read(folder)
        except UserError:
            continue  # its jobs say so
        states = grid_state.home.states(launch.code)
        unfinished = [trial_id for trial_id, state in states.items() if state not in (State.DONE, State.STOPPED)]
        if not unfinished or (now and launch.id == now.id):
            continue
        here = here or codes(grid_state)
        if other := [trial_id for trial_id in unfinished if here.get(trial_id) != launch.code[trial_id]]:
            text = (
                f"launch {launch.id} keeps other settings or other code of {counted(len(other), 'trial')}, e.g. "
                f"{other[0]}. Jobs of it that still wait in a queue train those; this command trains what is here "
                "now. To train what it keeps: {step}"
            )
            notes.append(Note(text, Step.of("run", launch=str(folder.path))))
    return notes
