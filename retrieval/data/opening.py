"""Data sets behind one interface: opened as images or as features; the format is told by what lies under the root."""

from functools import lru_cache
from pathlib import Path

from grid import catalog, protocols
from grid.errors import UserError
from grid.settings.experts import ExpertRead
from grid.settings.image_views import View
from retrieval.data import annotations, precomp, shapes
from retrieval.data.content import checked_root, package
from retrieval.data.images import ImageFiles
from retrieval.splits.pairs import DataError, Pairs, Split
from retrieval.video import expert_files, videos


def load(
    name: str,
    root: Path | None,
    view: View | None,
    *,
    reads: tuple[ExpertRead, ...] = (),
    workers: int = 2,
    keep: bool = True,
) -> Pairs:
    """Open a data set as images under this view, or as features of images or of videos.

    Args:
        root: the folder of precomputed features or of the annotations; features may stand in `precomp/` below it.
        view: None: precomputed features.
        reads: of videos, the features that are read; empty: the data are images.
        workers: threads that decode raw images.
        keep: hold decoded images in memory where they are few, for all epochs.

    Raises:
        UserError: there is no root, nothing readable there, or captions and images do not match.
    """
    known = catalog.described(name)
    if known.embedded:
        if view is None:
            raise UserError(f"data set {name!r} has images only; choose a recipe that reads them, e.g. cnn-bow.")
        pairs = shapes.load(view)
    elif view is None:
        folder = checked_root(name, root)
        if reads:
            pairs = videos.load(folder, known.test_splits, reads)
        elif expert_files.find(folder):
            raise DataError(
                f"data set {name!r} has videos, as features of experts, and this recipe reads images: take a recipe "
                "for videos, e.g. ce or mmt."
            )
        else:
            pairs = precomp.load(package(name, folder), test_splits=known.test_splits)
    else:
        pairs = Pairs(*(
            Split(ImageFiles(listing.files, view, workers=workers, keep=keep), listing.captions, listing.image_of_text)
            for listing in annotations.load(name, checked_root(name, root))
        ))  # fmt: skip
    pairs.check(repr(name))
    return pairs


@lru_cache(maxsize=4)
def opened(
    name: str,
    root: Path | None,
    view: View | None,
    fingerprint: str,
    *,
    reads: tuple[ExpertRead, ...] = (),
    workers: int,
    keep: bool,
) -> Pairs:
    """A data set as `load` opens it; while it has this fingerprint, it stays open for the next trial."""
    return load(name, root, view, reads=reads, workers=workers, keep=keep)


def check_protocol(pairs: Pairs, dataset: str, protocol: str) -> None:
    """Hold the test split against its evaluation protocol.

    Raises:
        DataError: it has fewer or more images than the protocol demands, so its numbers would not be the protocol's.
    """
    images, wanted = len(pairs.test.images), protocols.protocol(protocol).images
    if wanted is None or images == wanted:
        return
    partial, noun = catalog.dataset(dataset).partial, f"{catalog.noun(dataset)}s"
    missing = next((part.missing for part in partial if (part.split, part.images) == ("test", images)), "")
    check = f"See what is wrong with it: goalgrid data check {dataset} --root DIR"
    reason = f"What is missing: {missing}" if missing else check
    raise DataError(
        f"the test split of {dataset!r} has {images:,} {noun}; protocol {protocol!r} demands {wanted:,}. {reason}. "
        f'To evaluate on what is there, give the data a name of its own: datasets = ["my-{dataset}"] with '
        f"[data.my-{dataset}] root = ..."
    )
