"""A launch: the trials that are wanted and not done, through a driver, with the live matrix and the MLflow mirror."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.console import Console

from grid.expansion import Cell, Trial
from grid.files import write_text
from grid.gridfile import Grid
from grid.home import Home
from runners.events import Event
from runners.here import Here
from runners.jobs import Driver, Job, concurrency, jobs_for
from runners.live import Board, Display
from runners.mlflow_mirror import Mirror
from runners.precompute import check_inputs, compute_features


@dataclass(frozen=True)
class Launch:
    """Everything about how to run, nothing about what.

    Args:
        here: run in this process, without Ray.
        mlflow_uri: where to mirror to; None: nowhere.
        live: redraw the matrix in place instead of printing lines.
    """

    home: Home
    console: Console
    here: bool = False
    mlflow_uri: str | None = None
    live: bool = False

    def run(self, grid: Grid, cells: Sequence[Cell], trials: Sequence[Trial]) -> None:
        """Train these trials; afterwards, what is done stands on the disk.

        Raises:
            UserError: the data or the runs folder cannot be used; nothing was started then.
        """
        gpus = torch.cuda.device_count()
        cpus = os.cpu_count() or 1
        jobs = jobs_for(grid, trials, self.home, gpus=gpus)
        check_inputs(jobs)
        try:
            compute_features(jobs, self.console)
        except KeyboardInterrupt:
            self._warn("interrupted; the features that are computed are kept")
            return
        driver: Driver = Here()
        if not self.here:
            from runners.ray_tune import RayTune

            driver = RayTune(cpus=cpus, gpus=gpus, slots=concurrency(grid.resources, jobs, cpus=cpus, gpus=gpus))
        board = Board(cells, {trial.id: self.home.trial(trial.id).state() for cell in cells for trial in cell.trials})
        mirror = Mirror(self.mlflow_uri, grid.name, self._warn) if self.mlflow_uri else None
        if mirror:  # what an earlier launch left unmirrored
            for trial_id in board.trials:
                mirror.sync(self.home.trial(trial_id))
        try:
            with Display(board, self.console, live=self.live) as display:
                self._drive(driver, jobs, display, mirror)
        finally:
            if mirror:
                mirror.close()

    def _drive(self, driver: Driver, jobs: Sequence[Job], display: Display, mirror: Mirror | None) -> None:
        def report(event: Event) -> None:
            display(event)
            if mirror:
                mirror.sync(self.home.trial(event.trial_id))

        try:
            driver.run(jobs, report)
        except KeyboardInterrupt:
            self._warn("interrupted")

    def _warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


def save_grid(grid: Grid, trials: Sequence[Trial], home: Home) -> None:
    """Write the grid as resolved and its trials' ids, before the first trial starts.

    Raises:
        UserError: the runs folder cannot be written.
    """
    folder = home.grid(grid.name)
    write_text(folder.grid, grid.to_toml())
    write_text(folder.trials, "".join(f"{trial.id}\n" for trial in trials))
