"""Saved launches: written when jobs are queued, and compared with the current code when the jobs start."""

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
    """Return a saved launch of the grid, with the current code's fingerprints and the digest of `archive`."""
    snapshot = hashlib.sha256(archive).hexdigest() if archive else ""
    return KeptLaunch(grid_state.grid.to_toml(), codes(grid_state), provenance.made_by(), snapshot)


def save_new(grid_state: GridState, launch: KeptLaunch) -> None:
    """Save a grid that has never run as in its saved launch, so that other commands know it while its jobs wait."""
    if grid_state.grid.name not in grid_state.home.grids():
        save_grid(grid_state.grid, grid_state.trials, grid_state.home, launch.grid)


def codes(grid_state: GridState) -> dict[str, str]:
    """Map the id of every trial that the grid may eventually have to the current code's fingerprint."""
    cells = [cell for cell in [*grid_state.candidates, *grid_state.points] if not cell.published]
    return provenance.of_trials(cells, {trial.id for cell in cells for trial in cell.trials}, code_fingerprint)


def read(
    folders: Iterable[Path], overrides: Sequence[str], *, roots: Sequence[str], weights: Sequence[str]
) -> tuple[list[Grid], dict[str, KeptLaunch]]:
    """Read saved launches; return their grids, and the launches by grid name.

    Raises UserError as `KeptLaunch.read` and `read_kept`, or if two launches belong to one grid.
    """
    grids, launches = list[Grid](), dict[str, KeptLaunch]()
    for folder in map(LaunchFolder, folders):
        launch = KeptLaunch.read(folder)
        grid = read_kept(folder.grid, overrides, roots=roots, weights=weights)
        if grid.name in launches:
            raise UserError(f"two launches belong to grid {grid.name!r}: give one --launch per grid.")
        grids.append(grid)
        launches[grid.name] = launch
    return grids, launches


def of_other_code(launch: KeptLaunch, grid_state: GridState, trials: Sequence[Trial]) -> dict[str, tuple[str, str]]:
    """Return the trials whose current code differs from the saved launch's, as `KeptLaunch.other_code`."""
    return launch.other_code(codes(grid_state), [trial.id for trial in trials])


def untrained_note(launch: KeptLaunch, other: Mapping[str, tuple[str, str]], again: Step) -> Note:
    """Say that trials of a launch were not trained since the code has changed, and how to continue with `again`."""
    trial_id, (then, now) = next(iter(other.items()))
    there, here = version_words(launch.made_by), version_words(provenance.made_by())
    code = f"{there} with code {then}" if then else f"{there}, where the grid has other trials"
    return Note(
        f"{counted(len(other), 'trial')} not trained, e.g. {trial_id}: launch {launch.id} was made by {code}; here is "
        f"{here} with code {now}. Restore that version, then: {{step}}. Or launch the grid again with this "
        "version: trials begun by the other version are then retrained from scratch.",
        again,
        "error",
    )


def differing(grid_state: GridState, now: KeptLaunch | None) -> list[Note]:
    """Return a note for each earlier launch whose unfinished trials now have other settings or code."""
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
                f"launch {launch.id} was saved with other settings or code for {counted(len(other), 'trial')}, e.g. "
                f"{other[0]}. Its queued jobs train those; this command trains the current ones. "
                "To train the launch as saved: {step}"
            )
            notes.append(Note(text, Step.of("run", launch=str(folder.path))))
    return notes
