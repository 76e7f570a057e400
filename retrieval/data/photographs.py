"""Images for figures: the picture file of an image of a split, its names, and the boxes of its regions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from goalgrid.grid.columns import Columns
from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.groups import grouped
from goalgrid.grid.settings.image_views import View
from goalgrid.grid.store.files import readable_text
from goalgrid.retrieval.data import opening, precomp
from goalgrid.retrieval.data.annotations import Annotated
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import pixels_of
from goalgrid.retrieval.data.picture_files import opened
from goalgrid.retrieval.data.precomp import Features
from goalgrid.retrieval.splits.pairs import DataError, Images, Split
from goalgrid.retrieval.splits.problems import array_of
from goalgrid.retrieval.words.splitting import words

SIDE = 320
"""Longer side of a displayed image, in pixels."""
BOXES = "left, top, right and bottom of each region, as shares of the picture's width and height from 0 to 1"


@dataclass(frozen=True, eq=False)
class Photograph:
    """An image for display in figures.

    Args:
        name: file name of its picture if there is one, else its id, else its row.
        picture: pixels; None if there is no picture of it on this machine.
        boxes: left, top, right, bottom of its regions, as shares of the picture's sides; None if unknown.
    """

    name: str
    captions: tuple[str, ...]
    picture: UInt8[np.ndarray, "h w 3"] | None
    boxes: Float[np.ndarray, "n 4"] | None


class Photographs:
    """The images of a test split, with their picture files.

    Args:
        dataset: name of the data set.
        root: its folder; None for an embedded data set.
        view: how the network crops and resizes pictures; None if it reads features.
        regions: number of vectors per image in the model.
        columns, copies: options for caption tables, see `opening.load`.
    """

    def __init__(
        self,
        split: Split,
        dataset: str,
        root: Path | None,
        view: View | None,
        regions: int,
        columns: Columns = (),
        copies: Path | None = None,
    ) -> None:
        self.split, self.dataset, self.root, self.view, self.regions = split, dataset, root, view, regions
        self.files = _files(split, dataset, root, columns, copies)
        self.ids = _ids(split)

    def find(self, name: str) -> int:
        """Return the row of an image, given its file name (with or without extension), id or row.

        Raises DataError if there is no such image.
        """
        rows = self.names()
        if name in rows:
            return rows[name]
        hint = f"The test split of {self.dataset!r} has {len(self.split.images):,} images."
        raise DataError(unknown("image", name, list(rows), hint=hint))

    def names(self) -> dict[str, int]:
        """Return a mapping from all names of all images to their rows."""
        if self.files or self.ids:
            named = dict(zip(self.ids, range(len(self.ids)), strict=True))
            files = {Path(file.name).stem: row for row, file in self.files.items()}
            return named | files | {file.name: row for row, file in self.files.items()}
        return {str(row): row for row in range(len(self.split.images))}

    def of(self, row: int) -> Photograph:
        """Return the image in this row; raises DataError if its picture or the file of boxes is invalid."""
        file = self.files.get(row)
        name = file.name if file else self.ids[row] if self.ids else str(row)
        captions = tuple(self.split.captions[place] for place in np.flatnonzero(self.split.image_of_text == row))
        return Photograph(name, captions, self._picture(row, file), self._boxes(row))

    def _picture(self, row: int, file: FileSlice | None) -> np.ndarray | None:
        """Return the part of the picture that the network sees; the whole picture if the network reads features."""
        if file and self.view:
            return pixels_of(opened(file), replace(self.view, size=SIDE))
        if file:
            picture = opened(file)
            picture.thumbnail((SIDE, SIDE))
            return np.array(picture)
        if self.view and self.root is None:  # an embedded data set, of which the split may have features alone
            return self._embedded.gather(np.array([row]))[0].permute(1, 2, 0).numpy()
        return None

    @cached_property
    def _embedded(self) -> Images:
        return opening.load(self.dataset, None, self.view).test.images

    def _boxes(self, row: int) -> np.ndarray | None:
        """Return the grid cells of a network on pixels; for features, the boxes in the file next to them."""
        if self.view:
            return cells(self.regions)
        path, images = _beside(self.split, "boxes.npy"), self.split.images
        if path is None or not path.exists():
            return None
        assert isinstance(images, Features)
        try:
            boxes = array_of(path)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {path}: {error}. It should contain {BOXES}.") from error
        shape = (len(images.array), self.regions, 4)
        if boxes.shape != shape or boxes.dtype not in precomp.FLOATS:
            actual = f"{boxes.dtype} {boxes.shape}"
            raise DataError(f"{path}: expected floats of shape {shape}, found {actual}. It should contain {BOXES}.")
        left, top, right, bottom = (boxes[..., side] for side in range(4))
        wrong = ~((left >= 0) & (left < right) & (right <= 1) & (top >= 0) & (top < bottom) & (bottom <= 1))
        if wrong.any():
            place, region = (int(index) for index in np.argwhere(wrong)[0])
            box = boxes[place, region].tolist()
            raise DataError(f"{path}: box {region} of row {place} is {box}. It should contain {BOXES}.")
        return np.asarray(boxes[images.rows[row]])


def cells(count: int) -> Float[np.ndarray, "n 4"] | None:
    """Return the boxes of the cells of a square grid, row by row; None if `count` is not a square number.

    >>> cells(4).tolist()[1]
    [0.5, 0.0, 1.0, 0.5]
    """
    side = round(count**0.5)
    if side * side != count:
        return None
    edges = np.linspace(0, 1, side + 1)
    return np.array([(edges[x], edges[y], edges[x + 1], edges[y + 1]) for y in range(side) for x in range(side)])


def _beside(split: Split, ending: str) -> Path | None:
    """Return the path of a file next to the features of a split; None if the split has pixels."""
    images = split.images
    return images.path.with_name(images.path.name.replace("ims.npy", ending)) if isinstance(images, Features) else None


def _ids(split: Split) -> list[str]:
    """Read the ids next to the features, one per image; empty if there are none."""
    path = _beside(split, "ids.txt")
    ids = list(dict.fromkeys(readable_text(path).split())) if path else []
    return ids if len(ids) == len(split.images) else []


def _files(
    split: Split, dataset: str, root: Path | None, columns: Columns, copies: Path | None
) -> dict[int, FileSlice]:
    """Return the picture file of each row, matched by captions to the annotated images; empty without annotations."""
    if root is None:
        return {}
    try:
        listing = Annotated.of(dataset, root, columns, copies).listings["test"]
    except UserError:  # features need no annotations
        return {}
    listing_rows = _by_captions(listing.captions, listing.image_of_text)
    split_rows = _by_captions(split.captions, split.image_of_text)
    return {row: listing.images[listing_rows[key]] for key, row in split_rows.items() if key in listing_rows}


def _by_captions(captions: Sequence[str], owners: Int[np.ndarray, " t"]) -> dict[tuple[tuple[str, ...], ...], int]:
    """Map the words of each image's captions to its row."""
    texts = grouped((row, tuple(words(caption))) for caption, row in zip(captions, owners.tolist(), strict=True))
    return {tuple(sorted(read)): row for row, read in texts.items()}
