"""The protocol by which a grid that names a paper's table is shown: the table's."""

from goalgrid.grid import catalog
from goalgrid.grid.gridfile import Grid
from goalgrid.results.reference.reading import paper_table, table_names

_SET = "dataset.protocol"


def usual_protocol(grid: Grid) -> str | None:
    """The protocol of the first table that the grid names; None: each trial's own.

    Only data sets with several protocols leave a choice. A protocol that the grid itself sets or sweeps stands.

    >>> from goalgrid.grid.gridfile import load
    >>> usual_protocol(load("selhn-table8")), usual_protocol(load("selhn-table9")), usual_protocol(load("demo"))
    ('coco-5x1k', 'coco-5k', None)
    """
    if _SET in grid.settings:
        return None
    parts = (part for name in grid.tables if name in table_names() for part in paper_table(name).parts)
    several = [name for name in grid.datasets if len(catalog.protocols(name)) > 1]
    return next((part.protocol for part in parts if part.dataset in several), None)
