"""GOAL Table 6: a row a method, the data sets side by side, each with the recalls of both directions."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell, once
from goalgrid.results.layouts.captions import Layout, TableSource, beside, caption, entry, recalls
from goalgrid.results.tables.table import Block, Group, Label, Row, Table


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    methods: dict[tuple[object, ...], dict[str, Cell]] = {}
    groups: dict[str, tuple[list[Group], list[str]]] = {}
    for cell in once(cells):
        place = scores.protocol_of(cell)
        groups.setdefault(place, recalls(scores.metrics, asked, place))
        methods.setdefault((cell.recipe, cell.objective, cell.swept), {})[place] = cell
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
