"""The life of one command: its jobs, the drivers that run them, and what watches over both."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how trials are trained; never part of a trial's identity.

    Args:
        here: train in this process, without Ray.
        address: of a Ray cluster; None: a Ray for this launch.
        mlflow_uri: another MLflow than the file in the runs folder; empty: no MLflow.
        notify: a shell command to run at the first failure and at the end; empty: none.
        allow_leak: train even if test images stand in the training split.
    """

    here: bool = False
    address: str | None = None
    mlflow_uri: str | None = None
    notify: str = ""
    allow_leak: bool = False
