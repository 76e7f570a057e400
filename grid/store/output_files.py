"""Write output files chosen by the user: `--output FILE`, and files in a folder of the user."""

import stat
from pathlib import Path

from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.store.files import atomic_write, cannot_write
from goalgrid.grid.store.home import Below, GridFolder, Home

_MARK, _ENDS = b"goalgrid", 2**16
"""The marker of files written by goalgrid, and the number of bytes at the start and end in which it is searched."""

_OWN = ("tables", "report.html", "figures")
"""Names in a grid's folder that only goalgrid writes, so that earlier files may be replaced."""


def write_output(path: Path, content: bytes) -> None:
    """Write a user's output file atomically; append to the path if it is an existing device or pipe.

    Raises:
        UserError: `check_output` rejects the path, or the file cannot be written.
    """
    path = user_path(path)
    check_output(path, content)
    try:
        if _is_stream(path):
            with path.open("ab") as stream:  # a shell may have opened a file to append to it
                stream.write(content)
            return
    except OSError as error:
        raise cannot_write(path, error) from error
    with atomic_write(path.resolve()) as aside:  # a link stays, and leads to the new content
        aside.write_bytes(content)


def check_output(path: Path, content: bytes = b"") -> None:
    """Raise a UserError if the path is a folder, a file not written by goalgrid, or a file of a runs folder.

    Args:
        content: the content to write; existing CSV files are recognised as goalgrid's by equal columns.
    """
    try:
        if _is_stream(path):
            return
        path = path.resolve()
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a file in it.")
        if home := _kept(path):
            raise UserError(f"{path} belongs to the runs folder {home}; choose another file.")
        if path.exists() and not _is_ours(path, content):
            raise UserError(f"{path} exists and was not written by goalgrid; choose another name, or move it away.")
        if not next(above for above in path.parents if above.exists()).is_dir():
            raise NotADirectoryError
    except OSError as error:
        raise cannot_write(path, error) from error
    except RuntimeError as error:
        raise UserError(f"{path} is a link to itself; choose another file.") from error


def _is_stream(path: Path) -> bool:
    """Whether it is a device, a pipe, or an open file of this process (`/dev/fd/N`)."""
    if not path.exists() or path.is_dir():
        return False
    return not stat.S_ISREG(path.stat().st_mode) or path.absolute().is_relative_to("/dev")


def _is_ours(path: Path, content: bytes) -> bool:
    """Whether goalgrid wrote a file, judging by its marker; also True for empty files."""
    if _home_of(path) and {path.name, path.parent.name} & {*_OWN}:
        return True
    with path.open("rb") as file:
        begin = file.read(_ENDS)
        file.seek(max(0, path.stat().st_size - _ENDS))
        return not begin or _MARK in begin or _MARK in file.read(_ENDS) or _columns(begin) == _columns(content) != []


def _columns(content: bytes) -> list[bytes]:
    """The first three columns of a CSV file; empty for other files."""
    names = content.partition(b"\n")[0].split(b",")
    return names[:3] if len(names) > 3 else []


def _kept(path: Path) -> Path | None:
    """The runs folder to whose state this file belongs; None if there is none."""
    home = _home_of(path)
    if home is None:
        return None
    first, *rest = path.relative_to(home).parts
    of_grid = {part.name for part in vars(GridFolder).values() if isinstance(part, Below)} - {*_OWN}
    of_home = {part.name for part in vars(Home).values() if isinstance(part, Below)}
    return home if first in of_home or (first == "grids" and len(rest) == 2 and rest[1] in of_grid) else None


def _home_of(path: Path) -> Path | None:
    """The runs folder that contains a file; None if there is none."""
    homes = (Home(folder) for folder in path.parents)
    return next((home.path for home in homes if home.mark.is_file() or home.trials_folder.is_dir()), None)
