"""The trackers of a grid: which there are, and where each keeps its copies."""

from importlib.util import find_spec

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home
from goalgrid.runners.watching.mirror import Tracker
from goalgrid.runners.watching.mlflow_mirror import Mlflow
from goalgrid.runners.watching.tensorboard_files import TensorBoard
from goalgrid.runners.watching.wandb_files import Wandb


def trackers_of(grid: Grid, home: Home, mlflow_uri: str | None = None) -> list[Tracker]:
    """The trackers that a grid names.

    Args:
        mlflow_uri: another MLflow than the file in the runs folder; empty: no MLflow.

    Raises:
        UserError: a tracker is not installed.
    """
    trackers: list[Tracker] = []
    if mlflow_uri or (mlflow_uri is None and "mlflow" in grid.trackers):
        trackers.append(Mlflow.of(home, grid.name, mlflow_uri))
    if "tensorboard" in grid.trackers:
        trackers.append(TensorBoard(home.tensorboard / grid.name, grid.name))
    if "wandb" in grid.trackers:
        if find_spec("wandb") is None:
            raise UserError(
                f"trackers of grid {grid.name!r} names 'wandb', which is not installed here: "
                "pip install 'goalgrid[wandb]'. Or leave it out: --set 'trackers=[\"mlflow\"]'."
            )
        trackers.append(Wandb(home.wandb / grid.name, grid.name))
    return trackers
