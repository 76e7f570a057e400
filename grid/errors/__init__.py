"""User errors: one message without a traceback, with the wrong value, the known ones and the next step."""

import errno
import hashlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from goalgrid.grid.messages import Note, Step, Wording

LISTED = 500
"""Characters of known names that a message spells out; of a longer list, the nearest names."""


POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of a git-lfs pointer, which a clone without git-lfs has in place of a large file."""

SMALL, LARGE = 2**26, 2**32
"""Bytes of a file that is read whole, at most: settings, notes and lists of a runs folder; records, and lists of data.

A sparse file of 20 GB takes no room on the disk, and more memory than there is.
"""

NESTED = 64
"""Levels of lists and tables in a JSON or TOML file, at most: parsers recurse, and so does what reads the values."""


class UserError(Exception):
    """A mistake that a user can correct. The command line prints its message alone.

    Args:
        text: with `{step}` where the next step is named.
        step: the next step; `str` of the error names its Python call.
    """

    def __init__(self, text: str = "", step: Step | None = None) -> None:
        super().__init__(text)
        self.text, self.step = text, step

    def worded(self, wording: Wording) -> str:
        """Return the message with its step."""
        return Note(self.text, self.step).worded(wording)

    def __str__(self) -> str:
        return self.worded(str)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone."""
        return [f"goalgrid.UserError: {self}"]


class Incomplete(UserError):
    """What was asked for is not done, by no mistake of the command, which may do it later."""


class HostFault(UserError):
    """This host cannot train, whatever the command is; another host may."""


def unknown(what: str, name: object, known: Collection[str], *, where: str = "", hint: str = "") -> str:
    """Say that `name` is no known `what`, with the nearest name, the known ones and the next step.

    >>> print(unknown("pair weight", "sigg", ["con", "lin", "sig"], where="in objectives[2]"))
    unknown pair weight 'sigg' in objectives[2]. Did you mean 'sig'? Known: con, lin, sig.
    """
    close = nearest(str(name), known)
    listed, more = list(known) or ["none"], ""
    if len(", ".join(known)) > LISTED:
        listed = nearest(str(name), known, count=8, cutoff=0.0)
        more = f" and {len(known) - len(listed)} more"
    parts = [
        f"unknown {what} {name!r}{' ' + where if where else ''}.",
        f"Did you mean {close[0]!r}?" if close else "",
        f"Known: {', '.join(listed)}{more}.",
        hint,
    ]
    return " ".join(part for part in parts if part)


def check_known(what: str, name: str, known: Collection[str], *, where: str = "", hint: str = "") -> None:
    """Raise a UserError if `name` is no known `what`; the arguments are those of `unknown`."""
    if name not in known:
        raise UserError(unknown(what, name, known, where=where, hint=hint))


def nearest(name: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most `count` known names, the most similar first, with a similarity (0 to 1) above `cutoff`.

    A longer name counts as a whole, and as its beginning of the same length. Capitals do not count. First come names
    whose part behind the last dot has the same first word, or is the other's initials.

    >>> nearest("goal-table2", ["goal-table6", "goal-table2-coco"]), nearest("goal-tabel2", ["goal-table2-coco"])
    (['goal-table2-coco'], ['goal-table2-coco'])
    >>> settings = ["train.mean_loss", "train.batch_size", "train.lr"]
    >>> [nearest(name, settings)[0] for name in ("batch", "lr", "train.learning_rate", "Train.BS")]
    ['train.batch_size', 'train.lr', 'train.lr', 'train.batch_size']
    """
    standing_for: dict[str, list[str]] = {}
    ordered = sorted(known, key=len)
    for other in ordered:
        for part in {other.casefold(), other[: len(name)].casefold()}:
            standing_for.setdefault(part, []).append(other)
    alike = get_close_matches(name.casefold(), standing_for, n=2 * count, cutoff=cutoff)
    meant = [other for other in ordered if _abbreviates(name, other)]
    return list(dict.fromkeys([*meant, *(other for part in alike for other in standing_for[part])]))[:count]


def _abbreviates(name: str, other: str) -> bool:
    """Whether one of two names is the other's first word or initials, behind the last dot."""
    (one, words), (two, other_words) = (
        (last, re.split("[_-]", last)) for last in (text.rpartition(".")[2].casefold() for text in (name, other))
    )
    initials = ["".join(word[:1] for word in of) for of in (words, other_words)]
    return (
        one in (two, other_words[0])
        or (len(words) > 1 and initials[0] == two)
        or (len(other_words) > 1 and initials[1] == one)
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural.

    >>> counted(1, "id"), counted(1200, "id")
    ('1 id', '1,200 ids')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def user_path(path: str | Path) -> Path:
    """Return the path that a user gives, with `~` and `~NAME` replaced by home folders.

    UserError: its bytes are not UTF-8, which neither TOML, JSON nor MLflow can hold; or it is an address, `s3://bucket`,
    which would name a folder `s3:` here.
    """
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):  # a Path has one slash left of two
        raise UserError(
            f"{str(path)!r} is an address, not a folder of this machine. Copy it here, or give the folder where it is "
            "mounted."
        )
    if any("\udc80" <= letter <= "\udcff" for letter in str(path)):
        raise UserError(_undecoded(str(path)))
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{str(path)!r}: this machine knows no home folder of {Path(path).parts[0]!r}.") from None


def kept_path(path: str, folder: Path) -> str:
    """Return the absolute form of a path below a folder; one that begins with a variable, `$SLURM_TMPDIR/x`, stays."""
    return path if path.startswith("$") else str((folder / user_path(path)).absolute())


def machine_path(path: str) -> Path:
    """Return a path of `kept_path` on this machine, with variables expanded; a variable that is not set stays."""
    return user_path(os.path.expandvars(path) if path.startswith("$") else path)


def _undecoded(path: str) -> str:
    """Why a path has bytes that were not decoded: they are no UTF-8, or the locale has Python read ASCII alone."""
    try:
        text = path.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError:
        return f"the path {path!r} contains bytes that are not UTF-8. Rename it, or choose another path."
    return (
        f"the path {text!r} is UTF-8, but this locale has Python read names of files as {sys.getfilesystemencoding()}. "
        "Set LC_ALL=C.UTF-8, or PYTHONUTF8=1."
    )


def check_regular(path: Path) -> int:
    """Return the bytes of a file; raise an OSError unless the path is, or links to, a regular file.

    A named pipe keeps its reader waiting for ever, and a device like /dev/zero never ends.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return status.st_size


def check_fetched(path: Path) -> None:
    """Raise an OSError if a file is what git-lfs leaves in its place, or is no regular file."""
    check_regular(path)
    with path.open("rb") as file:
        _check_no_pointer(file.read(len(POINTER)))


def regular_bytes(path: Path, most: int | None = SMALL) -> bytes:
    """Return the content of a regular file of at most so many bytes (None: any size); of no such file, an OSError.

    Nor of one that git-lfs has yet to fetch.
    """
    size = check_regular(path)
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read", str(path))
    content = path.read_bytes()
    _check_no_pointer(content)
    return content


def _check_no_pointer(content: bytes) -> None:
    if content.startswith(POINTER):
        raise OSError("it is a git-lfs pointer: git lfs pull fetches the file itself")


def parsed_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError: it is no JSON, or nested too deep."""
    return _parsed(json.loads, text)


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text; ValueError: it is no TOML, or nested too deep."""
    return dict(_parsed(tomllib.loads, text))


def _parsed(parse: Callable[[Any], Any], text: str | bytes) -> Any:
    """Return what a parser reads; ValueError: it cannot, or the value has more than `NESTED` levels."""
    with suppress(RecursionError):
        value = parse(text)
        level = [value]
        for _ in range(NESTED + 1):
            level = [outer for outer in level if isinstance(outer, dict | list)]
            if not level:
                return value
            level = list(chain.from_iterable(outer.values() if isinstance(outer, dict) else outer for outer in level))
    raise ValueError(f"it is nested more than {NESTED} levels deep")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits; OSError: it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_of(path: Path, what: str, hint: str) -> str:
    """Read a file that a user names; `what` names it in errors, `hint` is the next step if it is missing."""
    try:
        text = regular_bytes(path).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        close = nearest(path.stem, [other.stem for other in path.parent.glob(f"*{path.suffix}")])
        sibling = f" Did you mean '{close[0]}{path.suffix}' in the same folder?" if close else ""
        raise UserError(f"{what}: no file {path}.{sibling} {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{what}: cannot read {path}: {error}") from error


def toml_of(path: Path, what: str, hint: str) -> dict[str, Any]:
    """Read a TOML file that a user names; the arguments are those of `text_of`."""
    try:
        return parsed_toml(text_of(path, what, hint))
    except ValueError as error:
        raise UserError(f"{what}: {path} is not valid TOML: {error}") from error


def said_by(error: BaseException) -> str:
    """Return the text of an error, in one line; the name of its class where it has none, as a user's class may."""
    text = ""
    with suppress(Exception):
        text = " ".join(str(error).split())
    return text or type(error).__name__


def in_short(error: BaseException, most: int = 300) -> str:
    """Return the message of an error, cut to `most` characters: libraries give advice of many lines."""
    words = said_by(error).rstrip(".") or type(error).__name__
    return words if len(words) <= most else f"{words[:most]}..."


def several(heading: str, problems: Iterable[str]) -> UserError:
    """Build one error that reports all problems of a file at once."""
    lines = list(problems)
    if len(lines) == 1:
        return UserError(f"{heading}: {lines[0]}")
    return UserError(f"{heading}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines))
