"""Data sets behind one interface; the format is told by what lies under the root."""

from functools import lru_cache
from pathlib import Path

from grid import catalog
from grid.errors import UserError
from grid.settings import CnnSettings, ImageInput, LinearSettings
from retrieval.data import karpathy, precomp, shapes
from retrieval.data.pairs import DataError, Images, Pairs, Split

__all__ = ["DataError", "Images", "Pairs", "Split", "load"]


def load(name: str, root: Path | None, image: CnnSettings | LinearSettings, *, workers: int = 2) -> Pairs:
    """Open a data set in the form that this image encoder reads; kept open, so that the next trial finds it there.

    Args:
        root: the folder of precomputed features or of the annotations; features may stand in `precomp/` below it.
        workers: threads that decode raw images.

    Raises:
        UserError: there is no root, nothing readable there, or captions and images do not match.
    """
    size = image.size if isinstance(image, CnnSettings) else 0
    return _load(name, root, image.input, size, workers)


@lru_cache(maxsize=4)
def _load(name: str, root: Path | None, form: ImageInput, size: int, workers: int) -> Pairs:
    known = catalog.dataset(name) if name in catalog.names("datasets") else None
    if known and known.embedded:
        if form == "features":
            raise UserError(f"data set {name!r} has images only; choose a recipe that reads them, e.g. cnn-bow.")
        pairs = shapes.load(size=size)
    elif root is None:
        wanted = f" It needs {known.where}." if known else ""
        raise UserError(
            f"no root for data set {name!r}.{wanted} Give --root DIR, or in the grid file: [data.{name}] root = ..."
        )
    elif not root.is_dir():
        raise UserError(f"root of data set {name!r}: no folder at {root}.")
    elif form == "features":
        pairs = precomp.load(_features(name, root), test_splits=known.test_splits if known else ("test",))
    else:
        annotations = karpathy.find(root)
        if annotations is None:
            raise DataError(
                f"no dataset.json or dataset_*.json (Karpathy's layout) under {root}, the root of {name!r}."
            )
        pairs = karpathy.load(annotations, size=size, workers=workers)
    pairs.check(repr(name))
    return pairs


def _features(name: str, root: Path) -> Path:
    for folder in (root, root / "precomp", root / f"{name}_precomp"):
        if (folder / "train_ims.npy").exists():
            return folder
    raise DataError(
        f"no train_ims.npy under {root}, the root of {name!r}: this recipe reads precomputed features. "
        "For raw images choose a cnn-* recipe: --set 'recipes=[\"cnn-bow\"]'."
    )
