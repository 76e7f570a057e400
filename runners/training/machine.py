"""What a trial may use of the machine that it runs on, and where things lie there: no part of its identity."""

import gc
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Machine:
    """What a trial may use here: never part of its identity."""

    threads: int = 1
    workers: int = 2
    gpu: bool = False
    roots: tuple[tuple[str, str], ...] = ()
    """(data set, folder) for those that are not embedded."""
    weights: tuple[tuple[str, str], ...] = ()
    """(name, folder) of pretrained weights that lie on this machine."""
    cache: str = "features"
    """Folder of the features of frozen backbones."""
    replicas: int = 1
    """Processes that train a trial together, each with a GPU where one trains, and with so many threads and workers."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.gpu and torch.cuda.is_available() else "cpu")

    def release(self) -> None:
        """Give back what a trial held of the GPU, that it may not be missing to others there."""
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()

    @property
    def device_name(self) -> str:
        """What the GPU calls itself; empty where there is none."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else ""

    def root(self, dataset: str) -> Path | None:
        return next((Path(folder) for name, folder in self.roots if name == dataset), None)

    @property
    def features(self) -> Path:
        return Path(self.cache)

    @property
    def places(self) -> dict[str, Path]:
        return {name: Path(folder) for name, folder in self.weights}
