"""Problems of a copy of a data set, collected so that loading and `data check` share one reader of each format.

Readers append the problems that they meet and go on. Loading then refuses the data; `data check` shows all problems.
"""

import csv
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from goalgrid.grid.errors import LARGE, check_fetched, counted, regular_bytes
from goalgrid.retrieval.splits.pairs import DataError

Json = TypeVar("Json", bound=Sized)
Key = TypeVar("Key", bound=Hashable)

SHOWN = 5
"""Problems that an error spells out, and ids or rows that a problem spells out."""
ODD_CAPTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "looks like python bytes": (
        re.compile(r"""b(['"]).*\1""").fullmatch,  # python 2 code that python 3 runs leaves the text of a bytes object
        "Write text, not bytes: caption.decode('utf-8') before it is saved.",
    ),
    "is a word for a missing value": (
        re.compile(r"nan|none|null|n/a|<na>|undefined", re.IGNORECASE).fullmatch,
        "Write the caption, or take its row out; pandas reads texts as they are by keep_default_na=False.",
    ),
    "looks like a list of captions": (
        re.compile(r"""\[\s*(['"]).*\1\s*\]""").fullmatch,
        "Write each caption by itself: in a CSV file a row a caption, in pandas table.explode('caption').",
    ),
    "has HTML in it": (
        re.compile(r"&(?:[a-z]{2,6}|#\d+|#x[0-9a-fA-F]+);|</?(?:a|b|br|div|em|i|p|span|strong)\b[^>]*>").search,
        "Write plain text: html.unescape(caption), and no tags.",
    ),
    "is an error of a spreadsheet": (
        re.compile(r"#(?:NAME\?|REF!|VALUE!|DIV/0!|N/A|NUM!|NULL!)").fullmatch,
        "Write the caption, in a cell of type text: a leading =, + or - makes a formula.",
    ),
    "is UTF-8 read as another coding": (
        re.compile(r"Ã[\x80-\xbf]|â€[\u2122œ\x9d\u201c\u201d]").search,
        "Take the file from its source again; if only a broken one is left, the Python package ftfy mends such texts.",
    ),
}
"""Faults of wrongly saved captions: its name, a test of a caption without outer blanks, and the fix."""
TOO_LARGE = "Save it smaller: a network sees less than a megapixel of it."
"""Advice for a picture of more pixels than Pillow reads."""
NEAR = {
    "image": ("filename", "file_name", "filepath", "file_path", "file", "path", "image_path", "image_name", "img"),
    "caption": ("text", "sentence", "description", "comment", "title", "raw"),
}
"""Other names of a table's columns."""
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
QUOTES = "Put quotation marks around a cell with a comma, a line break or a quotation mark, and double the last."
ARCHIVE = "it holds several arrays, as an .npz file, not one"
POINTER = "git-lfs pointer"
CAUSES = {
    POINTER: "In its clone: git lfs install && git lfs pull",
    ARCHIVE: "Save the array that is meant: np.save('{name}', np.load('{name}')['NAME'])",
    "'utf-8' codec can't decode": "Convert it there: iconv -f cp1252 -t utf-8 {name} > fixed && mv fixed {name}",
    "field larger than field limit": "Close the quotation mark that opens there, or shorten that caption.",
    "Python objects in dtype": "Save numbers of one shape: np.save('{name}', np.stack(rows).astype('float32'))",
    "pickled (object) data": "It is not an .npy file: fetch it again, or save numbers by np.save",
}
"""By words of what a library says: what mends a file that is whole, and not to be fetched again."""


@dataclass(frozen=True)
class Problem:
    """One fault: where it is, what is wrong, and what mends it.

    A "fault" is refused. So is a "leak" of test images into training, unless the user allows it; "tested validation",
    images of test in validation, is refused alike where validation chooses. A "note" is a problem with which training
    is possible. A "remark" needs no mending: what was not read, or was read otherwise than one may think. Notes and
    remarks are shown by `data check`, `new`, `plan` and a launch, and kept in the record.
    """

    place: str
    what: str
    fix: str
    kind: Literal["fault", "leak", "tested validation", "note", "remark"] = "fault"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}. {self.fix}"


def repeated(keys: Iterable[Key]) -> list[Key]:
    """Return the keys that occur more than once, in the order of their first appearance.

    >>> repeated("abcab")
    ['a', 'b']
    """
    return [key for key, count in Counter(keys).items() if count > 1]


def shortened(values: Sequence[object]) -> str:
    """List the first few values, and count the others.

    >>> shortened(range(7))
    '0, 1, 2, 3, 4 and 2 more'
    """
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more


def check_command(name: str, root: Path | str) -> str:
    """Return the command that shows all faults of a copy, ready to be pasted."""
    return shlex.join(["goalgrid", "data", "check", name, "--root", str(root)])


def refuse(problems: Sequence[Problem], heading: str, check: str = check_command("NAME", "DIR")) -> None:
    """Stop where there are faults, with a DataError of the first few; leaks and notes are left to the caller."""
    problems = [problem for problem in problems if problem.kind == "fault"]
    if not problems:
        return
    if len(problems) == 1:
        raise DataError(str(problems[0]))
    lines = [f"  - {problem}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"  - and {len(problems) - SHOWN} more: {check}")
    raise DataError(f"{heading}: {len(problems)} problems\n" + "\n".join(lines))


def torn(path: Path, error: Exception) -> Problem:
    """Report a file that cannot be read, with what repairs it."""
    fix = _fix(path, error, "Is the download complete? Fetch it again.")
    return Problem(str(path), f"cannot be read: {error}", fix)


def _fix(path: Path, error: Exception, usual: str) -> str:
    return next((fix.format(name=path.name) for words, fix in CAUSES.items() if words in str(error)), usual)


def array_of(path: Path) -> np.ndarray:
    """Open an array that stays on the disk; OSError or ValueError: missing, damaged, or not a single array."""
    check_fetched(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, OverflowError) as error:  # an empty file; a shape that no array has
        raise ValueError(str(error)) from error
    if isinstance(array, np.ndarray):
        return array
    raise ValueError(ARCHIVE)


def array_at(path: Path, problems: list[Problem]) -> np.ndarray | None:
    """Open the array of a file, on the disk; None, after reporting it, if it cannot be read."""
    try:
        return np.asarray(array_of(path))
    except FileNotFoundError:
        problems.append(Problem(str(path), "is missing", "Take the whole package."))
    except (OSError, ValueError) as error:
        problems.append(torn(path, error))
    return None


def json_of(path: Path, kind: type[Json], layout: str, problems: list[Problem]) -> Json:
    """Read the JSON object or list in a file; empty, after reporting it, if it is missing, damaged or empty."""
    try:
        content = json.loads(regular_bytes(path, LARGE))
    except FileNotFoundError:
        problems.append(Problem(str(path), "is missing", f"Expected {layout}."))
        return kind()
    except (OSError, ValueError, RecursionError) as error:
        problems.append(torn(path, error))
        return kind()
    if isinstance(content, kind) and content:
        return content
    what = "holds no JSON object, or an empty one" if kind is dict else "holds no JSON list, or an empty one"
    problems.append(Problem(str(path), what, f"Expected {layout}."))
    return kind()


def no_text(place: str, caption: object) -> Problem:
    """Report a caption that is not text."""
    return Problem(place, f"is {json.dumps(caption)[:40]}, not text", "Write the caption there, or take it out.")


def lines_of(path: Path, what: str, problems: list[Problem]) -> list[str]:
    """Read the lines of a text file, without empty lines at its end; bytes that are not UTF-8 are reported."""
    text = _with_line_feeds(path, what, problems).rstrip("\n")
    return text.split("\n") if text else []


def captions_of(path: Path, described: int, problems: list[Problem]) -> list[str]:
    """Read the captions of a text file, one per line; empty lines at its end count only if their number asks for them.

    Args:
        described: rows of features, or ids: each has as many captions as the others.
    """
    text = _with_line_feeds(path, "one caption a line, those of one image together", problems)
    captions, whole = text.rstrip("\n").split("\n") if text.strip("\n") else [], text.removesuffix("\n").split("\n")
    fit = [lines for lines in (captions, whole) if described and len(lines) % described == 0]
    return next(iter(fit), captions)


def _with_line_feeds(path: Path, what: str, problems: list[Problem]) -> str:
    """The text of a file, its lines ended as Unix ends them."""
    return _text_of(path, what, problems).replace("\r\n", "\n").replace("\r", "\n")


def rows_of(
    path: Path, needed: Sequence[str], problems: list[Problem], *, optional: Sequence[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """Read the rows of a CSV file whose first line names its columns, each with the number of its line.

    Columns with other names are left out; a name that is nearly that of an optional column is reported.
    """
    faults = list[Problem]()
    columns, rows = cells_of(path, faults)
    if columns is None:
        problems += faults
        return []
    if wrong := _faults_of_columns(columns, needed, optional):
        problems += [fault for fault in faults if "UTF-8" in fault.what]
        problems += [Problem(f"{path}, line 1", *fault) for fault in wrong]
        return []
    problems += faults
    return [(line, dict(zip(columns, cells, strict=True))) for line, cells in rows]


def cells_of(
    path: Path, problems: list[Problem], **dialect: Any
) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """Read the first line of a CSV file (None: unreadable), and the cells and last line number of each row.

    A row with more or fewer cells than columns is reported and left out. `dialect`: of `csv.reader`, which is told.
    """
    before = len(problems)
    text = _text_of(path, "a row a caption", problems)
    if not text and len(problems) > before:
        return None, []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, **dialect)
    columns, rows = list[str](), []
    try:
        columns = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if cells and len(cells) != len(columns):
                what = (
                    f"has {counted(len(cells), 'cell')}, where the first line names {counted(len(columns), 'column')}"
                )
                problems.append(Problem(f"{path}, line {reader.line_num}", what, QUOTES))
            elif cells:
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        problems.append(
            Problem(f"{path}, line {reader.line_num}", f"is not valid CSV: {error}", _fix(path, error, QUOTES))
        )
    return columns, rows


def _faults_of_columns(columns: Sequence[str], needed: Sequence[str], optional: Sequence[str]) -> list[tuple[str, str]]:
    """Why these are not the columns of a table, each with what mends it; none: they are."""
    layout = (
        f"Expected commas between the columns {', '.join([*needed, *optional])}, and their names in the first line."
    )
    if len(columns) == 1 and (separator := next((mark for mark in SEPARATORS if mark in columns[0]), "")):
        further = _faults_of_columns([name.strip() for name in columns[0].split(separator)], needed, optional)
        fixes = " ".join(["Save the file as CSV with commas.", *dict.fromkeys(fix for _, fix in further)])
        return [(f"has {SEPARATORS[separator]} between its columns", fixes if further else f"{layout} {fixes}")]
    others = [name for name in columns if name not in (*needed, *optional)]
    faults = [(f"names column {name!r} more than once", layout) for name in repeated(columns) if name not in others]
    if lacking := [name for name in needed if name not in columns]:
        renamed = [f"{name} in place of {other!r}" for name in lacking if (other := _nearest(name, others))]
        what = f"lacks {counted(len(lacking), 'column')}: {', '.join(map(repr, lacking))}"
        fix = f"Write {' and '.join(renamed)} there." if len(renamed) == len(lacking) else layout
        faults.append((f"{what}; its columns: {', '.join(map(repr, columns)) or 'none'}", fix))
    typos = [(name, near[0]) for name in others if (near := get_close_matches(name, optional, n=1))]
    return faults + [
        (f"has a column {name!r}; did you mean {near!r}?", layout) for name, near in typos if near not in columns
    ]


def _nearest(name: str, others: Sequence[str]) -> str | None:
    """The column that is likely to be the one of this name."""
    usual = [other for other in others if other.lower() in (name, *NEAR.get(name, ()))]
    return next(iter([*usual, *get_close_matches(name, others, n=1)]), None)


def _text_of(path: Path, what: str, problems: list[Problem]) -> str:
    """The text of a file, without a byte order mark; bytes that are no UTF-8 are replaced and reported."""
    try:
        content = regular_bytes(path, LARGE)
    except FileNotFoundError:
        problems.append(Problem(str(path), "is missing", f"It holds {what}; take it from the package of its peers."))
        return ""
    except OSError as error:
        fix = _fix(path, error, "Look at its permissions.")
        problems.append(Problem(str(path), f"cannot be read: {error.strerror or error}", fix))
        return ""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start : error.start + 1]
        coding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "cp1252"
        letter = f"is not UTF-8: byte {byte[0]:#04x}, which is {byte.decode(coding, 'replace')!r} in {coding}"
        what = letter if coding == "cp1252" else "is not UTF-8: it is UTF-16"
        fixed = f"iconv -f {coding} -t utf-8 {path.name} > fixed && mv fixed {path.name}"
        problems.append(Problem(f"{path}, line {line}", what, f"Convert it in its folder: {fixed}"))
        return content.decode(coding if coding == "utf-16" else "utf-8", errors="replace")


def faults_of_captions(captions: Sequence[str], place: str) -> list[Problem]:
    """Report empty captions, and captions that were saved wrongly.

    >>> [problem.what for problem in faults_of_captions(["a dog", " ", "b'a cat'", "nan"], "train_caps.txt")]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['1 caption is empty: number 2',
     "1 caption looks like python bytes, number 3: b'a cat'",
     '1 caption is a word for a missing value, number 4: nan']
    """
    problems = []
    texts = [caption.strip() for caption in captions]
    if empty := [number for number, text in enumerate(texts, 1) if not text]:
        what = f"1 caption is empty: number {empty[0]}"
        if len(empty) > 1:
            what = f"{len(empty):,} captions are empty, the first is number {empty[0]}"
        fix = "Fill them in, or take the file from its source: each is a query."
        problems.append(Problem(place, what, fix, "note"))
    for look, (is_odd, fix) in ODD_CAPTIONS.items():
        if odd := [number for number, text in enumerate(texts, 1) if is_odd(text)]:
            first = texts[odd[0] - 1][:40]
            what = f"1 caption {look}, number {odd[0]}: {first}"
            if len(odd) > 1:
                what = f"{len(odd):,} captions: each {look}, the first is number {odd[0]}: {first}"
            problems.append(Problem(place, what, fix, "note"))
    return problems


def faults_of_ids(ids: Sequence[str], captions: int, images: int, place: str) -> list[Problem]:
    """Report ids that occur twice, whose captions are apart, or whose number fits neither images nor captions."""
    if len(ids) not in (captions, images):
        what = f"has {len(ids)} ids, where there are {images} images and {captions} captions"
        return [Problem(place, what, "Expected one id an image or one a caption; take all files from one package.")]
    if len(ids) == images:
        twice = repeated(ids)
        what, fix = "given more than once", "Each image has one id; take the file from its package again."
    else:
        twice = repeated(key for key, _ in groupby(ids))
        what = "with captions in lines that are not consecutive"
        fix = "Sort ids, captions and features alike: captions of one image must be consecutive."
    return [Problem(place, f"{counted(len(twice), 'id')} {what}, the first is {twice[0]}", fix)] if twice else []
