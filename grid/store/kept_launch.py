"""Saved launches: the resolved grid with the texts of its plug-ins, and the code fingerprint of each trial.

`grids/NAME/launches/ID/` contains `grid.toml` and `launch.json`. The id is a digest of both, so launches with equal
content share a folder, and a folder whose content does not match its id is rejected.

`launch.json` contains `format`; `made_by`, the version that launched; `code`, the ids of the trials for each code
fingerprint; and `snapshot`, the SHA-256 of `code.tar.gz`, if that file holds the code itself.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from goalgrid.grid.errors import UserError, regular_bytes
from goalgrid.grid.groups import grouped
from goalgrid.grid.identity import digest
from goalgrid.grid.store.files import atomic_write, read_json, write_json, write_text
from goalgrid.grid.store.home import LaunchFolder

FORMAT = 1
_AGAIN = "Launch the grid again: goalgrid slurm."
WRITTEN_BY = "`goalgrid slurm` and `goalgrid run --address` write one below grids/NAME/launches/ of the runs folder."


@dataclass(frozen=True)
class KeptLaunch:
    """The content of a saved launch.

    Args:
        grid: the resolved grid as TOML.
        code: the code fingerprint of each possible trial of the grid, by id.
        made_by: the version that launched: `goalgrid` and, for a git checkout, `commit` and whether it was `changed`.
        snapshot: the SHA-256 of the code archive that jobs run; empty if they run the installed code.
    """

    grid: str
    code: Mapping[str, str]
    made_by: Mapping[str, Any] = field(default_factory=dict)
    snapshot: str = ""

    @property
    def id(self) -> str:
        """16 hexadecimal digits of a digest of everything except `made_by`."""
        return digest([self.grid, dict(self.code), *([self.snapshot] if self.snapshot else [])])[:16]

    @classmethod
    def read(cls, folder: LaunchFolder) -> Self:
        """Read a saved launch; raise a UserError if there is none, or its content does not match its id."""
        content = read_json(folder.content)
        if not content:
            raise UserError(f"{folder.path} holds no launch. {WRITTEN_BY}")
        if content.get("format") != FORMAT:
            raise UserError(f"{folder.path} was written by another version of goalgrid: it has another format.")
        try:
            grid = regular_bytes(folder.grid).decode()
            code = {trial_id: str(code) for code, ids in content["code"].items() for trial_id in ids}
            launch = cls(grid, code, dict(content["made_by"]), str(content.get("snapshot", "")))
            whole = launch.id == folder.path.resolve().name
            whole &= not launch.snapshot or hashlib.sha256(launch.archive(folder)).hexdigest() == launch.snapshot
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"the launch {folder.path} cannot be read: {error}. {_AGAIN}") from error
        if not whole:
            raise UserError(f"the launch {folder.path} was changed: its content is not what its name says. {_AGAIN}")
        return launch

    def archive(self, folder: LaunchFolder) -> bytes:
        """Read the saved code archive; empty without a snapshot. Raise an OSError if the file is missing."""
        return regular_bytes(folder.snapshot) if self.snapshot else b""

    def write(self, folder: LaunchFolder, archive: bytes = b"") -> None:
        """Write the launch and its code archive unless they exist; raise a UserError if the folder is not writable."""
        with suppress(UserError):
            self.read(folder)
            return
        if archive:
            with atomic_write(folder.snapshot) as aside:
                aside.write_bytes(archive)
        write_text(folder.grid, self.grid)
        code = grouped((code, trial_id) for trial_id, code in self.code.items())
        content = {"format": FORMAT, "made_by": dict(self.made_by), "code": code}
        content |= {"snapshot": self.snapshot} if self.snapshot else {}
        write_json(folder.content, content)  # last: a folder without it is no launch

    def other_code(self, now: Mapping[str, str], ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the ids of trials whose code changed since the launch, with the fingerprints at launch and `now`.

        The fingerprint at launch is empty for a trial that the launch does not contain.
        """
        both = {trial_id: (self.code.get(trial_id, ""), now[trial_id]) for trial_id in ids}
        return {trial_id: (then, here) for trial_id, (then, here) in both.items() if then != here}


def version_words(made_by: Mapping[str, Any]) -> str:
    """Describe a version: `goalgrid 0.2.0 (commit 3fa94c210b7e, with changes)`."""
    version, commit = made_by.get("goalgrid", "of an unknown version"), str(made_by.get("commit", ""))[:12]
    if not commit:
        return f"goalgrid {version}"
    if made_by.get("changed"):
        return f"goalgrid {version} (commit {commit}, with changes)"
    return f"goalgrid {version} (commit {commit})"
