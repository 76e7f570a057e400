"""GOAL Table 6: a row a method, the data sets side by side, each with the recalls of both directions."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell, once
from goalgrid.grid.groups import nested
from goalgrid.results.layouts.captions import Layout, TableSource, beside, caption, entry, recalls
from goalgrid.results.tables.table import Block, Label, Row, Table


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    cells = once(cells)
    methods = nested(((cell.recipe, cell.objective, cell.swept), scores.protocol_of(cell), cell) for cell in cells)
    groups = {place: recalls(scores.metrics, asked, place) for place in dict.fromkeys(map(scores.protocol_of, cells))}
    shown = [(place, name) for place, (_, names) in groups.items() for name in names]
    rows = tuple(
        Row(
            Label(scores.label(next(iter(method.values())))),
            tuple(entry(method[place], scores, name) if place in method else None for place, name in shown),
        )
        for method in methods.values()
    )
    columns = tuple(group for parts, _ in groups.values() for group in parts)
    block = Block(" and ".join(groups), rows)
    return Table(
        "methods", Label("method"), columns, (block,), caption(cells, scores, beside("Recall (%)", asked, scores))
    )


LAYOUT = Layout(layout)
