"""A table as data, unrounded: as printed, with numbers for each column; or long, a row a number with its trials."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.forms import setting_text
from goalgrid.grid.groups import grouped
from goalgrid.results.records.history import unit_of
from goalgrid.results.tables import TABLES, Table, shared_keys

VALUES = {
    **dict.fromkeys(["n", "expected"], pa.int32()),
    **dict.fromkeys(["mean", "std", "difference", "standard_error"], pa.float64()),
    **dict.fromkeys(["like_best", "quoted"], pa.bool_()),
    "text": pa.string(),
    "trials": pa.list_(pa.string()),
    "missing": pa.string(),
}
"""Columns that say what a value is; all others say what it is of."""

UNITS = {"parameters": "millions of weights", "kpps": "thousands of pairs a second", "oips": "operating items a second"}
NUMBERS = ("mean", "std", "n", "difference", "standard_error", "like_best", "quoted")
"""What the printed form says of a value, in columns of their own."""
TELLING = ("metric", "triplet_weight", "protocol", "column")
"""Keys after whose values a column is called, the first ones first."""

SIGNS = {"✓": True, "×": False}
"""Signs that papers print for yes and no."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMB]?)")
UNITS_OF_SIZE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}


def tidy(table: Table) -> pa.Table:
    """One row an entry: what is printed in front of it and above it, its axes, and what its value knows.

    `block` and `heading` are all that is above it; a paper's columns of words have their names, as in the printed form.
    """
    words = _words(table)
    lines = [(block.title, row) for block in table.blocks for row in block.rows]
    rows: list[dict[str, Any]] = [
        {**{field.name: values[line] for field, values in words}, **entry.tidy(), "block": title, "heading": head}
        for line, (title, row) in enumerate(lines)
        for head, entry in zip(table.heads, row.entries, strict=True)
        if entry
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    types = {**{field.name: field.type for field, _ in words}, **VALUES}
    types |= {name: _struct([row.get(name, {}) for row in rows]) for name in TABLES if name in names}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names], table.about("parquet-long"))
    return pa.Table.from_pylist([_fitting(row, types) for row in rows], schema=schema)


def _struct(tables: Sequence[Mapping[str, Any]]) -> pa.DataType:
    """A field a setting, of the type that all its values have; of values of several types, and of tables, a text."""
    kinds = grouped((name, type(value)) for table in tables for name, value in table.items() if value is not None)
    names = dict.fromkeys(name for table in tables for name in table)
    types = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64()}
    types |= dict.fromkeys([frozenset({float}), frozenset({int, float})], pa.float64())
    return pa.struct([(name, types.get(frozenset(kinds.get(name, ())), pa.string())) for name in names])


def _fitting(row: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The row with its settings as their columns hold them: as texts where these have texts."""
    tables = {
        name: {
            key: setting_text(value) if types[name].field(key).type == pa.string() else value
            for key, value in row[name].items()
        }
        for name in TABLES
        if name in row
    }
    return {**row, **tables}


def printed(table: Table) -> pa.Table:
    """One row a printed row, under its block and its name, in GOAL's matrix also its pair weight; columns as printed.

    A paper's columns of words keep their titles and have types: signs are booleans, sizes such as 5.6M numbers. Each
    printed column of numbers is several: `i2t_r1_con_mean`, `_std`, `_n`, and what else of `NUMBERS` its values know;
    `_text` if they are words. The metadata of each say what is printed above, metric, unit, direction and protocol.
    """
    rows = [(block.title, row) for block in table.blocks for row in block.rows]
    columns = [[row.entries[place] for _, row in rows] for place in range(len(table.heads))]
    shared = [shared_keys(column) for column in columns]
    notes = [dict.fromkeys(entry.keys.get("differs") for entry in row.entries if entry) for _, row in rows]
    differs = ["; ".join(filter(None, texts)) or None for texts in notes]
    pairs = [shared_keys(row.entries).get("pair_weight") for _, row in rows]
    fields = [pa.field("block", pa.string()), pa.field("row", pa.string())]
    data: list[Sequence[object]] = [[title for title, _ in rows], [row.label.text for _, row in rows]]
    for field, of_rows in _words(table):
        fields, data = [*fields, field], [*data, of_rows]
    for title, texts in (("pair", pairs), ("differs", differs)):
        if any(texts):
            fields, data = [*fields, pa.field(title, pa.string())], [*data, texts]
    for name, head, column, keys in zip(_names(shared, table.heads), table.heads, columns, shared, strict=True):
        values = [entry.tidy() if entry else {} for entry in column]
        known = [key for key in NUMBERS if any(value.get(key) is not None for value in values)]
        words = not known and any(value.get("text", "--") != "--" for value in values)
        differences = any("difference" in value for value in values)
        always = ["text"] if words else ["difference", "standard_error"] if differences else ["mean", "std", "n"]
        for key in dict.fromkeys([*always, *known]):
            fields.append(pa.field(f"{name}_{key}", VALUES[key], metadata=_about(head, keys, key)))
            data.append([value.get(key, False if value and key == "quoted" else None) for value in values])
    schema = pa.schema(fields, table.about("parquet"))
    return pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(data, fields, strict=True)], schema=schema)


def _words(table: Table) -> list[tuple[pa.Field, list[object]]]:
    """The columns of words that a table has beyond its rows' names: `data_size`, with values by row."""
    rows = [row.words for block in table.blocks for row in block.rows]
    titles = table.stub_heads if table.words else []
    columns = [_typed([words[place].text for words in rows]) for place in range(len(titles))]
    return [
        (pa.field(re.sub(r"\W+", "_", title.lower()), kind, metadata={"column": title}), values)
        for title, (kind, values) in zip(titles, columns, strict=True)
        if title
    ]


def _typed(texts: Sequence[str]) -> tuple[pa.DataType, list[object]]:
    """Texts of a column as values, and their type; - is null.

    >>> _typed(["×", "✓"]), _typed(["5.6M", "-"]), _typed(["0.25", "random"])[0]
    ((DataType(bool), [False, True]), (DataType(double), [5600000.0, None]), DataType(string))
    """
    if set(texts) <= SIGNS.keys():
        return pa.bool_(), [SIGNS[text] for text in texts]
    sizes = [SIZE.fullmatch(text) for text in texts]
    if all(size or text == "-" for size, text in zip(sizes, texts, strict=True)) and any(sizes):
        return pa.float64(), [round(float(size[1]) * UNITS_OF_SIZE[size[2]], 6) if size else None for size in sizes]
    return pa.string(), [None if text == "-" else text for text in texts]


def encoded(table: pa.Table) -> bytes:
    """As a Parquet file; caption and command stand in the schema's metadata."""
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def _names(columns: Sequence[Mapping[str, str]], heads: Sequence[str]) -> list[str]:
    """Names that tell the columns apart: `i2t_r1_con`; where keys do not, or a column has no entry, what is printed.

    A key that separates no further columns is left out, but for the metric.
    """
    chosen = list[str]()
    for name in dict.fromkeys([*TELLING, *(key for keys in columns for key in keys)]):
        before, now = (len({tuple(map(keys.get, some)) for keys in columns}) for some in (chosen, [*chosen, name]))
        chosen += [name] * (now > before or name == "metric")
    names = ["_".join(filter(None, map(keys.get, chosen))) or head for keys, head in zip(columns, heads, strict=True)]
    return names if len(set(names)) == len(names) else list(heads)


def _about(head: str, keys: Mapping[str, str], what: str) -> dict[str, str]:
    metric = keys.get("metric", "")
    unit = {"n": "seeds", "quoted": "", "like_best": "", "text": ""}.get(what, UNITS.get(metric) or unit_of(metric))
    direction = {"i2t": "image to text", "t2i": "text to image"}.get(metric[:3], "")
    known = {
        "column": head,
        "metric": metric,
        "unit": unit,
        "direction": direction,
        "protocol": keys.get("protocol", ""),
        "value": what,
    }
    return {name: text for name, text in known.items() if text}
