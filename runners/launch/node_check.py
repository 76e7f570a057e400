"""The check of a node: it sees the same folders as the driver, runs the same code, and imports the plug-ins."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.grid.uses import register, uses_of
from goalgrid.results.records import provenance
from goalgrid.runners.launch import shared_folder


def problem_here(
    home: str, mark: str, paths: Sequence[str], patience: float, code: str, uses: Sequence[tuple[str, str]]
) -> str:
    """The problem of this node, or an empty string.

    Args:
        mark: of the runs folder, for which the node waits `patience` seconds.
        paths: of data and weights.
        code: fingerprint of the driver's program.
        uses: path and text of the plug-ins.
    """
    try:
        shared_folder.wait_for(Home(Path(home)), mark, patience)
    except UserError as error:
        return str(error)
    lacking = [path for path in paths if not Path(path).exists()]
    if lacking:
        return f"this node does not see {', '.join(lacking)}. Data must lie under the same path on every node."
    if provenance.program_fingerprint() != code:
        return "another version of goalgrid is installed there. Install the same one on every node."
    try:
        register(uses_of(uses))
    except UserError as error:
        return str(error)
    return ""
