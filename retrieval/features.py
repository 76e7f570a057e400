"""Features of a frozen backbone: computed once per (images, weights, view), kept on disk, shared by all trials.

One folder of the cache holds {train,val,test}.npy in float16, memory-mapped, so that the trials of a node share one
copy. Rows are appended to `*.npy.part`, and the whole file is renamed: an interrupted extraction resumes after its last
whole block. A second process waits for the lock and then finds the features done.

`{train,val,test}.sum.json` holds the checksum of each file, and the stamp (size and times) of the file whose checksum
was verified last: a file with another stamp is verified again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int
from numpy.lib import format as npy
from torch import Tensor

from grid.errors import UserError
from grid.identity import digest
from grid.settings.encoders import RANDOM, BackboneSettings
from grid.store.files import write_json
from retrieval.encoders import pretrained
from retrieval.encoders.vision import Vision
from retrieval.prefetch import ahead
from retrieval.splits.pairs import WHOLE, Images, Pairs

BLOCK = 256
"""Images decoded together; the random views of a bank are drawn block by block."""
BATCH = {"cpu": 32, "cuda": 256}
"""Images that the network sees together."""

ViewsDone = Callable[[int], None]
"""Called with how many more views are done."""


class Bank:
    """Features of one split: of its evaluation views, or of several random crops of each image."""

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
        """Features of these images; with a draw, each of one of its crops."""
        if draw is not None and self.crops > 1:
            rows = np.random.default_rng(draw).integers(self.crops, size=len(rows)) * len(self) + rows
        return torch.from_numpy(self.array[rows[part]])


@dataclass(frozen=True)
class FeatureSource:
    """Images and the frozen network that reads them: together they determine a folder of features.

    Args:
        name: of the data set, for the folder's name.
        pairs: the data set as images.
        images: fingerprint of the images.
    """

    name: str
    pairs: Pairs
    images: str
    backbone: BackboneSettings
    places: pretrained.Places

    @cached_property
    def key(self) -> str:
        """Hash of the images, the weights, and every setting that decides the input and output of the network."""
        backbone = self.backbone
        view = asdict(backbone.view) if backbone.crops != 1 else [backbone.size, backbone.framing]
        return digest({
            "images": self.images,
            "weights": pretrained.fingerprint(backbone, self.places),
            "view": view,
            "crops": backbone.crops,
            "network": [backbone.output, backbone.statistics],
        })  # fmt: skip

    def folder(self, cache: Path) -> Path:
        """`<cache>/<data set>-<weights>-<key>`."""
        weights = self.backbone.architecture["model_type"] if self.backbone.weights == RANDOM else self.backbone.weights
        return cache / f"{self.name}-{str(weights).rpartition('/')[2]}-{self.key[:12]}"

    def views(self) -> int:
        """How many views the network has to see."""
        return sum(map(self._rows, self.pairs.splits))

    def wanting(self, cache: Path) -> list[Path]:
        """The files of features that the cache lacks, or that are damaged."""
        wanted = ((self.folder(cache) / f"{name}.npy", self._rows(name)) for name in self.pairs.splits)
        return [path for path, rows in wanted if not (_verified(path) or _whole(path, rows))]

    def load(self, cache: Path, device: torch.device, progress: ViewsDone = lambda views: None) -> Pairs:
        """The data set as features; those missing in the cache, or damaged there, are computed here.

        Raises:
            UserError: an image or the weights cannot be read, the disk is full, or features overflow float16.
        """
        folder, splits = self.folder(cache), self.pairs.splits
        if self.wanting(cache):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with FileLock(folder / "lock"):
                    self._compute(self.wanting(cache), device, progress)
            except OSError as error:
                raise UserError(f"features cannot be written to {folder}: {error}") from error
        banks = {name: Bank(folder / f"{name}.npy", self._crops(name)) for name in splits}
        return Pairs(*(replace(split, images=banks[name]) for name, split in splits.items()))

    def _crops(self, split: str) -> int:
        return int(self.backbone.crops) if split == "train" else 1

    def _rows(self, split: str) -> int:
        return self._crops(split) * len(self.pairs.splits[split].images)

    def _compute(self, wanting: Sequence[Path], device: torch.device, progress: ViewsDone) -> None:
        if not wanting:  # another process was faster
            return
        about = {"dataset": self.name, "backbone": self.backbone.model_dump(mode="json"), "key": self.key}
        write_json(wanting[0].with_name("about.json"), about)
        network = Vision(self.backbone, self.places).eval().to(device)
        progress(self.views() - sum(self._rows(path.stem) for path in wanting))
        for path in wanting:
            if path.exists():
                path.replace(path.with_suffix(".corrupt"))
            _sum(path).unlink(missing_ok=True)
            for rows in _fill(path, network, self.pairs.splits[path.stem].images, self._crops(path.stem), device):
                progress(rows)


def _fill(path: Path, network: Vision, images: Images, crops: int, device: torch.device) -> Iterator[int]:
    """Append the features that `path` lacks, block by block, and give the number of rows of each block."""
    once = [np.arange(start, min(start + BLOCK, len(images))) for start in range(0, len(images), BLOCK)]
    blocks = once * crops
    file = GrowingArray(path, [len(rows) for rows in blocks])
    behind = file.resume()
    yield sum(file.blocks[:behind])

    def pixels(place: int) -> Tensor:
        return images.gather(blocks[place], draw=place if crops > 1 else None)

    for block in ahead(pixels, range(behind, len(blocks))):
        file.append(_features(network, block, device))
        yield len(block)
    file.finish()
    _whole(path, sum(file.blocks))


def _sum(path: Path) -> Path:
    return path.with_suffix(".sum.json")


def _noted(path: Path) -> dict[str, Any]:
    """The checksum of a file of features, and the stamp of its last verification; empty where none can be read."""
    try:
        content = json.loads(_sum(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _stamp(path: Path) -> list[int]:
    """What changes when a file is written; no program can set back the time of its last change."""
    now = path.stat()
    return [now.st_size, now.st_mtime_ns, now.st_ctime_ns]


def _verified(path: Path) -> bool:
    """Whether a file of features is the one whose checksum was verified last."""
    return path.is_file() and _noted(path).get("stamp") == _stamp(path)


def _whole(path: Path, rows: int) -> bool:
    """Whether a file of features has so many rows and its checksum; a file without a checksum gets one."""
    try:
        array = np.load(path, mmap_mode="r")
        with path.open("rb") as file:
            digest, stamp = hashlib.file_digest(file, "sha256").hexdigest(), _stamp(path)
    except (OSError, ValueError, EOFError):
        return False
    if len(array) != rows or _noted(path).get("sha256", digest) != digest:
        return False
    with suppress(UserError):  # a cache that others share may be read-only
        write_json(_sum(path), {"sha256": digest, "stamp": stamp}, durable=False)
    return True


def _features(network: Vision, pixels: Tensor, device: torch.device) -> Float[np.ndarray, "b *shape"]:
    batch = BATCH.get(device.type, BATCH["cuda"])
    half = torch.autocast(device.type, torch.float16, enabled=device.type == "cuda")
    with torch.inference_mode(), half:
        parts = [network(some.to(device)).to(torch.float16).cpu() for some in pixels.split(batch)]
    features = torch.cat(parts)
    if not torch.isfinite(features).all():
        raise UserError('the backbone gives features that float16 cannot hold; use crops = "online" for it.')
    return features.numpy()


class GrowingArray:
    """An .npy file that grows block by block in `<path>.part`, each synced to disk; `finish` renames it.

    Args:
        blocks: how many rows each block has.
    """

    def __init__(self, path: Path, blocks: Sequence[int]) -> None:
        self.path, self.part = path, path.with_name(path.name + ".part")
        self.blocks = list(blocks)

    def resume(self) -> int:
        """How many whole blocks the part holds; the rest of a torn block is cut off."""
        if not self.part.exists():
            return 0
        try:
            with self.part.open("rb+") as file:
                npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
                row = dtype.itemsize * int(np.prod(shape[1:]))
                header = file.tell()
                there = (file.seek(0, os.SEEK_END) - header) // row
                ends = [0, *accumulate(self.blocks)]
                whole = max(place for place, end in enumerate(ends) if end <= there)
                file.truncate(header + ends[whole] * row)
        except ValueError:  # cut off within the header
            self.part.unlink()
            return 0
        return whole

    def append(self, block: np.ndarray) -> None:
        with self.part.open("ab") as file:
            if not file.tell():
                shape = (sum(self.blocks), *block.shape[1:])
                descr = npy.dtype_to_descr(block.dtype)
                npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            file.write(np.ascontiguousarray(block).data)
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        self.part.replace(self.path)
