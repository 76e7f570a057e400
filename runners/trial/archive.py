"""Archive a trial's folder atomically, to retrain or remove the trial; never while a process trains it."""

from datetime import UTC, datetime
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import cannot_write
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.runners.trial import lease


def replace(home: Home, trial_id: str) -> None:
    """Move a trial's folder to `replaced/`, so that it retrains from scratch; raise UserError if it is in training."""
    folder = home.trial(trial_id)
    if not folder.path.exists():
        return
    if not take_away(folder, _target(home.replaced, trial_id)):
        raise UserError(
            f"cannot retrain {trial_id}: it is being trained now. Wait until it is done, or exclude it with --only."
        )


def progress(folder: TrialFolder) -> Path:
    """Move the files of a trial's training, except its attempts, to `replaced/`; raise UserError on failure.

    Only the process that holds the trial may call it.
    """
    target = _target(Home(folder.path.parent.parent).replaced, folder.trial_id)
    # Checkpoints are moved last: as long as one is left, the next attempt finds it and moves the rest.
    files = [folder.history, folder.trace, folder.triplets, folder.pooling, folder.speed]
    files += [folder.best_checkpoint, folder.previous_checkpoint, folder.last_checkpoint]
    try:
        target.mkdir(parents=True)
        for path in files:
            if path.exists():
                path.rename(target / path.name)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def _target(replaced: Path, trial_id: str) -> Path:
    return replaced / f"{trial_id}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"


def take_away(folder: TrialFolder, target: Path) -> bool:
    """Move a trial's folder to `target` unless a process is training it; return whether it was moved.

    Raises UserError if the move fails. The latest attempt is checked like before taking over a trial. If a new attempt
    began meanwhile, the folder is moved back. No file is written, so that it works on a full disk.
    """
    latest = folder.latest()
    if latest and not lease.over(latest):
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.path.rename(target)
        moved = TrialFolder(target).latest()
        if moved and (latest is None or moved.number > latest.number):
            target.rename(folder.path)
            return False
    except OSError as error:
        raise UserError(f"cannot move {folder.path} to {target}: {error.strerror}.") from error
    return True
