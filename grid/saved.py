"""A grid's folder in a runs folder: what the grid was when it was last run, and which trials have left it since."""

from collections.abc import Sequence

from grid.expansion import Trial
from grid.files import write_text
from grid.gridfile import Grid
from grid.home import Home


def save_grid(grid: Grid, trials: Sequence[Trial], home: Home) -> None:
    """Write the grid as resolved and its trials' ids, before the first trial starts; those that left it are kept.

    Raises:
        UserError: the runs folder cannot be written.
    """
    folder, ids = home.grid(grid.name), [trial.id for trial in trials]
    standing = {trial.trial_id for trial in home.trials()}
    once = dict.fromkeys([*folder.former_ids(), *folder.ids()])
    former = [trial_id for trial_id in once if trial_id in standing and trial_id not in ids]
    if former or folder.former.exists():
        write_text(folder.former, "".join(f"{trial_id}\n" for trial_id in former))
    write_text(folder.grid, grid.to_toml())
    write_text(folder.trials, "".join(f"{trial_id}\n" for trial_id in ids))
