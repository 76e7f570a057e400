"""The compute environment of a process: its resources, folders of data and weights, and precision."""

import ctypes
import gc
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.columns import Columns, with_extra
from goalgrid.grid.errors import said_by
from goalgrid.grid.plugins import uses_of
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrainSettings, TrialSettings

_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "STATUS_ALLOC_FAILED",  # of cuBLAS, cuDNN, cuSOLVER
    "STATUS_NOT_INITIALIZED",  # their handles need memory
    "was unable to find an engine",  # cuDNN's workspaces do not fit
)
_OF_DEVICE = (
    "CUDA error", "cuDNN error", "cusolver error", "NCCL error", "Triton Error [CUDA]", "unhandled cuda error",
)  # fmt: skip
"""Prefixes of CUDA error messages after which the GPU is unusable in this process."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether host or GPU memory ran out, including errors of CUDA libraries."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in said_by(error) for words in _NO_MEMORY)


def is_device_error(error: BaseException) -> bool:
    """Return whether the GPU failed permanently, so that every later call of this process fails too."""
    of_device = isinstance(error, RuntimeError) and any(words in said_by(error) for words in _OF_DEVICE)
    return of_device and not is_out_of_memory(error)


def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks below 32 MiB, up to 512 MiB of them.

    By default it returns freed gradients to the system, and the next step pays for new pages, filled with zeros.
    """
    trim_threshold, mmap_threshold = -1, -3  # names of mallopt(3)
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no mallopt
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 512 << 20)
        libc.mallopt(mmap_threshold, 32 << 20)


@dataclass(frozen=True)
class Machine:
    """Resources of a trial's process, and folders of data and weights."""

    resources: Resources = field(default_factory=Resources)
    gpu: bool = False
    roots: tuple[tuple[str, str], ...] = ()
    """(data set, folder) for every data set that has a folder."""
    weights: tuple[tuple[str, str], ...] = ()
    """(name, folder) for pretrained weights on this machine."""
    checkpoints: tuple[tuple[str, str], ...] = ()
    """(hash, file) for published checkpoints that trials fine-tune."""
    features: Path = Path("features")
    """Folder of the cached features of frozen backbones."""
    data: Path | None = None
    """Cache folder for the content of data sets and for smaller pictures; None: data are read in full at each start."""
    uses: tuple[tuple[str, str], ...] = ()
    """(path, source) of the plugins, which every training process imports."""
    columns: tuple[tuple[str, Columns], ...] = ()
    """(data set, columns) for caption tables whose columns the grid names."""

    @property
    def catalog(self) -> Catalog:
        """Return the catalog with all plugins registered, which resolves names in settings.

        Raises UserError if a plugin cannot be imported.
        """
        return _catalog(self.uses)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.gpu and torch.cuda.is_available() else "cpu")

    def begin(self) -> None:
        """Set the number of threads of this process, and let it keep freed memory for the next step."""
        torch.set_num_threads(self.resources.cpu)
        torch.backends.cudnn.benchmark = self.resources.cudnn_benchmark
        _keep_freed_memory()

    def release(self) -> None:
        """Free the GPU memory still cached by a finished trial, for other processes."""
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()

    @property
    def layout(self) -> torch.memory_format:
        """Memory format of the model's weights.

        On a CPU it stays at the default: another format would change results, and equal ids promise equal results.
        """
        on_gpu = self.resources.channels_last and self.device.type == "cuda"
        return torch.channels_last if on_gpu else torch.preserve_format

    @property
    def graphs(self) -> bool:
        """Return whether objectives run as CUDA graphs; False on ROCm, where this is untested."""
        return self.resources.cuda_graphs and self.device.type == "cuda" and torch.version.cuda is not None

    def root(self, dataset: str) -> Path | None:
        return next((Path(folder) for name, folder in self.roots if name == dataset), None)

    def reading(self, dataset: str, extra: tuple[str, ...]) -> "Machine":
        """Return this machine with additional columns to read from a data set's table."""
        columns = dict(self.columns) | {dataset: with_extra(self.columns_of(dataset), extra)}
        return replace(self, columns=tuple(columns.items())) if extra else self

    def columns_of(self, dataset: str) -> Columns:
        return dict(self.columns).get(dataset, ())

    @property
    def places(self) -> dict[str, Path]:
        return {name: Path(folder) for name, folder in self.weights}


@cache
def _catalog(uses: tuple[tuple[str, str], ...]) -> Catalog:
    return Catalog.of(uses_of(uses))


def set_tf32(train: TrainSettings) -> None:
    """Switch TF32 on GPUs on or off for this process (torch's default: only in cuDNN layers)."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = train.tf32


def precision(settings: TrialSettings, device: torch.device) -> torch.autocast:
    """Return an autocast context for encoders, bfloat16 if the recipe says so; objectives disable it themselves."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.train.precision == "bf16")
