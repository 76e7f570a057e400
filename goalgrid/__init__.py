"""goalgrid: ablation grids for image-text retrieval objectives, from one command to the paper's table.

In Python, `goalgrid.load(GRID)` gives a grid that can be planned, run and shown (docs/python.md). A file that a grid
`uses` finds here what makes its losses, poolings, encoders and scorers known: `objective`, `pooling`, `image_encoder`,
`text_encoder`, `scorer`, `Parameter` and `Triplets` (docs/own.md). Importing this package imports neither torch nor Ray
nor pandas: a public name is imported when it is first used.
"""

import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from goalgrid import rooms

_hidden = rooms.find_ours()

if TYPE_CHECKING:
    import objectives as objectives
    from goalgrid.loaded_grid import LoadedGrid as LoadedGrid
    from goalgrid.loaded_grid import load as load
    from grid.errors import UserError as UserError
    from grid.objectives.own_loss import parameter as Parameter  # noqa: F401, N812
    from grid.offers import image_encoder as image_encoder
    from grid.offers import objective as objective
    from grid.offers import pooling as pooling
    from grid.offers import scorer as scorer
    from grid.offers import text_encoder as text_encoder
    from objectives.triplets import Triplets as Triplets

PUBLIC = {
    "load": ("goalgrid.loaded_grid", "load"),
    "LoadedGrid": ("goalgrid.loaded_grid", "LoadedGrid"),
    "objective": ("grid.offers", "objective"),
    "pooling": ("grid.offers", "pooling"),
    "image_encoder": ("grid.offers", "image_encoder"),
    "text_encoder": ("grid.offers", "text_encoder"),
    "scorer": ("grid.offers", "scorer"),
    "Parameter": ("grid.objectives.own_loss", "parameter"),
    "Triplets": ("objectives.triplets", "Triplets"),
    "objectives": ("objectives", ""),
    "UserError": ("grid.errors", "UserError"),
}
"""Public names, each with the module that defines it, and its name there; without a name, the module itself."""

__all__ = [*PUBLIC, "__version__"]
__version__ = version("goalgrid")


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'goalgrid' has no attribute {name!r}; it has {', '.join(PUBLIC)}")
    if _hidden:  # said to who uses Python, not by the command line and its processes
        warnings.warn(
            f"`import` finds packages of goalgrid, which have the same names, instead of {' and '.join(_hidden)}. "
            "Rename these files if you import them.",
            stacklevel=2,
        )
        _hidden.clear()
    place, defined = PUBLIC[name]
    module = import_module(place)
    return getattr(module, defined) if defined else module


def __dir__() -> list[str]:
    return __all__
