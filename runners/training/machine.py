"""What a trial may use of its machine, and where data and weights are there: no part of the trial's identity."""

import gc
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Machine:
    """What a trial may use."""

    threads: int = 1
    workers: int = 2
    gpu: bool = False
    roots: tuple[tuple[str, str], ...] = ()
    """(data set, folder) of every data set that is not embedded."""
    weights: tuple[tuple[str, str], ...] = ()
    """(name, folder) of pretrained weights on this machine."""
    features: Path = Path("features")
    """Folder of the features of frozen backbones."""
    data: Path | None = None
    """Folder that keeps what data sets hold; None: they are read whole at each start."""
    uses: tuple[tuple[str, str], ...] = ()
    """(path, text) of the user's own files, which define objectives: each process that trains imports them."""
    replicas: int = 1
    """Processes that train a trial together, each with its own GPU (if any), threads and workers."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.gpu and torch.cuda.is_available() else "cpu")

    def release(self) -> None:
        """Free the GPU memory that a finished trial still caches, for other processes."""
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()

    @property
    def device_name(self) -> str:
        """The GPU's name; empty without a GPU."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else ""

    def root(self, dataset: str) -> Path | None:
        return next((Path(folder) for name, folder in self.roots if name == dataset), None)

    @property
    def places(self) -> dict[str, Path]:
        return {name: Path(folder) for name, folder in self.weights}
