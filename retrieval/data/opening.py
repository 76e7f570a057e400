"""Open data sets as images or as features, with one interface; the files under the root determine the format."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.settings.components import PartRead
from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import precomp, shapes
from goalgrid.retrieval.data.annotations import Annotated
from goalgrid.retrieval.data.content import check_form, checked_root, package
from goalgrid.retrieval.data.forms import form_of
from goalgrid.retrieval.data.images import ImageFiles
from goalgrid.retrieval.splits.pairs import Pairs, Split


def load(
    name: str,
    root: Path | None,
    view: View | None,
    *,
    reads: tuple[PartRead, ...] = (),
    workers: int = 1,
    keep: bool = True,
    pinned: bool = False,
    repeats: tuple[tuple[str, tuple[int, ...]], ...] | None = None,
    columns: Columns = (),
    copies: Path | None = None,
) -> Pairs:
    """Open a data set as images under this view, as precomputed features, or in the form of a component.

    Args:
        root: the folder of precomputed features or of the annotations; features may also be in `precomp/` below it.
        view: how images are cropped and resized; None for precomputed features.
        reads: the data that a component reads; empty for images and features.
        workers: number of threads that decode raw images.
        keep: cache decoded images in memory for all epochs, if there are few.
        pinned: use pinned memory for batches of images, for asynchronous copies to a GPU.
        repeats: repetitions of feature rows, as in `Content`; if None, the arrays are read to find them if needed.
        columns: the user's choice of columns of caption tables.
        copies: folder for copies of images embedded in tables.

    Raises:
        UserError: the data are missing, or not in a form that the model reads.
    """
    test_splits = catalog.described(name).test_splits
    check_form(name, root, view, reads)
    if view is None:
        folder = checked_root(name, root)
        if reads:
            return form_of(reads).load(folder, test_splits, reads)
        return precomp.load(
            package(name, folder), test_splits=test_splits, repeats=None if repeats is None else dict(repeats)
        )
    if catalog.described(name).embedded:
        return shapes.load(view)
    return Pairs(*(
        Split(
            ImageFiles(listing.images, view, workers=workers, keep=keep, pinned=pinned),
            listing.captions,
            listing.image_of_text,
            listing.ids,
            listing.values,
        )
        for listing in Annotated.of(name, checked_root(name, root), columns, copies).listings.values()
    ))  # fmt: skip


@lru_cache(maxsize=4)
def opened(name: str, root: Path | None, view: View | None, fingerprint: str, **options: Any) -> Pairs:
    """Call `load` and keep the data set open for further trials, as long as its fingerprint is unchanged."""
    return load(name, root, view, **options)
