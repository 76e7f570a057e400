"""Launches: the jobs of one command, the drivers that run them, and the monitoring of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalgrid.grid.cli_option import option
from goalgrid.grid.store.kept_launch import KeptLaunch


@dataclass(frozen=True)
class RunOptions:
    """Options of every launch of trials, on this machine or by Slurm; they change no trial ids."""

    mlflow_uri: str | None = option(
        None, "MLflow server or database that trials are copied to; default: DIR/mlflow.db; '' for none.", "URI"
    )
    notify: str = option(
        "",
        "Run this shell command at the first failure and at the end; it gets details in variables GOALGRID_*.",
        "COMMAND",
    )
    allow_leak: bool = option(
        False, "Train even if test images leak into training or validation (recorded, and shown in table captions)."
    )


@dataclass(frozen=True)
class LaunchOptions(RunOptions):
    """Options of `goalgrid run` and `resume`: where and how to train trials."""

    here: bool = option(False, "Train in this process, without Ray.")
    address: str | None = option(
        None, "Ray cluster to train on; default: start Ray for this launch.", "HOST:PORT", envvar="RAY_ADDRESS"
    )
    launches: Mapping[str, KeptLaunch] = field(default_factory=dict)
    """Kept launches, keyed by grid name; not a command-line option."""
