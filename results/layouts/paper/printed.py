"""A paper's table as printed: titles, text columns and number columns in the order of the table's file."""

import re
from collections.abc import Iterator
from itertools import groupby

from goalgrid.grid.groups import grouped
from goalgrid.results.layouts.captions import CUTS, TOTALS
from goalgrid.results.layouts.goal import symbol
from goalgrid.results.reference.reading import Paper, PrintedColumns, Result, cell_of
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry

NAMES = ("Method", "Model")
"""Titles of the text columns that name a row."""


def printed(source: Paper) -> Table:
    """Lay out the paper's numbers, or ours in the same places, with one row per printed row."""
    content = source.content
    titles = content.words
    named = next((place for place, title in enumerate(titles) if title in NAMES), 0)
    blocks = grouped((_title(results[0]), _row(source, results, named)) for results in content.rows(source.name))
    groups = tuple(group for part in content.parts for group in _groups(source, part))
    words = Group(Label(content.words_title), tuple(map(Label, titles)))
    shown = tuple(Block(title, tuple(rows)) for title, rows in blocks.items())
    return Table(content.layout, Label(" ".join(titles)), groups, shown, source.caption, words=(words,))


def _title(first: Result) -> str:
    """Return the title above a block; in GOAL's matrices, the model."""
    return first.block or (first.model if first.line.pair else "")


def _groups(source: Paper, part: PrintedColumns) -> Iterator[Group]:
    """Group adjacent columns of one direction under its name; a column without a direction is a group of its own."""
    directions = {"i2t": source.content.i2t, "t2i": source.content.t2i}
    for direction, columns in groupby(part.columns.split(), key=lambda column: column[:3]):
        names = tuple(columns)
        keys = tuple(_keys(source, part, column) for column in names)
        yield Group(Label(directions.get(direction, "")), tuple(map(_head, names)), Label(part.title), keys)


def _keys(source: Paper, part: PrintedColumns, column: str) -> dict[str, str]:
    """Return a column's metric and triplet weight, and its protocol if the table has several."""
    metric, _, triplet = column.partition(":")
    of = {"metric": metric, "triplet": triplet, "protocol": part.protocol if len(source.content.parts) > 1 else ""}
    return {name: value for name, value in of.items() if value}


def _head(column: str) -> Label:
    metric, _, triplet = column.partition(":")
    if triplet:
        return symbol("T", triplet)
    return Label(TOTALS.get(metric) or CUTS[metric[4:]])


def _row(source: Paper, results: tuple[Result, ...], named: int) -> Row:
    first, titles = results[0], source.content.words
    label, words = _named(first, titles)
    contest = dict(zip(titles, words, strict=True))[source.content.bests].text if source.content.bests else ""
    entries = tuple(_entry(source, result, contest) for result in results)
    group = contest or ("" if first.line.pair else model_of(first))
    keys = {"pair": first.line.pair} if first.line.pair else {}
    return Row(label, entries, words=words, named=named, group=group, keys=keys)


def model_of(result: Result) -> str:
    """Return a row's model without references, venues, stars and `ours`.

    >>> from goalgrid.results.reference.reading import results_of
    >>> sorted({model_of(result) for result in results_of("selhn-table2")})
    ['BFAN', 'SCAN', 'SGRAF']
    """
    return re.sub(r"\(\w+'\d\d\)| \[\d+\]| ours$|\*|(?<=\w) ?\+ .*", "", result.model).strip()


def _named(first: Result, titles: tuple[str, ...]) -> tuple[Label, tuple[Label, ...]]:
    """Return a row's name, and its entries in the text columns."""
    if first.line.pair:
        name = symbol("P", first.line.pair)
        return name, (name,)
    names = {"Model": first.model, "Loss": first.loss}
    texts = first.line.words or [""] * len(titles)
    shown = zip(texts, titles, strict=True)
    return Label(first.label), tuple(Label(text or names.get(title, first.name_in_row)) for text, title in shown)


def _entry(source: Paper, result: Result, contest: str) -> TableEntry:
    cell, pair = cell_of(result), result.line.pair
    triplet = result.loss.partition("_")[2] if pair else ""
    weights = {"pair_weight": pair, "triplet_weight": triplet} if pair else {}
    keys = {**source.axes(cell), **weights, "metric": result.metric}
    return TableEntry(source.of(cell, result.metric), keys, contest=contest)
