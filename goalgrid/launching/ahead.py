"""What can run ahead of the trials of a grid: its frozen networks, and the ranking of a training split."""

from collections.abc import Iterator

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home
from goalgrid.terminal.views import err, say


def features(grid: Grid, home: Home) -> Iterator[str]:
    """Run the frozen networks of a grid; yields a line for each folder of features."""
    from goalgrid.runners.launch.feature_extraction import compute_features, feature_jobs, feature_sources

    jobs = feature_jobs(grid, expand(grid), home)
    if not feature_sources(jobs):
        say(f"{grid.name}: no recipe has a frozen network whose features could be kept")
        return
    compute_features(jobs, err)
    for source, machine in feature_sources(jobs):
        folder = source.folder(machine.features)
        size = sum(file.stat().st_size for file in folder.glob("*.npy")) / 1e6
        what = f"{source.views():,} {source.what} of {source.name} by {source.network.weights}"
        yield f"{folder}  {what}, {size:,.1f} MB"


def negatives(grid: Grid, home: Home, by: str) -> Iterator[str]:
    """Rank the training split of a grid by a finished trial; yields a line for each array of candidates."""
    if not home.trial(by).path.is_dir():
        known = [path.name for path in (home.path / "trials").glob("*") if path.is_dir()]
        raise UserError(unknown("trial", by, known, where="in --by"))
    import torch

    from goalgrid.retrieval.parts.aoq.companion import ranked_by
    from goalgrid.retrieval.parts.companion import Around
    from goalgrid.runners.launch.jobs import machine_for
    from goalgrid.runners.training.inputs import prepare
    from goalgrid.runners.trial.loaded_model import ranker, settings_of

    settings = settings_of(home.trial(by))
    if (name := settings.dataset.name) not in grid.datasets:
        on = ", ".join(grid.datasets)
        raise UserError(f"trial {by} in --by was trained on data set {name!r}; grid {grid.name!r} is on {on}.")
    machine = machine_for(grid, home, gpu=torch.cuda.is_available())
    around = Around(machine.root(name), machine.features, lambda trial: ranker(home.trial(trial).path, machine))
    ranking = ranked_by(by, prepare(settings, machine).pairs, around)
    for what, rows, array in (("captions", "images", ranking.captions), ("images", "captions", ranking.images)):
        yield f"{array.filename}  {array.shape[1]:,} {what} for each of {len(array):,} {rows}"  # type: ignore[attr-defined]
