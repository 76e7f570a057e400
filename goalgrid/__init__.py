"""goalgrid: ablation grids for image-text retrieval objectives, from one command to the paper's table.

In Python, `goalgrid.load(GRID)` returns a grid that can be planned, run and shown (docs/python.md). User files named by
a grid's `uses` register their losses, poolings, encoders and scorers with `objective`, `pooling`, `image_encoder`,
`text_encoder`, `scorer`, `Parameter`, `Triplets` and `log` (docs/own.md). Importing this package imports neither torch
nor Ray nor pandas: public names are imported on first use.
"""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goalgrid.api import LoadedGrid as LoadedGrid
    from goalgrid.api import load as load
    from goalgrid.api import paper_table as paper_table
    from goalgrid.grid.errors import UserError as UserError
    from goalgrid.grid.objectives.parameters import Parameter as Parameter
    from goalgrid.grid.registration import image_encoder as image_encoder
    from goalgrid.grid.registration import objective as objective
    from goalgrid.grid.registration import pooling as pooling
    from goalgrid.grid.registration import scorer as scorer
    from goalgrid.grid.registration import text_encoder as text_encoder
    from goalgrid.grid.step_log import log as log
    from goalgrid.objectives.triplets import Triplets as Triplets

PUBLIC = {
    "load": "goalgrid.api:load",
    "paper_table": "goalgrid.api:paper_table",
    "LoadedGrid": "goalgrid.api:LoadedGrid",
    "objective": "goalgrid.grid.registration:objective",
    "pooling": "goalgrid.grid.registration:pooling",
    "image_encoder": "goalgrid.grid.registration:image_encoder",
    "text_encoder": "goalgrid.grid.registration:text_encoder",
    "scorer": "goalgrid.grid.registration:scorer",
    "log": "goalgrid.grid.step_log:log",
    "Parameter": "goalgrid.grid.objectives.parameters:Parameter",
    "Triplets": "goalgrid.objectives.triplets:Triplets",
    "objectives": "goalgrid.objectives",
    "UserError": "goalgrid.grid.errors:UserError",
}
"""Maps each public name to `module:name` where it is defined, or to the module itself."""

_GRID = find_spec("goalgrid.grid")  # inside this folder or next to it, not in another checkout that is installed
if not _GRID or Path(str(_GRID.origin)).parents[1] not in Path(__file__).parents[:2]:
    raise ImportError(
        f"{__path__[0]} lacks the symbolic links to goalgrid's packages: this checkout was unpacked from a zip or "
        "cloned with core.symlinks=false. Create them with: make links. Or pip install . and work in another folder."
    )
__all__ = [*PUBLIC, "__version__"]
__version__ = version("goalgrid")


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'goalgrid' has no attribute {name!r}; it has {', '.join(PUBLIC)}")
    return resolve_name(PUBLIC[name])


def __dir__() -> list[str]:
    return __all__
