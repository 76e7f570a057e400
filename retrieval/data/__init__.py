"""Data sets behind one interface; the format is told by what lies under the root."""

from functools import lru_cache, partial
from pathlib import Path

from PIL import Image

from grid import catalog
from grid.encoders import BackboneSettings, CnnSettings, FeatureSettings
from grid.errors import UserError
from retrieval.data import karpathy, precomp, shapes
from retrieval.data.images import ImageFiles, View
from retrieval.data.pairs import DataError, Images, Listing, Pairs, Split

__all__ = ["DataError", "Images", "Listing", "Pairs", "Split", "View", "backbone_view", "load", "view_of"]


def view_of(image: CnnSettings | FeatureSettings | BackboneSettings) -> View | None:
    """The squares that this encoder sees; None where it reads features. The small network mirrors by itself."""
    if isinstance(image, BackboneSettings):
        return backbone_view(image)
    if isinstance(image, CnnSettings):
        return View(image.size, resampling=Image.Resampling.BICUBIC)
    return None


def backbone_view(image: BackboneSettings) -> View:
    """The squares that a pretrained network sees."""
    return View(image.size, image.framing, image.augmentation, image.flip)


def load(name: str, root: Path | None, view: View | None, *, workers: int = 2, keep: bool = True) -> Pairs:
    """Open a data set as images under this view, or as features; kept open, so that the next trial finds it there.

    Args:
        root: the folder of precomputed features or of the annotations; features may stand in `precomp/` below it.
        view: None: precomputed features.
        workers: threads that decode raw images.
        keep: hold decoded images in memory where they are few, for all epochs.

    Raises:
        UserError: there is no root, nothing readable there, or captions and images do not match.
    """
    return _load(name, root, view, workers, keep)


@lru_cache(maxsize=4)
def _load(name: str, root: Path | None, view: View | None, workers: int, keep: bool) -> Pairs:
    known = catalog.dataset(name) if name in catalog.names("datasets") else None
    if known and known.embedded:
        if view is None:
            raise UserError(f"data set {name!r} has images only; choose a recipe that reads them, e.g. cnn-bow.")
        pairs = shapes.load(view)
    elif root is None:
        wanted = f" It needs {known.where}." if known else ""
        raise UserError(
            f"no root for data set {name!r}.{wanted} Give --root DIR, or in the grid file: [data.{name}] root = ..."
        )
    elif not root.is_dir():
        raise UserError(f"root of data set {name!r}: no folder at {root}.")
    elif view is None:
        pairs = precomp.load(_features(name, root), test_splits=known.test_splits if known else ("test",))
    else:
        files = partial(ImageFiles, view=view, workers=workers, keep=keep)
        pairs = Pairs(*(listing.split(files) for listing in _annotated(name, root)))
    pairs.check(repr(name))
    return pairs


def _annotated(name: str, root: Path) -> tuple[Listing, Listing, Listing]:
    annotations = karpathy.find(root)
    if annotations is None:
        raise DataError(f"no dataset.json or dataset_*.json (Karpathy's layout) under {root}, the root of {name!r}.")
    return karpathy.load(annotations)


def _features(name: str, root: Path) -> Path:
    for folder in (root, root / "precomp", root / f"{name}_precomp"):
        if (folder / "train_ims.npy").exists():
            return folder
    raise DataError(
        f"no train_ims.npy under {root}, the root of {name!r}: this recipe reads precomputed features. "
        "For raw images choose a cnn-* recipe: --set 'recipes=[\"cnn-bow\"]'."
    )
