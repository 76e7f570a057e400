"""Tables of captions, with one row per caption or per image: detect the columns, and read the images with captions.

CSV, JSON lines, parquet and the samples of tars are such tables. Columns are recognised by their names or chosen by the
user; if the names are ambiguous, an error asks the user to choose.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from goalgrid.grid.columns import EXTRA, Columns, to_toml
from goalgrid.grid.errors import counted, nearest
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, below
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.problems import NEAR, Problem, no_text

USUAL = {"image": ("image",), "captions": ("caption", "captions"), "split": ("split",)}
"""Standard column names by role."""
OTHERS = {
    "image": (*NEAR["image"], "photo", "picture", "jpg", "jpeg", "png", "webp"),
    "captions": (*NEAR["caption"], "texts", "sentences", "descriptions", "comments", "txt"),
    "split": (),
}
"""Other common column names by role, tried if no standard name is found."""
NUMBERED = re.compile(r"(.*?)[ _-]?\d+")
"""Name of one of several numbered caption columns, e.g. `caption_2`."""
IN_NAME = re.compile(r"(?:^|[^a-z])(train|training|val|valid|validation|dev|test|testing)(?![a-z])", re.IGNORECASE)
"""Matches the name of a split in a file or folder name."""
SPLIT_NAMES = {"train": "train", "training": "train", "restval": "train"}
SPLIT_NAMES |= {"val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test", "testing": "test"}
ASK = 'Choose one: [data.NAME] columns = {{ {role} = "{example}" }}, or --columns {role}={example}.'
TEXTS = ("raw", "caption", "text", "sentence")
"""Keys under which a caption that is an object may store its text."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        place: location of the row, for messages.
        split: split according to the name of its file or folder; empty if the name tells none.
        image: the image, if it is embedded in the table; its name is in the image column or `FileSlice.label`.
        folder: a folder below the root to which image names may be relative.
    """

    place: str
    values: Mapping[str, Any]
    split: str = ""
    image: FileSlice | None = None
    folder: str = ""


@dataclass(frozen=True)
class Table:
    """A table as read from the files of a format.

    Args:
        columns: all column names, in file order.
        own_images: whether every row contains its image, so that no column needs to name it.
        notes: further remarks for the one-line summary.
    """

    columns: Sequence[str]
    rows: Iterable[Row]
    own_images: bool = False
    notes: Sequence[str] = ()


class TableFormat(NamedTuple):
    """A table format: functions to find and read its files.

    Args:
        here: returns all files under a root that may be such tables.
        header: returns the column names of a file, or None if it is unreadable.
        table: takes the files, the root, the user's choice of columns, the folder for copies of embedded images (if
            None, they are not read) and a list to append problems to; returns the table.
        noun: what to call a file in messages.
        tree: example of the folder layout, for users.
        shards: whether several files that are not named after splits form one table.
    """

    here: Callable[[Path, Columns], list[Path]]
    header: Callable[[Path], Sequence[str] | None]
    table: Callable[[Sequence[Path], Path, Columns, Path | None, list[Problem]], Table]
    noun: str
    tree: str = ""
    shards: bool = False


@dataclass
class TableRead:
    """Result of reading a table: its entries, the columns used, and a one-line summary."""

    entries: list[Annotation]
    columns: Columns = ()
    summary: str = ""


def split_in(path: Path, root: Path) -> str:
    """Return the split that a file or, failing that, one of its parent folders is named after; empty if there is none.

    >>> split_in(Path("d/data/train-00000-of-00002.parquet"), Path("d"))
    'train'
    >>> split_in(Path("d/validation/a.csv"), Path("d"))
    'val'
    """
    below_root = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    for name in (below_root.stem, *(parent.name for parent in below_root.parents)):
        if match := IN_NAME.search(name):
            return SPLIT_NAMES[match[1].lower()]
    return ""


def files(form: TableFormat, root: Path, given: Columns) -> list[Path]:
    """List the files of a format that have image and caption columns; if some are named after splits, only those.

    Unreadable files are included, so that they are reported later.
    """
    here = form.here(root, given)
    of_captions = [path for path in here if _may_be(form.header(path), given)]
    if form.shards and of_captions:
        return here  # keep shards without these columns: reading them reports what is missing
    return [path for path in of_captions if split_in(path, root)] or of_captions


def _may_be(names: Sequence[str] | None, given: Columns) -> bool:
    """Return whether these columns include the ones the user chose, and candidates for the other roles."""
    if names is None:
        return True
    roles = [role for role in ("image", "captions") if role not in dict(given)]
    return {*chain(*dict(given).values())} <= {*names} and all(candidates(role, names) for role in roles)


def lacking(forms: Iterable[TableFormat], root: Path, given: Columns) -> Problem | None:
    """Report which columns the first table under the root lacks; return None if there is no table."""
    for form in forms:
        for path in form.here(root, given):
            if names := form.header(path):
                _, problems = resolved(names, given, str(path))
                return next(iter(problems), None)
    return None


def resolved(names: Sequence[str], given: Columns, place: str, *, image: bool = True) -> tuple[Columns, list[Problem]]:
    """Return the columns of a table by role, and problems with missing or ambiguous columns.

    Args:
        given: the user's choice, which takes precedence.
        image: whether a column must name the image.
    """
    columns, problems = dict[str, tuple[str, ...]](), list[Problem]()
    for role in ("image", "captions", "split"):
        if named := dict(given).get(role):
            problems += [_lacking(name, role, names, place) for name in named if name not in names]
            columns[role] = named
        elif role != "image" or image:
            possible = candidates(role, names)
            if len(possible) == 1 or (role == "captions" and _family(possible)):
                columns[role] = tuple(possible)
            elif possible:
                what = f"columns {' and '.join(map(repr, possible))} could each be the {_noun(role)} column"
                problems.append(Problem(place, what, ASK.format(role=role, example=possible[0])))
            elif role != "split":
                what = f"no {_noun(role)} column was recognised; its columns: {', '.join(map(repr, names))}"
                problems.append(Problem(place, what, ASK.format(role=role, example="COLUMN")))
    if extra := dict(given).get(EXTRA):
        if missing := [name for name in extra if name not in names]:
            known = ", ".join(map(repr, names))
            what = f"has no column {missing[0]!r}, which the objective reads; its columns: {known}"
            problems.append(Problem(place, what, "Add the column to the table, or choose another objective."))
        columns[EXTRA] = extra
    return tuple(columns.items()), problems


def candidates(role: str, names: Sequence[str]) -> list[str]:
    """Return the columns whose names suggest this role: standard names or, if there are none, other common names."""
    plain = {name: name.strip().lower() for name in names}
    for known in (USUAL[role], OTHERS[role]):
        if matching := [name for name in names if plain[name] in known]:
            return matching
    stems = {*USUAL[role], *OTHERS[role]} if role == "captions" else set[str]()
    numbered = [name for name in names if (part := NUMBERED.fullmatch(plain[name])) and part[1] in stems]
    languages = [name for name in names if any(plain[name].startswith(f"{stem}_") for stem in USUAL[role])]
    return numbered or (languages if role == "captions" else [])


def _family(names: Sequence[str]) -> bool:
    """Return whether these columns share one name and differ only in their numbers."""
    stems = {match[1] if (match := NUMBERED.fullmatch(name)) else "" for name in names}
    return len(stems) == 1 and "" not in stems


def _noun(role: str) -> str:
    return {"captions": "caption"}.get(role, role)


def _lacking(name: str, role: str, names: Sequence[str], place: str) -> Problem:
    near = f" Did you mean {close[0]!r}?" if (close := nearest(name, names)) else ""
    what = f"has no column {name!r}, chosen by columns.{role}; its columns: {', '.join(map(repr, names))}"
    return Problem(place, what, f"Choose an existing column.{near}")


def read(
    form: TableFormat, path: Path, root: Path, given: Columns, copies: Path | None, problems: list[Problem]
) -> TableRead:
    """Read the images and captions of a table; `path`: its file, or the folder that contains its files."""
    paths = files(form, root, given)
    if len(paths) > 1 and not form.shards and not all(split_in(path, root) for path in paths):
        what = f"{' and '.join(path.name for path in paths)} could each be the caption file"
        fix = "Keep only one of them, name them after splits (train.csv, val.csv, test.csv), or choose columns."
        problems.append(Problem(str(path), what, fix))
        return TableRead([])
    before = len(problems)
    table = form.table(paths, root, given, copies, problems)
    if not table.columns:
        deque(table.rows, maxlen=0)  # reports what is wrong with them
        if len(problems) == before:
            problems.append(Problem(str(path), "has no columns", "Is the file complete? Download it again."))
        return TableRead([])
    columns, faults = resolved(table.columns, given, str(path), image=not table.own_images)
    problems += faults
    if faults:
        return TableRead([], columns)
    reading = _Reading(dict(columns), root, problems)
    entries, by = reading.entries(table.rows, path)
    source = counted(len(paths), form.noun) if len(paths) > 1 else paths[0].name
    captions = [len(entry.captions) for entry in entries]
    columns = tuple((role, names) for role, names in columns if role != EXTRA)
    unusual = tuple((role, names) for role, names in columns if not {*names} <= {*USUAL[role]})
    images = f"{counted(len(entries), 'photograph')} with {_spread(captions)} from {source}"
    images += f", columns {to_toml(unusual)}" if unusual else ""
    return TableRead(entries, columns, "; ".join([images, f"split by {by}", *reading.left_out(), *table.notes]))


def _spread(captions: Sequence[int]) -> str:
    least, most = min(captions, default=0), max(captions, default=0)
    if least == most:
        return f"{counted(most, 'caption')} each"
    return f"{least} to {most} captions each ({sum(captions) / len(captions):.2f} on average)"


def _text_of(caption: Any) -> Any:
    """Return the text of a caption that is an object, as in COCO's files; return any other caption unchanged."""
    if isinstance(caption, Mapping):
        return next((caption[key] for key in TEXTS if key in caption), caption)
    return caption


def _where(name: str, row: Row) -> dict[str, Any]:
    """Return the location of a row's image, as the fields `names` and `image` of an `Annotation`."""
    return {"names": (f"{row.folder}/{name}", name) if row.folder else (name,), "image": row.image}


class _Reading:
    """Collects the rows of a table as images with captions, and counts the rows left out."""

    def __init__(self, columns: Mapping[str, tuple[str, ...]], root: Path, problems: list[Problem]) -> None:
        self.columns, self.root, self.problems = columns, root, problems
        self.silent, self.failed = list[str](), 0
        self.pairs = list[tuple[str, Row, str, tuple[float, ...]]]()
        """For each caption: the name of its image, its row, the caption, and the values of the extra columns."""

    def entries(self, rows: Iterable[Row], path: Path) -> tuple[list[Annotation], str]:
        """Return the images by split (train, val, test), in row order, and a description of how they were split."""
        for row in rows:
            self._add(row)
        self._report_repeated(path)
        splits, by = self._splits(path)
        if splits is None:
            pairs = [(name, caption) for name, _, caption, _ in self.pairs]
            rows_by_name = {name: row for name, row, *_ in self.pairs}
            values = grouped((name, of_caption) for name, *_, of_caption in self.pairs)
            listed = split_files.entries(pairs, path if path.is_file() else path / "table", self.problems)
            named = ((entry, entry.names[0]) for entry in listed)
            return [
                replace(entry, values=tuple(values[name]), **_where(name, rows_by_name[name])) for entry, name in named
            ], by
        by_split = grouped(zip(splits, self.pairs, strict=True))
        return [entry for split in SPLITS for entry in self._of_split(split, by_split.get(split, []))], by

    def _add(self, row: Row) -> None:
        if str(row.values.get("status", "success")) != "success" and "key" in row.values:
            self.failed += 1  # what img2dataset could not fetch
            return
        captions = self._captions(row)
        name = self._name(row)
        if captions and name:
            values = self._values(row, len(captions)) if EXTRA in self.columns else [()] * len(captions)
            self.pairs += [(name, row, *of_caption) for of_caption in zip(captions, values, strict=True)]
        elif not captions:
            self.silent.append(row.place)
        else:
            self.problems.append(Problem(row.place, "names no image", "Give the image's file name, or remove the row."))

    def _name(self, row: Row) -> str:
        value = row.values.get(self.columns.get("image", ("image",))[0])
        name = value.strip() if isinstance(value, str) else ""
        if row.image:
            return name or row.image.label or f"{row.image.path.name}+{row.image.offset}"
        return name

    def _captions(self, row: Row) -> list[str]:
        """Return the captions of a row; report and leave out captions that are not text."""
        texts = list[str]()
        for column in self.columns["captions"]:
            value = row.values.get(column)
            for caption in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
                text = _text_of(caption)
                if isinstance(text, str):
                    texts += [" ".join(text.splitlines())] if text.strip() else []
                elif text is not None:
                    self.problems.append(no_text(f"{row.place}: {column}", text))
        return texts

    def _values(self, row: Row, captions: int) -> list[tuple[float, ...]]:
        """Return the values of the extra columns for each caption of a row; a single number applies to all captions."""
        columns = []
        for name in self.columns[EXTRA]:
            value = row.values.get(name)
            listed = value if isinstance(value, list) else [value] * captions
            if len(listed) != captions:
                what = f"column {name!r} has {counted(len(listed), 'value')} for {counted(captions, 'caption')}"
                self.problems.append(Problem(row.place, what, "Give one number, or one per caption."))
                listed = [0.0] * captions
            columns.append([self._number(name, item, row.place) for item in listed])
        return list(zip(*columns, strict=True))

    def _number(self, name: str, value: Any, place: str) -> float:
        with suppress(TypeError, ValueError):
            if math.isfinite(number := float(value)):
                return number
        self.problems.append(
            Problem(place, f"column {name!r} contains {value!r}, not a finite number", "Write a number.")
        )
        return 0.0

    def _splits(self, path: Path) -> tuple[list[str] | None, str]:
        """Return the split of each pair, and a description of how they were split.

        The splits are None if split files next to the table list the images.
        """
        rows = [row for _, row, *_ in self.pairs]
        if column := self.columns.get("split"):
            splits = [
                split_files.split_of(str(row.values.get(column[0])).lower(), row.place, self.problems, SPLIT_NAMES)
                or ""
                for row in rows
            ]
            return splits, f"column {column[0]!r}"
        named = {row.split for row in rows}
        hashed = [split_files.by_hash(str(PurePosixPath(below(name, self.root)))) for name, *_ in self.pairs]
        if named == {"train", "test"}:
            held_out = [
                "val" if row.split == "train" and by_hash == "val" else row.split
                for row, by_hash in zip(rows, hashed, strict=True)
            ]
            return held_out, "file names; val is a tenth of train, chosen by a hash of the image names"
        if len(named - {""}) > 1 and "" not in named:
            return [row.split for row in rows], "file names"
        if split_files.given(path if path.is_file() else path / "table"):
            return None, "the split files next to it"
        return hashed, "a hash of the image names, about 80, 10 and 10 %"

    def _of_split(self, split: str, pairs: Sequence[tuple[str, Row, str, tuple[float, ...]]]) -> list[Annotation]:
        of_images = grouped(((row.folder, name), (row, caption, values)) for name, row, caption, values in pairs)
        entries = []
        for (_, name), of_image in of_images.items():
            row, captions = of_image[0][0], tuple(caption for _, caption, _ in of_image)
            values = tuple(of_caption for *_, of_caption in of_image)
            entries.append(Annotation(split, captions=captions, place=row.place, values=values, **_where(name, row)))
        return entries

    def _report_repeated(self, path: Path) -> None:
        """Report rows that repeat a caption of the same image."""
        seen, again = set[tuple[str, str, str]](), list[str]()
        for name, row, caption, _ in self.pairs:
            key = row.folder, name, caption
            again += [row.place] if key in seen else []
            seen.add(key)
        if again:
            what = f"{counted(len(again), 'caption')} repeated for the same image; the first is {again[0]}"
            self.problems.append(
                Problem(str(path), what, "Remove repetitions, unless they are meant to count twice.", "remark")
            )

    def left_out(self) -> list[str]:
        """Return phrases for the one-line summary that tell which rows were left out."""
        lines = []
        if self.silent:
            lines.append(
                f"{counted(len(self.silent), 'row')} without a caption left out; the first is {self.silent[0]}"
            )
        if self.failed:
            lines.append(f"{counted(self.failed, 'row')} without a download left out")
        return lines
