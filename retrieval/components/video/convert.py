"""Conversion of published expert features to our layout: CE's pickles, MMT's h5 files, or one file per video."""

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import user_path
from goalgrid.grid.settings.base import check_name
from goalgrid.grid.store.files import atomic_write, write_text
from goalgrid.retrieval.components.video.expert_files import FEATURES, TIMES, VIDEOS
from goalgrid.retrieval.splits.pairs import DataError

SECONDS = {"rgb": 0.2, "scene": 1.0}
"""Seconds between vectors, for MMT's experts whose files contain no times."""
TIMED = ("s3d", "vggish")
"""MMT's experts whose files contain times."""


class Seen(NamedTuple):
    """The vectors of an expert for a video; empty if the expert detected nothing."""

    expert: str
    video: str
    vectors: np.ndarray
    times: np.ndarray | None
    place: str
    """The source file, for messages."""


_NUMPY = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}
"""Functions that pickled arrays and numbers call; before NumPy 2 the package was `numpy.core`."""


class _Arrays(pickle.Unpickler):
    """Unpickles containers, numbers and arrays; refuses everything else that a pickle may name or call."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module.replace("numpy.core", "numpy._core"), name) in _NUMPY:
            return getattr(import_module(module.replace("numpy.core", "numpy._core")), name)
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes the bytes of an array by Python 2's protocol
            return _encoded
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which arrays do not need; the code was not run")


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes text as {encoding}, which arrays never do")
    return text.encode("latin1")


def convert(sources: Sequence[str], root: Path, progress: Callable[[str], None] = lambda what: None) -> dict[str, int]:
    """Write the features of these sources below a root; return the number of videos with vectors, by expert.

    Args:
        sources: EXPERT=PATH of a pickle or of a folder with one .npy or .npz per video; or a folder of MMT's h5 files.

    Raises:
        DataError: a source cannot be read, is in another format, or its vectors differ in width.
    """
    with ExitStack() as stack:
        writers: dict[str, _Writer] = {}
        for source in sources:
            progress(source)
            for seen in _read(source):
                if seen.expert not in writers:
                    folder = root / "experts" / seen.expert
                    folder.mkdir(parents=True, exist_ok=True)
                    writers[seen.expert] = _Writer(folder, stack.enter_context(TemporaryFile(dir=folder)))
                writers[seen.expert].add(seen)
        if not writers:
            raise DataError(f"no features in {', '.join(sources)}.")
        return {name: writer.finish() for name, writer in writers.items()}


class _Writer:
    """Collects the vectors of an expert in an unnamed temporary file, on the target disk."""

    def __init__(self, folder: Path, file: IO[bytes]) -> None:
        self.folder, self.file = folder, file
        self.videos: dict[str, int] = {}
        self.times: list[np.ndarray] = []
        self.width, self.first = 0, ""
        self.kind: np.dtype[Any] = np.dtype(np.float32)

    def add(self, seen: Seen) -> None:
        vectors = seen.vectors
        if seen.video in self.videos:
            raise DataError(
                f"{seen.place}: expert {seen.expert!r} has video {seen.video!r} twice. Give each source only once."
            )
        if not len(vectors):
            self.videos[seen.video] = 0
            return
        if not self.width:
            self.width, self.first = vectors.shape[1], seen.video
            self.kind = np.dtype(np.float16 if vectors.dtype == np.float16 else np.float32)
        if vectors.shape[1] != self.width:
            raise DataError(
                f"{seen.place}: expert {seen.expert!r} has vectors of {vectors.shape[1]:,} values for {seen.video!r}, "
                f"but of {self.width:,} for {self.first!r}. Use features from a single extraction."
            )
        if not np.isfinite(vectors).all():
            raise DataError(
                f"{seen.place}: expert {seen.expert!r} has NaN or infinity in the vectors of {seen.video!r}."
            )
        self.videos[seen.video] = len(vectors)
        self.file.write(np.ascontiguousarray(vectors, self.kind).data)
        self.times.append(np.full(len(vectors), -1.0) if seen.times is None else seen.times)

    def finish(self) -> int:
        self.file.flush()
        shape = sum(self.videos.values()), max(1, self.width)
        vectors = np.memmap(self.file, self.kind, "r", shape=shape) if shape[0] else np.zeros(shape, self.kind)
        with atomic_write(self.folder / FEATURES) as aside, aside.open("wb") as target:
            np.save(target, vectors)
        write_text(self.folder / VIDEOS, "".join(f"{name} {count}\n" for name, count in self.videos.items()))
        times = np.concatenate(self.times) if self.times else np.zeros(0)
        (self.folder / TIMES).unlink(missing_ok=True)
        if (times >= 0).any():
            with atomic_write(self.folder / TIMES) as aside, aside.open("wb") as target:
                np.save(target, times.astype(np.float32))
        return sum(count > 0 for count in self.videos.values())


def _read(source: str) -> Iterator[Seen]:
    name, equals, text = source.partition("=")
    if not (equals and text):
        folder = user_path(source)
        if next(folder.rglob("*.h5"), None) is None:
            raise DataError(
                f"{source}: neither EXPERT=PATH nor a folder with .h5 files. Name the expert of a pickle, or of a "
                "folder with one file per video: face=DIR/face.pickle."
            )
        yield from _of_h5(folder)
        return
    try:
        check_name(name)
    except ValueError as error:
        raise DataError(f"{source}: expert {name!r} must be a valid folder name: {error}.") from error
    path = user_path(text)
    if path.is_dir():
        yield from _of_folder(name, path)
    elif path.suffix in (".pickle", ".pkl"):
        yield from _of_pickle(name, path)
    else:
        what = "no such file" if not path.exists() else "neither a folder nor a pickle"
        raise DataError(f"{source}: {what}. Known: .pickle, .pkl, or a folder with one .npy or .npz per video.")


def _of_pickle(expert: str, path: Path) -> Iterator[Seen]:
    """Read CE's pickle: a dict from video to a vector (D) or vectors (T, D); NaN if the expert detected nothing."""
    try:
        with path.open("rb") as file:
            content = _Arrays(file, encoding="latin1").load()
    except Exception as error:  # of bytes that are no pickle, its reader raises whatever it meets
        raise DataError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}; CE's features must be a dict from video to array.")
    for video, value in content.items():
        array = np.asarray(value)
        number = array.dtype.kind in "fiu"
        single = number and array.ndim == 1 and array.size == 1
        missing = value is None or (number and array.ndim == 0) or (single and not np.isfinite(array).all())
        yield _seen(expert, str(video), np.zeros((0, 1), np.float32) if missing else array, None, str(path))


def _of_folder(expert: str, folder: Path) -> Iterator[Seen]:
    """Read one file per video: .npy (D) or (T, D), or .npz with `features` and optional `times` (T) or (T, 2)."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz"))
    if not files:
        raise DataError(f"{folder}: no .npy or .npz file.")
    for path in files:
        try:
            with path.open("rb") as file:
                content = np.load(file, allow_pickle=False)
                whole = content if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
        except (OSError, EOFError, BadZipFile) as error:
            raise DataError(f"{path} cannot be read: {error}.") from error
        except ValueError as error:  # NumPy's words advise to run the file's pickle
            raise DataError(f"{path} cannot be read: it is not a NumPy file of numbers.") from error
        if isinstance(whole, dict) and "features" not in whole:
            raise DataError(f"{path} has no array 'features'; its arrays: {', '.join(whole) or 'none'}.")
        vectors, times = (whole["features"], whole.get("times")) if isinstance(whole, dict) else (whole, None)
        yield _seen(expert, path.stem, vectors, times, str(path))


def _of_h5(folder: Path) -> Iterator[Seen]:
    """Read MMT's files, one per video: `features.<expert>` (T, D), and `features_t.<expert>` (T, 2) in seconds."""
    optional_dependencies.require("reading MMT's h5 files", "h5py")
    import h5py

    for path in sorted(folder.rglob("*.h5")):
        try:
            with h5py.File(path, "r") as file:
                names = [name.removeprefix("features.") for name in file if name.startswith("features.")]
                arrays = {name: np.asarray(file[f"features.{name}"][()]) for name in names}
                times = {
                    name: np.asarray(file[f"features_t.{name}"][()]) for name in TIMED if f"features_t.{name}" in file
                }
        except (OSError, KeyError, TypeError) as error:
            raise DataError(f"{path} cannot be read: {error}.") from error
        for name, vectors in arrays.items():
            seconds = times.get(name)
            if name in SECONDS and vectors.ndim == 2:
                seconds = np.arange(len(vectors)) * SECONDS[name]
            yield _seen(name, path.stem, vectors, seconds, str(path))


def _seen(expert: str, video: str, vectors: np.ndarray, times: np.ndarray | None, place: str) -> Seen:
    """Check and normalise the vectors of a video: vectors (T, D); times (T), the middle of each span."""
    if vectors.ndim == 1 and vectors.size:
        vectors = vectors[None]
    if vectors.size == 0 or (np.issubdtype(vectors.dtype, np.floating) and np.isnan(vectors).all()):
        return Seen(expert, video, np.zeros((0, 1), np.float32), None, place)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number):
        what = f"{vectors.dtype} {vectors.shape}"
        raise DataError(f"{place}: expert {expert!r} has {what} for {video!r}; expected numbers (D) or (T, D).")
    if times is not None:
        times = np.asarray(times, np.float64)
        times = np.where((times < 0).any(-1), -1.0, times.mean(-1)) if times.ndim == 2 else times
        if times.shape != (len(vectors),):
            raise DataError(f"{place}: {video!r} has {len(vectors)} vectors, but times of shape {times.shape}.")
        times = np.where(np.isfinite(times), times, -1.0)
    return Seen(expert, video, vectors, times, place)
