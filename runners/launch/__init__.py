"""The life of one command: its jobs, the drivers that run them, and what watches over both."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalgrid.grid.cli_option import option
from goalgrid.grid.store.kept_launch import KeptLaunch


@dataclass(frozen=True)
class RunOptions:
    """Options of every launch of trials, on this machine or by Slurm; they change no trial ids."""

    mlflow_uri: str | None = option(
        None, "The MLflow that trials are copied to; default: DIR/mlflow.db; '' for none.", "URI"
    )
    notify: str = option(
        "",
        "Run this shell command at the first failure and at the end; variables GOALGRID_* say what happened.",
        "COMMAND",
    )
    allow_leak: bool = option(
        False, "Train even if test images leak into training or validation (recorded, and in captions of tables)."
    )


@dataclass(frozen=True)
class LaunchOptions(RunOptions):
    """Options of `goalgrid run` and `resume`: where and how to train trials."""

    here: bool = option(False, "Train in this process, without Ray.")
    address: str | None = option(
        None, "Ray cluster to train on; default: start Ray for this launch.", "HOST:PORT", envvar="RAY_ADDRESS"
    )
    launches: Mapping[str, KeptLaunch] = field(default_factory=dict)
    """Kept launches, by the names of their grids; not an option."""
