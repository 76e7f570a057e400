"""Weights & Biases, and the only file that imports it: offline runs, which `wandb sync` uploads."""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from goalgrid.runners.watching.run_files import OpenRun, RunFiles

FLUSH_SECONDS = 60.0
"""How long W&B may take to write the end of a run."""


class Wandb(RunFiles):
    """A project with the grid's name and an offline run for each trial, whose id is that of the trial."""

    name = "W&B"

    def begin(self, path: Path, trial_id: str, settings: Mapping[str, Any]) -> OpenRun:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else it reports its errors to its makers
        import wandb

        logging.getLogger("wandb").setLevel(logging.CRITICAL)
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, disable_job_creation=True,
            x_disable_stats=True,
        )  # fmt: skip
        run = wandb.init(
            mode="offline", dir=str(path), project=self.experiment, id=trial_id, name=trial_id,
            config=dict(settings), reinit="create_new", settings=quiet,
        )  # fmt: skip
        return _OfflineRun(run)


class _OfflineRun:
    """A run that W&B writes to the disk alone."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None:
        self.run.log({**metrics, "_timestamp": when}, step=epoch)

    def close(self, *, done: bool) -> None:
        """End the run; if it is whole, wait until the disk holds it, which W&B itself does not wait for.

        Raises:
            TimeoutError: the disk does not hold it.
        """
        file = str(self.run.settings.sync_file)
        self.run.finish(exit_code=0 if done else 1)
        until = time.monotonic() + FLUSH_SECONDS
        while done and not _ended(file):
            if time.monotonic() > until:
                raise TimeoutError(f"W&B has not written the end of {file}")
            time.sleep(0.05)


def _ended(file: str) -> bool:
    """Whether a run's file has its end."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, record = DataStore(), Record()
    store.open_for_scan(file)
    with suppress(AssertionError):  # a record that is half written
        while (data := store.scan_data()) is not None:
            record.ParseFromString(data)
            if record.HasField("exit"):
                return True
    return False
