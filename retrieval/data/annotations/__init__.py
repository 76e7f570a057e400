"""Raw images with captions. The files under the root determine the annotation format. One module per format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from goalgrid.grid import catalog
from goalgrid.grid.columns import EXTRA, Columns
from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.annotations import (
    caption_files,
    coco,
    csv_captions,
    csv_table,
    flickr_tokens,
    imagefolder,
    json_lines,
    karpathy,
    parquet,
    tables,
    vse_infinity,
    webdataset,
    xvlm_json,
)
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, located
from goalgrid.retrieval.data.annotations.tables import TableFormat
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.equality import doubles, overlaps
from goalgrid.retrieval.splits.pairs import DataError, Listing
from goalgrid.retrieval.splits.problems import Problem, check_command, faults_of_captions, refuse


class Format(NamedTuple):
    """An annotation format: functions to find and to read the annotations.

    Args:
        find: takes the data set's name and the root; returns the annotation file or folder, or None.
        entries: takes that path, the root, the possible names of the test split and a list to append problems to;
            returns the annotated images.
        tree: example of the folder layout, for users.
        alike: name patterns of annotation files; if several files of a folder match, only the first is read.
    """

    find: Callable[[str, Path], Path | None]
    entries: Callable[[Path, Path, Sequence[str], list[Problem]], list[Annotation]]
    tree: str = ""
    alike: tuple[str, ...] = ()


FORMATS: dict[str, Format | TableFormat] = {
    "Karpathy's JSON": Format(karpathy.find, karpathy.entries, karpathy.TREE, ("dataset.json", "dataset_*.json")),
    "COCO captions, a file a split": Format(coco.find_splits, coco.splits, coco.SPLITS_TREE),
    "COCO captions with id files": Format(coco.find_official, coco.official),
    "captions by id, VSE-infinity": Format(vse_infinity.find, vse_infinity.entries),
    "COCO captions in one file": Format(coco.find_one_file, coco.one_file, coco.ONE_FILE_TREE),
    "X-VLM's JSON": Format(xvlm_json.find, xvlm_json.entries, xvlm_json.TREE, ("*_test.json",)),
    "CSV": Format(csv_captions.find_with_splits, csv_captions.entries, csv_captions.TREE, csv_captions.NAMES),
    "CSV, split by a hash of the images' names": Format(
        csv_captions.find, csv_captions.entries, alike=csv_captions.NAMES
    ),
    "Flickr's token file": Format(flickr_tokens.find, flickr_tokens.entries, flickr_tokens.TREE, flickr_tokens.NAMES),
    "imagefolder": imagefolder.FORMAT,
    "JSON lines": json_lines.FORMAT,
    "CSV with other columns": csv_table.FORMAT,
    "webdataset tars": webdataset.FORMAT,
    "parquet": parquet.FORMAT,
    "pictures with caption files": caption_files.FORMAT,
}
"""Annotation formats by title, in order of precedence: the first one found is read."""
EXPECTED = (
    "captions.csv (a header line image,caption, then one row per caption), "
    "dataset.json or dataset_*.json (Karpathy), annotations/captions_train2014.json with id files or "
    "annotations/captions_{train,val,test}.json or captions.json (COCO), id_mapping.json, "
    "NAME_{train,val,test}.json (X-VLM), *.token.txt, metadata.csv or metadata.jsonl (imagefolder), *.jsonl, any *.csv "
    "with a column of images and one of captions, *.tar (webdataset), *.parquet, or x.jpg with x.txt"
)
READ_OTHERWISE = 'To read other columns, name them: [data.{name}] columns = {{ image = "...", captions = "..." }}'
ENDINGS = (".json", ".txt", ".csv", ".npy", ".token", ".jsonl", ".ndjson", ".tsv")
"""Extensions of files that may contain annotations."""


def find(name: str, root: Path, columns: Columns = ()) -> tuple[str, Path] | None:
    """Find the annotations under this root; return their format and their file or folder, or None.

    If `columns` are given, only table formats are considered.
    """
    forms = _tables() if columns else FORMATS
    return next(((title, path) for title, form in forms.items() if (path := _place(form, name, root, columns))), None)


def _tables() -> dict[str, TableFormat]:
    return {title: form for title, form in FORMATS.items() if isinstance(form, TableFormat)}


def _place(form: Format | TableFormat, name: str, root: Path, columns: Columns) -> Path | None:
    """Return the file or folder with annotations of this format; for a table in several files, their folder."""
    if not isinstance(form, TableFormat):
        return form.find(name, root)
    paths = tables.files(form, root, columns)
    if len(paths) < 2:
        return paths[0] if paths else None
    folders = {path.parent for path in paths}
    return folders.pop() if len(folders) == 1 else root


def begun(root: Path, columns: Columns = ()) -> Problem | None:
    """Report what is missing under a root without complete annotations, judging by the files that are there."""
    for lacks in (coco.lacks_test, xvlm_json.lacks_test, vse_infinity.lacks_mapping):
        if not columns and (problem := lacks(root)):
            return problem
    return tables.lacking(_tables().values(), root, columns) or webdataset.compressed(root)


def files(title: str, path: Path, root: Path, columns: Columns = ()) -> list[Path]:
    """List all files, except images, that may be read for the annotations of this format at this path."""
    form = FORMATS[title]
    of_table = tables.files(form, root, columns) if isinstance(form, TableFormat) else []
    folders = [root, root / "precomp", path if path.is_dir() else path.parent, *filter(Path.is_dir, of_table)]
    beside = [file for folder in dict.fromkeys(folders) for file in sorted(folder.glob("*")) if file.suffix in ENDINGS]
    return [*dict.fromkeys([*beside, *filter(Path.is_file, of_table)])]


@dataclass(frozen=True)
class Annotated:
    """The annotated images under a root, by split.

    Args:
        name: name of the data set.
        title: annotation format, a key of `FORMATS`.
        files: each entry with its image file, ordered by split and entry; entries without a file are left out.
        problems: problems of the annotations, and images that are missing or outside the root.
        columns: the table columns that were read (tables only).
        summary: one-line summary of what was read (tables only).
        extra: names of the columns that an objective reads, with one number per caption.
    """

    name: str
    root: Path
    title: str
    path: Path
    by_split: dict[str, list[Annotation]]
    files: list[tuple[Annotation, FileSlice]]
    problems: list[Problem]
    columns: Columns = ()
    summary: str = ""
    extra: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, root: Path, columns: Columns = (), copies: Path | None = None) -> "Annotated | None":
        """Read the annotations under the root and find the images; return None if there are no annotations.

        Args:
            columns: the user's choice of table columns.
            copies: folder for copies of images embedded in tables; if None, embedded images are not read.
        """
        if not (source := find(name, root, columns)):
            return None
        (title, path), known, problems = source, catalog.described(name), list[Problem]()
        by_split: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
        form = FORMATS[title]
        if isinstance(form, TableFormat):
            table = tables.read(form, path, root, columns, copies, problems)
        else:
            table = tables.TableRead(form.entries(path, root, known.test_splits, problems))
        for entry in table.entries:
            first = slice(known.captions_per_image)  # where protocols use only the first
            captions, ids, values = entry.captions[first], entry.ids[first], entry.values[first]
            by_split[entry.split].append(replace(entry, captions=captions, ids=ids, values=values))
        files = located([entry for entries in by_split.values() for entry in entries], root, problems)
        return cls(
            name,
            root,
            title,
            path,
            by_split,
            files,
            problems,
            table.columns,
            table.summary,
            dict(columns).get(EXTRA, ()),
        )

    @classmethod
    def of(cls, name: str, root: Path, columns: Columns = (), copies: Path | None = None) -> "Annotated":
        """Read annotations as `read` does.

        Raises DataError if there are none, if they are unreadable, or if images are missing or outside the root.
        """
        if not (annotated := cls.read(name, root, columns, copies)):
            here = begun(root, columns)
            raise DataError(str(here or f"no annotations under {root}, the root of {name!r}: expected {EXPECTED}."))
        refuse(annotated.problems, str(annotated.path), check_command(name, root.absolute()))
        return annotated

    @property
    def listings(self) -> dict[str, Listing[list[FileSlice]]]:
        """The image files and captions of each split, in the order in which training reads them."""
        listings = dict[str, Listing[list[FileSlice]]]()
        for split, entries in self.by_split.items():
            files = [file for entry, file in self.files if entry.split == split]
            captions, ids = [entry.captions for entry in entries], [entry.ids for entry in entries]
            rows = [values for entry in entries for values in entry.values]
            columns = {name: np.array([row[at] for row in rows], np.float32) for at, name in enumerate(self.extra)}
            listings[split] = replace(Listing.of(files, captions, ids), values=columns)
        return listings

    def notes(self) -> list[Problem]:
        """Report what was read, which captions are empty or not text, and which annotations were ignored."""
        notes = (
            [Problem(str(self.path), self.summary, READ_OTHERWISE.format(name=self.name), "remark")]
            if self.summary
            else []
        )
        for split, entries in self.by_split.items():
            captions = [caption for entry in entries for caption in entry.captions]
            notes += faults_of_captions(captions, f"captions of the {split} split of {self.path}")
        return [*notes, *self._unread()]

    def _unread(self) -> list[Problem]:
        """Report annotations under the root that are ignored because others take precedence."""
        form = FORMATS[self.title]
        patterns = () if isinstance(form, TableFormat) else form.alike
        alike = {place: "" for pattern in patterns for place in sorted(self.path.parent.glob(pattern))}
        places = ((title, _place(other, self.name, self.root, ())) for title, other in FORMATS.items())
        others = {place: f"{title} " for title, place in places if place and title != self.title}
        fix = "To read it, move it to a separate root."
        return [
            Problem(str(place), f"{title}is ignored: {self.path} is read instead", fix, "remark")
            for place, title in (alike | others).items()
            if place != self.path
        ]

    def equal(self, marks: Mapping[str, Sequence[str]]) -> list[Problem]:
        """Report images that occur in two splits, or twice in one split, even under different names.

        `marks`: by split, the SHA-256 of each image file of `listings`; an empty string if it is unknown.
        """
        listings = self.listings
        names = {split: [entry.names[0] for entry, _ in self.files if entry.split == split] for split in listings}
        sizes = {split: (len(listing.images), len(listing.captions)) for split, listing in listings.items()}
        shared = overlaps(marks, str(self.path), "image", names, published=catalog.published(self.name, sizes))
        problems = [*shared.values()]
        for split, listing in listings.items():
            place, keys = f"{split} split of {self.path}", list(marks[split])
            if again := _same_files(listing.images, keys):
                what = f"{counted(len(again), 'image')} listed more than once; the first is {names[split][again[0]]}"
                problems.append(Problem(place, what, "List each image once, with all its captions.", "note"))
            for row in again:
                keys[row] = ""
            problems += doubles(keys, names[split], place, "image")
        return problems


def _same_files(files: Sequence[FileSlice], marks: Sequence[str]) -> list[int]:
    """Return the rows that refer to the same file as an earlier row; only files with equal marks are compared."""
    again = []
    for mark, rows in grouped((mark, row) for row, mark in enumerate(marks)).items():
        if mark and rows[1:]:
            by_file = grouped((files[row].resolved(), row) for row in rows)
            again += [row for same in by_file.values() for row in same[1:]]
    return sorted(again)
