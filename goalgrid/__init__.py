"""goalgrid: ablation grids for image-text retrieval objectives, from one command to the paper's table.

A file that a grid `uses` finds here what makes a loss of its own known: `objective` and `Parameter` (docs/own.md).
"""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from goalgrid import rooms

if (_hidden := rooms.find_ours()) and sys.argv[:1] != ["-m"]:  # the user of `python -m goalgrid` imports nothing
    warnings.warn(
        f"goalgrid has packages of the same names, which `import` finds instead of {' and '.join(_hidden)}. "
        "Rename these files if you import them.",
        stacklevel=2,
    )

if TYPE_CHECKING:
    from grid.objectives.own import parameter as Parameter  # noqa: N812
    from grid.uses import objective
    from objectives.triplets import Triplets

__all__ = ["Parameter", "Triplets", "objective"]

_PUBLIC = {
    "Parameter": ("grid.objectives.own", "parameter"),
    "Triplets": ("objectives.triplets", "Triplets"),
    "objective": ("grid.uses", "objective"),
}
"""Where each public name is defined: module and name. A module is imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'goalgrid' has no attribute {name!r}")
    module, defined = _PUBLIC[name]
    return getattr(import_module(module), defined)
