"""Archive the code of a checkout, so that it can be edited while jobs wait in the queue."""

import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from goalgrid.grid.errors import SMALL, UserError
from goalgrid.grid.plugins import PROGRAM
from goalgrid.results.records import provenance

MOST = SMALL
"""Maximum total size in bytes of the archived files; larger files are not code."""


def taken(*, asked: bool) -> bytes:
    """Return an archive of this program's code; empty if it does not run from a git checkout.

    Raises UserError if the package contains large files that git does not ignore, or if `asked` outside a checkout.
    """
    checkout = provenance.source()
    if checkout is None:
        if asked:
            raise UserError(
                f"--snapshot saves the code of a git checkout, but this {PROGRAM} is an installed package: jobs run "
                "that, and no edit changes it. Leave --snapshot out."
            )
        return b""
    files = list(_files())
    sizes = {name: path.lstat().st_size for name, path in files}
    if sum(sizes.values()) > MOST:
        raise UserError(
            f"the checkout's package has {sum(sizes.values()) / 2**20:,.0f} MB of files that git does not ignore, e.g. "
            f"{max(sizes, key=sizes.__getitem__)}; a launch saves at most {MOST // 2**20} MB of code. "
            "Move them, add them to .gitignore, or use --no-snapshot: jobs then run the checkout as it is by then."
        )
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, path in files:
            _add(tar, name, path.lstat().st_mode, str(path.readlink()) if path.is_symlink() else path.read_bytes())
        _add(tar, f"{PROGRAM}/{provenance.KEPT_SOURCE}", stat.S_IFREG, json.dumps(checkout).encode())
    return packed.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the package's files that git tracks or does not ignore, with their names in the archive, sorted."""
    places = [path.resolve() for path in provenance.rooms().values()]
    base = places[0].parent
    for name in sorted(provenance.tracked(base, [str(place.relative_to(base)) for place in places])):
        if os.path.lexists(base / name):
            yield name, base / name


def _add(tar: tarfile.TarFile, name: str, mode: int, content: bytes | str) -> None:
    """Add a file, or a link to the path `content`, without time and owner: equal code gives identical archives."""
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755 if mode & stat.S_IXUSR else 0o644
    if isinstance(content, str):
        entry.type, entry.linkname = tarfile.SYMTYPE, content
        tar.addfile(entry)
    else:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
