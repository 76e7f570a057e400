"""Problems of a copy of a data set, collected in lists so that loading and `data check` share the readers of formats.

Readers append the problems they find and continue. Loading then refuses the data; `data check` shows all problems.
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
"""Maximum number of problems listed in an error, and of ids or rows listed in a problem."""
ODD_CAPTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "looks like python bytes": (
        re.compile(r"""b(['"]).*\1""").fullmatch,  # python 2 code that python 3 runs leaves the text of a bytes object
        "Save text, not bytes: call caption.decode('utf-8') before saving.",
    ),
    "is a placeholder for a missing value": (
        re.compile(r"nan|none|null|n/a|<na>|undefined", re.IGNORECASE).fullmatch,
        "Write the caption, or remove its row; in pandas, keep_default_na=False keeps such texts as they are.",
    ),
    "looks like a list of captions": (
        re.compile(r"""\[\s*(['"]).*\1\s*\]""").fullmatch,
        "Write each caption separately: one row per caption in a CSV file (in pandas: table.explode('caption')).",
    ),
    "contains HTML": (
        re.compile(r"&(?:[a-z]{2,6}|#\d+|#x[0-9a-fA-F]+);|</?(?:a|b|br|div|em|i|p|span|strong)\b[^>]*>").search,
        "Write plain text: call html.unescape(caption), and remove tags.",
    ),
    "is a spreadsheet error": (
        re.compile(r"#(?:NAME\?|REF!|VALUE!|DIV/0!|N/A|NUM!|NULL!)").fullmatch,
        "Write the caption into a cell of type text; otherwise a leading =, + or - starts a formula.",
    ),
    "is UTF-8 decoded with the wrong encoding": (
        re.compile(r"Ã[\x80-\xbf]|â€[\u2122œ\x9d\u201c\u201d]").search,
        "Get the file from its source again; if that is impossible, the Python package ftfy repairs such text.",
    ),
}
"""Kinds of wrongly saved captions: a description, a test of a caption (stripped), and the fix."""
TOO_LARGE = "Save it at a lower resolution: networks use less than a megapixel."
"""Advice for an image with more pixels than Pillow reads."""
NEAR = {
    "image": ("filename", "file_name", "filepath", "file_path", "file", "path", "image_path", "image_name", "img"),
    "caption": ("text", "sentence", "description", "comment", "title", "raw"),
}
"""Alternative names of table columns."""
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
QUOTES = "Quote cells that contain a comma, a line break or a quotation mark, and double quotation marks inside them."
ARCHIVE = "it contains several arrays, like an .npz file, not one"
POINTER = "git-lfs pointer"
CAUSES = {
    POINTER: "Run in its clone: git lfs install && git lfs pull",
    ARCHIVE: "Save only the array you need: np.save('{name}', np.load('{name}')['NAME'])",
    "'utf-8' codec can't decode": "Convert it in place: iconv -f cp1252 -t utf-8 {name} > fixed && mv fixed {name}",
    "field larger than field limit": "Close the quotation mark that opens there, or shorten the caption.",
    "Python objects in dtype": "Save numbers of equal shape: np.save('{name}', np.stack(rows).astype('float32'))",
    "pickled (object) data": "It is not a valid .npy file: download it again, or save numbers with np.save",
}
"""Fixes for complete files, which need no new download, by words in a library's error message."""


@dataclass(frozen=True)
class Problem:
    """One problem: where it is, what is wrong, and how to fix it.

    Kinds: data with a "fault" are refused. A "leak" (test images in the training split) is refused unless the user
    allows it; so is "tested validation" (test images in the validation split) if validation selects models. With a
    "note", training is possible. A "remark" needs no fix: it tells what was ignored, or read in an unexpected way.
    Notes and remarks are shown by `data check`, `new`, `plan` and a launch, and stored in the record.
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
    """Return the shell command that shows all problems of a copy of a data set."""
    return shlex.join(["goalgrid", "data", "check", name, "--root", str(root)])


def refuse(problems: Sequence[Problem], heading: str, check: str = check_command("NAME", "DIR")) -> None:
    """Raise a DataError with the first few faults if there are any; problems of other kinds are left to the caller."""
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
    """Report an unreadable file, with the fix."""
    fix = _fix(path, error, "Is the download complete? Download it again.")
    return Problem(str(path), f"cannot be read: {error}", fix)


def _fix(path: Path, error: Exception, usual: str) -> str:
    return next((fix.format(name=path.name) for words, fix in CAUSES.items() if words in str(error)), usual)


def array_of(path: Path) -> np.ndarray:
    """Open a memory-mapped array; raises OSError or ValueError if it is missing, damaged, or not a single array."""
    check_fetched(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, OverflowError) as error:  # an empty file; a shape that no array has
        raise ValueError(str(error)) from error
    if isinstance(array, np.ndarray):
        return array
    raise ValueError(ARCHIVE)


def array_at(path: Path, problems: list[Problem]) -> np.ndarray | None:
    """Open a memory-mapped array; if the file is unreadable, report that and return None."""
    try:
        return np.asarray(array_of(path))
    except FileNotFoundError:
        problems.append(Problem(str(path), "is missing", "Use the complete package."))
    except (OSError, ValueError) as error:
        problems.append(torn(path, error))
    return None


def json_of(path: Path, kind: type[Json], layout: str, problems: list[Problem]) -> Json:
    """Read a JSON object or list from a file.

    If the file is missing, damaged or empty, report that and return an empty value.
    """
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
    what = "contains no JSON object, or an empty one" if kind is dict else "contains no JSON list, or an empty one"
    problems.append(Problem(str(path), what, f"Expected {layout}."))
    return kind()


def no_text(place: str, caption: object) -> Problem:
    """Report a caption that is not text."""
    return Problem(place, f"is {json.dumps(caption)[:40]}, not text", "Write the caption there, or remove it.")


def lines_of(path: Path, what: str, problems: list[Problem]) -> list[str]:
    """Read the lines of a text file, without trailing empty lines; report bytes that are not UTF-8.

    `what`: the expected content, for messages.
    """
    text = _with_line_feeds(path, what, problems).rstrip("\n")
    return text.split("\n") if text else []


def captions_of(path: Path, described: int, problems: list[Problem]) -> list[str]:
    """Read the captions of a text file, one per line; trailing empty lines count only if the number requires them.

    Args:
        described: number of feature rows or ids, of which the number of captions must be a multiple.
    """
    text = _with_line_feeds(path, "one caption per line, grouped by image", problems)
    captions, whole = text.rstrip("\n").split("\n") if text.strip("\n") else [], text.removesuffix("\n").split("\n")
    fit = [lines for lines in (captions, whole) if described and len(lines) % described == 0]
    return next(iter(fit), captions)


def _with_line_feeds(path: Path, what: str, problems: list[Problem]) -> str:
    """Return the text of a file with Unix line endings."""
    return _text_of(path, what, problems).replace("\r\n", "\n").replace("\r", "\n")


def rows_of(
    path: Path, needed: Sequence[str], problems: list[Problem], *, optional: Sequence[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """Read the rows of a CSV file with a header line, each with its line number.

    Other columns are ignored, but a name that resembles an optional column's is reported.
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
    """Read the header of a CSV file (None if unreadable), and the last line number and the cells of each row.

    Rows with more or fewer cells than columns are reported and left out. `dialect`: options of `csv.reader`.
    """
    before = len(problems)
    text = _text_of(path, "one row per caption", problems)
    if not text and len(problems) > before:
        return None, []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, **dialect)
    columns, rows = list[str](), []
    try:
        columns = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if cells and len(cells) != len(columns):
                what = f"has {counted(len(cells), 'cell')}, but the header has {counted(len(columns), 'column')}"
                problems.append(Problem(f"{path}, line {reader.line_num}", what, QUOTES))
            elif cells:
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        problems.append(
            Problem(f"{path}, line {reader.line_num}", f"is not valid CSV: {error}", _fix(path, error, QUOTES))
        )
    return columns, rows


def _faults_of_columns(columns: Sequence[str], needed: Sequence[str], optional: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is wrong with the columns of a table, each with the fix; empty if they are valid."""
    layout = f"Expected the columns {', '.join([*needed, *optional])}, separated by commas, with a header line."
    if len(columns) == 1 and (separator := next((mark for mark in SEPARATORS if mark in columns[0]), "")):
        further = _faults_of_columns([name.strip() for name in columns[0].split(separator)], needed, optional)
        fixes = " ".join(["Save the file as CSV with commas.", *dict.fromkeys(fix for _, fix in further)])
        return [(f"has {SEPARATORS[separator]} between its columns", fixes if further else f"{layout} {fixes}")]
    others = [name for name in columns if name not in (*needed, *optional)]
    faults = [(f"names column {name!r} more than once", layout) for name in repeated(columns) if name not in others]
    if lacking := [name for name in needed if name not in columns]:
        renamed = [f"{name} instead of {other!r}" for name in lacking if (other := _nearest(name, others))]
        what = f"lacks {counted(len(lacking), 'column')}: {', '.join(map(repr, lacking))}"
        fix = f"Write {' and '.join(renamed)} there." if len(renamed) == len(lacking) else layout
        faults.append((f"{what}; its columns: {', '.join(map(repr, columns)) or 'none'}", fix))
    typos = [(name, near[0]) for name in others if (near := get_close_matches(name, optional, n=1))]
    return faults + [
        (f"has a column {name!r}; did you mean {near!r}?", layout) for name, near in typos if near not in columns
    ]


def _nearest(name: str, others: Sequence[str]) -> str | None:
    """Return the column that was probably meant by this name, or None."""
    usual = [other for other in others if other.lower() in (name, *NEAR.get(name, ()))]
    return next(iter([*usual, *get_close_matches(name, others, n=1)]), None)


def _text_of(path: Path, what: str, problems: list[Problem]) -> str:
    """Return the text of a file without a byte order mark; bytes that are not UTF-8 are reported and replaced."""
    try:
        content = regular_bytes(path, LARGE)
    except FileNotFoundError:
        fix = f"It contains {what}; take it from the same package as the other files."
        problems.append(Problem(str(path), "is missing", fix))
        return ""
    except OSError as error:
        fix = _fix(path, error, "Check its permissions.")
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
     '1 caption is a placeholder for a missing value, number 4: nan']
    """
    problems = []
    texts = [caption.strip() for caption in captions]
    if empty := [number for number, text in enumerate(texts, 1) if not text]:
        what = f"1 caption is empty: number {empty[0]}"
        if len(empty) > 1:
            what = f"{len(empty):,} captions are empty; the first is number {empty[0]}"
        fix = "Fill them in, or get the file from its source: each caption is a query."
        problems.append(Problem(place, what, fix, "note"))
    for look, (is_odd, fix) in ODD_CAPTIONS.items():
        if odd := [number for number, text in enumerate(texts, 1) if is_odd(text)]:
            first = texts[odd[0] - 1][:40]
            what = f"1 caption {look}, number {odd[0]}: {first}"
            if len(odd) > 1:
                what = f"{len(odd):,} captions: each {look}; the first is number {odd[0]}: {first}"
            problems.append(Problem(place, what, fix, "note"))
    return problems


def faults_of_ids(ids: Sequence[str], captions: int, images: int, place: str) -> list[Problem]:
    """Report ids that occur twice, ids whose captions are not consecutive, and a wrong number of ids."""
    if len(ids) not in (captions, images):
        what = f"has {len(ids)} ids, but there are {images} images and {captions} captions"
        fix = "Expected one id per image or per caption; take all files from the same package."
        return [Problem(place, what, fix)]
    if len(ids) == images:
        twice = repeated(ids)
        what, fix = "listed more than once", "Each image needs a unique id; get the file from its package again."
    else:
        twice = repeated(key for key, _ in groupby(ids))
        what = "with captions in lines that are not consecutive"
        fix = "Sort ids, captions and features in the same way, so that captions of one image are consecutive."
    return [Problem(place, f"{counted(len(twice), 'id')} {what}; the first is {twice[0]}", fix)] if twice else []
