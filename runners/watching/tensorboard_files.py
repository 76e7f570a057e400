"""TensorBoard, and the only file that imports its writer, tensorboardX, which Ray brings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goalgrid.runners.watching.mirror import dotted
from goalgrid.runners.watching.run_files import OpenRun, RunFiles


class TensorBoard(RunFiles):
    """Event files: `tensorboard --logdir` on the folder of a grid shows each trial as a run."""

    name = "TensorBoard"

    def begin(self, path: Path, trial_id: str, settings: Mapping[str, Any]) -> OpenRun:
        return _Events(path, settings)


class _Events:
    """The event file of a trial, flushed after every epoch."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(path))
        self.settings = dotted(settings)

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, epoch, walltime=when)
        self.writer.flush()

    def close(self, *, done: bool) -> None:
        from tensorboardX.summary import hparams

        if done:  # the trials as rows of TensorBoard's page HParams, with their settings
            for summary in hparams(self.settings, {"test_rsum": 0.0, "test_i2t_r1": 0.0, "test_t2i_r1": 0.0}):
                self.writer.file_writer.add_summary(summary)
        self.writer.close()
