"""Data sets behind one interface, opened as images or as features; the files under the root determine the format."""

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
    """Open a data set as images under this view, as features of images, or in the form of a component; or UserError.

    Args:
        root: the folder of precomputed features or of the annotations; features may be in `precomp/` below it.
        view: None: precomputed features.
        reads: what is read of data in the form of a component; empty: the data are images.
        workers: threads that decode raw images.
        keep: hold decoded images in memory for all epochs, if they are few.
        pinned: keep batches of pictures in memory from which a GPU copies while the host goes on.
        repeats: of features, as of their `Content`; None: arrays are read for it if nothing else tells.
        columns: of tables of captions, as the user names them.
        copies: folder for copies of pictures that lie inside tables.
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
    """Open a data set by `load`; while it has this fingerprint, it stays open for the next trial."""
    return load(name, root, view, **options)
