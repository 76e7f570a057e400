"""Features of frozen networks: computed once, cached on disk, shared by all trials.

A cache folder contains {train,val,test}.npy in float16, memory-mapped, so that the trials of a node share one copy.
`{train,val,test}.sum.json` contains each file's checksum and its stamp (size and times) when it was last verified.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError, sha256_of
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.image_views import Resampling
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.grid.store.files import read_json, write_json
from goalgrid.retrieval.data.images import ImageFiles
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls import caption_call
from goalgrid.retrieval.encoders.text import features_of, text_network
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.growing_array import GrowingArray
from goalgrid.retrieval.prefetch import ahead
from goalgrid.retrieval.splits.pairs import WHOLE, Pairs
from goalgrid.retrieval.splits.problems import array_of
from goalgrid.retrieval.words.tokens import Tokens

BLOCK = 256
"""Number of images or captions per block; the random crops of a bank are drawn block by block."""
BATCH = {"cpu": 32, "cuda": 256}
"""Batch size of the network, by device type."""

Unit = tuple[str, tuple[int, ...]]
"""A split, and the indices (in `blocks`) of those of its blocks that are computed together."""
RowsDone = Callable[[int], None]
"""Callback for progress: takes the number of further rows of features done."""
Block = tuple[Any, ...]
"""Input of a block: pixels, or token indices with lengths, or images."""
Computed = Iterator[tuple[Unit, list[np.ndarray]]]
"""Iterator over units with the features of their blocks."""
SPLITS = ("train", "val", "test")
OWN_VECTORS = (*pretrained.OWN_POOLERS, "radio")
"""Model types of image networks whose published vector is not their class token."""


class Bank:
    """Features of the images of one split: of the evaluation views, or of several random crops per image."""

    def __init__(self, path: Path, crops: int) -> None:
        self.array = np.load(path, mmap_mode="r")
        self.crops = crops

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[1:])

    def __len__(self) -> int:
        return len(self.array) // self.crops

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> Float[Tensor, "p *shape"]:
        """Return the features of these images; if `draw` is given, of a random crop of each."""
        if draw is not None and self.crops > 1:
            rows = np.random.default_rng(draw).integers(self.crops, size=len(rows)) * len(self) + rows
        return torch.from_numpy(self.array[rows[part]])


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptionBank(Tokens):
    """Captions of one split as features: one vector per caption, or one state per token."""

    array: np.ndarray
    starts: Int[np.ndarray, " t"] | None
    """Row of each caption's first state in the array; None if a caption is one vector."""

    @classmethod
    def open(cls, path: Path, tokens: Tokens, *, states: bool) -> "CaptionBank":
        lengths, array = tokens.lengths.numpy(), np.load(path, mmap_mode="r")
        return cls(tokens.ids, tokens.lengths, array=array, starts=lengths.cumsum() - lengths if states else None)

    def of(self, rows: Int[np.ndarray, " b"]) -> "CaptionBank":
        bank = super().of(rows)
        array, starts = (self.array[rows], None) if self.starts is None else (self.array, self.starts[rows])
        return CaptionBank(bank.ids, bank.lengths, array=array, starts=starts)

    @property
    def width(self) -> int:
        return int(self.array.shape[1])

    def gather(self, rows: Int[Tensor, " b"], draw: int | None = None) -> tuple[Tensor, Int[Tensor, " b"]]:
        """Return vectors (b, k) or states (b, n, k) padded with zeros, and the number of tokens of each caption."""
        lengths = self.lengths[rows]
        if self.starts is None:
            return torch.from_numpy(self.array[rows.numpy()]), lengths
        states = np.zeros((len(rows), int(lengths.max()), self.width), self.array.dtype)
        for target, start, length in zip(states, self.starts[rows.numpy()], lengths.tolist(), strict=True):
            target[:length] = self.array[start : start + length]
        return torch.from_numpy(states), lengths


@dataclass(frozen=True)
class CachedArrays(ABC):
    """Arrays computed once from the splits of a data set, and memory-mapped by all trials."""

    name: str
    cache: Path

    @property
    @abstractmethod
    def title(self) -> str:
        """Description of the arrays, for messages."""

    @property
    @abstractmethod
    def what(self) -> str:
        """Plural noun for the rows, for messages."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Hash of everything that determines the arrays."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Folder of the arrays."""

    @abstractmethod
    def blocks(self, split: str) -> list[int]:
        """Return the number of rows of each block of a split."""

    def units(self, split: str) -> list[Unit]:
        """Return the units of a split, which together cover all its blocks."""
        return [(split, (place,)) for place in range(len(self.blocks(split)))]

    @abstractmethod
    def read(self, unit: Unit) -> list[Block]:
        """Read the blocks of a unit into host memory."""

    @abstractmethod
    def rows(self, device: torch.device) -> Callable[[Block], np.ndarray]:
        """Return a function that computes the rows of a block."""

    def reader(self, device: torch.device) -> Callable[[Unit], list[np.ndarray]]:
        """Return a function that computes the rows of a unit in this process, block by block."""
        rows = self.rows(device)
        return lambda unit: [rows(block) for block in self.read(unit)]

    def compute(self, units: Sequence[Unit], device: torch.device) -> Computed:
        """Compute the rows of these units in this process."""
        rows = self.rows(device)
        for unit, blocks in zip(units, ahead(self.read, units), strict=True):
            yield unit, [rows(block) for block in blocks]

    def views(self) -> int:
        return sum(map(self._rows, SPLITS))

    def wanting(self) -> list[Path]:
        """List the files that are missing from the cache, or damaged."""
        files = ((self.folder / f"{name}.npy", self._rows(name)) for name in SPLITS)
        return [path for path, rows in files if not (_verified(path) or _whole(path, rows))]

    def fill(
        self,
        device: torch.device,
        progress: RowsDone = lambda rows: None,
        compute: Callable[[Sequence[Unit]], Computed] | None = None,
    ) -> Path:
        """Compute the arrays that are missing from the cache or damaged, and return their folder.

        `compute` replaces the method of this name, e.g. to use other processes; it may yield units in any order. Raises
        UserError if an image or the weights are unreadable, the disk is full, or features overflow float16.
        """
        folder = self.folder
        if self.wanting():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with FileLock(folder / "lock"):
                    self._fill(self.wanting(), compute or partial(self.compute, device=device), progress)
            except OSError as error:
                raise UserError(f"features cannot be written to {folder}: {error}") from error
        return folder

    def _rows(self, split: str) -> int:
        return sum(self.blocks(split))

    def _fill(self, wanting: Sequence[Path], compute: Callable[[Sequence[Unit]], Computed], progress: RowsDone) -> None:
        if not wanting:  # another process was faster
            return
        for path in wanting:
            if path.exists():
                path.replace(path.with_suffix(".corrupt"))
            _sum(path).unlink(missing_ok=True)
        files = {path.stem: GrowingArray(path, self.blocks(path.stem)) for path in wanting}
        progress(self.views() - sum(file.blocks[place] for file in files.values() for place in file.missing))
        units = [unit for name in files for unit in self.units(name)]
        lacking = [(name, places) for name, places in units if not files[name].missing.isdisjoint(places)]
        for (name, places), blocks in compute(lacking):
            for place, block in zip(places, blocks, strict=True):
                if place in files[name].missing:
                    files[name].write(place, block)
                    progress(files[name].blocks[place])
        for file in files.values():
            file.finish()
            _whole(file.path, sum(file.blocks))


@dataclass(frozen=True)
class FeatureSource(CachedArrays):
    """Images or captions of a data set with the frozen network that reads them; these determine the features."""

    network: Pretrained
    places: pretrained.Places

    @property
    def title(self) -> str:
        return f"features of {self.name} by {self.network.weights}"

    @abstractmethod
    def built(self, device: torch.device) -> Callable[..., Tensor]:
        """Build the network, which computes the rows of a block."""

    @property
    def folder(self) -> Path:
        """`<cache>/<data set>-<weights>-<key>`."""
        network = self.network
        weights = network.architecture["model_type"] if network.weights == RANDOM else network.weights
        return self.cache / f"{self.name}-{str(weights).rpartition('/')[2]}-{self.key[:12]}"

    def rows(self, device: torch.device) -> Callable[[Block], np.ndarray]:
        network = self.built(device)
        return lambda block: _features(network, block, device)


def _view_in_keys(backbone: BackboneSettings) -> Any:
    """Return the view for the cache key; margin and filter, added later, only count if they change the pixels."""
    view, usual = backbone.view, Resampling[backbone.usual_filter.upper()]
    if backbone.crops != 1:
        return {name: value for name, value in asdict(view).items() if (name, value) != ("margin", None)}
    later = [] if (view.margin, view.resampling) == (None, usual) else [view.margin, view.resampling]
    return [view.size, view.framing, *later]


@dataclass(frozen=True)
class ImageSource(FeatureSource):
    """Images, with their fingerprint, and the frozen network that reads them."""

    network: BackboneSettings
    pairs: Pairs
    images: str
    what = "views"

    @cached_property
    def key(self) -> str:
        backbone = self.network
        return digest({
            "images": self.images,
            "weights": pretrained.fingerprint(backbone, self.places),
            "view": _view_in_keys(backbone),
            "crops": backbone.crops,
            "network": [backbone.output, backbone.statistics, *self._pooled()],
        })  # fmt: skip

    def _pooled(self) -> list[str]:
        """Return a marker for networks whose keys without it belong to features that used the class token instead."""
        config = pretrained.config_of(self.network, self.places)
        other = config.get("model_type") in OWN_VECTORS and config.get("use_mean_pooling", True)
        return ["own vector"] if other and self.network.output == "pooled" else []

    def blocks(self, split: str) -> list[int]:
        return [len(rows) for rows in self._images(split)]

    def units(self, split: str) -> list[Unit]:
        """Return units that contain all crops of a block of images, so that each image is decoded once."""
        runs = len(self._images(split)) // self._crops(split)
        return [(split, tuple(range(run, runs * self._crops(split), runs))) for run in range(runs)]

    def read(self, unit: Unit) -> list[Block]:
        split, places = unit
        images, rows = self.pairs.splits[split].images, self._images(split)[places[0]]
        if self._crops(split) == 1:
            return [(images.gather(rows),)]
        if isinstance(images, ImageFiles):
            return [(views,) for views in images.looks(rows, places)]
        return [(images.gather(rows, draw),) for draw in places]

    def built(self, device: torch.device) -> Callable[..., Tensor]:
        return Vision(self.network, self.places).eval().to(device)

    def load(self, device: torch.device) -> Pairs:
        """Return the data set as features, after computing missing or damaged ones with `fill`."""
        folder = self.fill(device)
        banks = {name: Bank(folder / f"{name}.npy", self._crops(name)) for name in SPLITS}
        return Pairs(*(replace(split, images=banks[name]) for name, split in self.pairs.splits.items()))

    def _crops(self, split: str) -> int:
        return int(self.network.crops) if split == "train" else 1

    def _images(self, split: str) -> list[Int[np.ndarray, " b"]]:
        """Return the image rows of each block; the list is repeated for each crop."""
        return _runs(len(self.pairs.splits[split].images)) * self._crops(split)


@dataclass(frozen=True, eq=False)
class CaptionSource(FeatureSource):
    """The captions of each split, as token indices below `words`, and the frozen network that reads them."""

    network: TransformerSettings
    tokens: Mapping[str, Tokens]
    words: int

    @property
    def what(self) -> str:
        return "captions" if self.network.output == "projected" else "tokens of captions"

    @cached_property
    def key(self) -> str:
        read = hashlib.sha256()
        for name in SPLITS:
            read.update(f"{name} {tuple(self.tokens[name].ids.shape)}".encode())
            read.update(np.ascontiguousarray(self.tokens[name].ids.numpy()).data)
            read.update(np.ascontiguousarray(self.tokens[name].lengths.numpy()).data)
        return digest({
            "captions": read.hexdigest(),
            "weights": pretrained.fingerprint(self.network, self.places),
            "words": self.words if self.network.weights == RANDOM else 0,
            "output": self.network.output,
            **self._filled(),
        })  # fmt: skip

    def _filled(self) -> dict[str, int]:
        """Return the padding id for the cache key, unless keys without it belong to features with the same padding."""
        fill = caption_call.fill_of(self.network, self.places)
        right = self.network.output == "projected" and fill == caption_call.fill_before(self.network, self.places)
        return {} if fill is None or right else {"filled": fill}

    def blocks(self, split: str) -> list[int]:
        lengths, states = self.tokens[split].lengths, self.network.output == "states"
        return [int(lengths[rows].sum()) if states else len(rows) for rows in _runs(len(lengths))]

    def read(self, unit: Unit) -> list[Block]:
        split, (place,) = unit
        tokens = self.tokens[split]
        return [tokens.gather(torch.from_numpy(_runs(len(tokens))[place]))]

    def built(self, device: torch.device) -> Callable[..., Tensor]:
        network, output = text_network(self.network, self.words, self.places).eval().to(device), self.network.output

        def rows(ids: Tensor, lengths: Tensor) -> Tensor:
            features = features_of(network, output, ids, lengths)
            if output == "projected":
                return features
            return features[torch.arange(features.shape[1], device=features.device) < lengths[:, None]]

        return rows

    def load(self, device: torch.device) -> dict[str, CaptionBank]:
        """Return the captions of each split as features, after computing missing or damaged ones with `fill`."""
        folder, states = self.fill(device), self.network.output == "states"
        return {name: CaptionBank.open(folder / f"{name}.npy", self.tokens[name], states=states) for name in SPLITS}


def _runs(count: int) -> list[Int[np.ndarray, " b"]]:
    return [np.arange(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def _sum(path: Path) -> Path:
    """Return the path of the file with a feature file's checksum and the stamp of its last verification."""
    return path.with_suffix(".sum.json")


def _stamp(path: Path) -> list[int]:
    """Return size and times of a file, which change on every write; no program can reset its ctime."""
    now = path.stat()
    return [now.st_size, now.st_mtime_ns, now.st_ctime_ns]


def _verified(path: Path) -> bool:
    """Return whether a feature file is unchanged since its checksum was last verified."""
    return path.is_file() and read_json(_sum(path)).get("stamp") == _stamp(path)


def _whole(path: Path, rows: int) -> bool:
    """Return whether a feature file has this many rows and a matching checksum; if it has no checksum, add one."""
    try:
        array = array_of(path)
        digest, stamp = sha256_of(path), _stamp(path)
    except (OSError, ValueError):
        return False
    if len(array) != rows or read_json(_sum(path)).get("sha256", digest) != digest:
        return False
    with suppress(UserError):  # a cache that others share may be read-only
        write_json(_sum(path), {"sha256": digest, "stamp": stamp}, durable=False)
    return True


def _features(network: Callable[..., Tensor], block: Block, device: torch.device) -> Float[np.ndarray, "b *shape"]:
    batch = BATCH.get(device.type, BATCH["cuda"])
    half = torch.autocast(device.type, torch.float16, enabled=device.type == "cuda")
    with torch.inference_mode(), half:
        split = zip(*(part.split(batch) for part in block), strict=True)
        parts = [network(*(part.to(device) for part in some)).to(torch.float16).cpu() for some in split]
    features = torch.cat(parts)
    if not torch.isfinite(features).all():
        raise UserError(
            "the network's features overflow float16, so they cannot be cached. To run the network in training, set "
            'crops = "online" or frozen = false.'
        )
    return features.numpy()
