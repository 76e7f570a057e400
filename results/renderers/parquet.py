"""A table as unrounded data: in the printed (wide) form, or in the long form with one row per number."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.groups import grouped
from goalgrid.grid.syntax import setting_text
from goalgrid.results.records.history import unit_of
from goalgrid.results.tables import Block, Table, TableEntry, shared_keys
from goalgrid.results.tables.columns import (
    ALWAYS,
    COUNTS,
    DIFFERS,
    IS_OF,
    LONG,
    METRIC_UNIT,
    OF,
    PAPER,
    PARTS,
    PLACE,
    SETTING,
    SWEPT,
    TABLES,
    VALUES,
    Column,
)

UNITS = {
    "parameters": "millions of weights",
    "kpps": "thousands of pairs per second",
    "oips": "operating items per second",
}
TOLD = ("metric", "pair", "triplet", "objective", "dataset", "protocol", "recipe", "column")
"""Keys whose value suffices as a column name; for other keys, the name comes first: `seed_0`."""

FileColumn = tuple[pa.Field, Sequence[object]]

SIGNS = {"✓": True, "×": False}
"""Signs for yes and no in papers."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMB]?)")
UNITS_OF_SIZE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}


def tidy(table: Table) -> pa.Table:
    """Build one row per entry, with its row and column titles, its axes, and its value with statistics.

    The columns are `columns.LONG`; a paper's text columns keep their names, as in the printed form.
    """
    words = _words(table)
    lines = [(_titled(block), row) for block in table.blocks for row in block.rows]
    rows: list[dict[str, Any]] = [
        {**{field.name: values[line] for field, values in words}, **entry.tidy()}
        | {"block": title, "row": row.label.text, "heading": head}
        for line, (title, row) in enumerate(lines)
        for head, entry in zip(table.heads, row.entries, strict=True)
        if entry
    ]
    there = dict.fromkeys(name for row in rows for name in row)
    fields = {name: column.field(name) for name, column in LONG.items() if name in there or name in ALWAYS}
    fields |= {field.name: field for field, _ in words}
    swept = [name for name in there if name not in (*fields, *TABLES)]
    fields |= {name: SETTING.field(name) for name in swept}
    fields |= {name: _settings(name, [row.get(name, {}) for row in rows]) for name in TABLES if name in there}
    order = dict.fromkeys([*(field.name for field, _ in words), *IS_OF, *swept, *LONG, *TABLES])
    names = [name for name in order if name in fields]
    schema = _schema([fields[name] for name in names], table, "parquet-long")
    return pa.Table.from_pylist([_fitting(row, schema) for row in rows], schema=schema)


def _settings(name: str, tables: Sequence[Mapping[str, Any]]) -> pa.Field:
    """Build a struct with one field per setting; values of mixed types, and tables, become text."""
    kinds = grouped((name, type(value)) for table in tables for name, value in table.items() if value is not None)
    names = dict.fromkeys(name for table in tables for name in table)
    types = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64()}
    types |= dict.fromkeys([frozenset({float}), frozenset({int, float})], pa.float64())
    of_setting = [(key, types.get(frozenset(kinds.get(key, ())), pa.string())) for key in names]
    return Column(pa.struct(of_setting), TABLES[name]).field(name)


def _fitting(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Convert a row's values to the types of their columns."""
    tables = {
        name: {
            key: setting_text(value) if schema.field(name).type.field(key).type == pa.string() else value
            for key, value in row[name].items()
        }
        for name in TABLES
        if name in row
    }
    return {**row, **tables, **({"seed": int(row["seed"])} if "seed" in row else {})}


def printed(table: Table) -> pa.Table:
    """Build one row per printed row, and several columns per printed column: `i2t_r1_con_mean`, `_std`.

    A paper's text columns keep their titles and are typed: signs become booleans, sizes such as 5.6M numbers. Column
    names depend only on the layout, so they are the same for every grid. If each row belongs to one cell, `n` and
    `expected` are columns of the row. The metadata of a column contain its printed heading, metric, unit, direction,
    protocol and meaning.
    """
    data = dict[str, pa.Array]()
    fields = dict[str, pa.Field]()
    for field, values in (*_of_rows(table), *_of_columns(table)):
        if field.name not in fields:  # a paper's column of words, as `loss`, comes before what we know of the row
            fields[field.name], data[field.name] = field, pa.array(values, field.type)
    return pa.Table.from_pydict(data, schema=_schema(list(fields.values()), table, "parquet"))


def _of_rows(table: Table) -> Iterator[FileColumn]:
    """Yield the columns that describe the rows: their place in the table, and the keys that all their entries share."""
    rows = [(block, row) for block in table.blocks for row in block.rows]
    yield PLACE["block"].field("block"), [_titled(block) for block, _ in rows]
    yield PLACE["row"].field("row"), [row.label.text for _, row in rows]
    yield from _words(table)
    of_blocks = {id(block): shared_keys(entry for row in block.rows for entry in row.entries) for block in table.blocks}
    shared = [shared_keys(row.entries) or of_blocks[id(block)] for block, row in rows]
    spread = {name for keys in table.keys for name in keys}
    spread |= {"objective", "loss"} if spread & {"pair", "triplet", "objective"} else set()
    for name, column in ((PAPER if _of_paper(table) else {}) | OF).items():
        if name not in spread:
            yield column.field(name), [keys.get(name) or None for keys in shared]
    for name, column in PARTS.items():
        if any(name in row.keys for _, row in rows):
            values = [row.keys.get(name) for _, row in rows]
            yield column.field(name), [int(value) if value and name == "seed" else value for value in values]
    swept = [" ".join(f"{name}={value}" for name, value in keys.items() if name not in LONG) for keys in shared]
    yield SWEPT.field("swept"), [text or None for text in swept]
    if _of_paper(table):
        notes = [dict.fromkeys(entry.keys.get("differs") for entry in row.entries if entry) for _, row in rows]
        yield DIFFERS.field("differs"), ["; ".join(filter(None, texts)) or None for texts in notes]
    if not _several(table):
        counts = [_counts(row.entries) for _, row in rows]
        yield from ((VALUES[name].field(name), [of_row[name] for of_row in counts]) for name in COUNTS)


def _of_columns(table: Table) -> Iterator[FileColumn]:
    """Yield the columns of numbers."""
    rows = [row for block in table.blocks for row in block.rows]
    marked = any(entry.like_best is not None for entry in table.entries())
    several, of_paper = _several(table), _of_paper(table)
    for place, (name, head, keys) in enumerate(zip(_names(table), table.heads, table.keys, strict=True)):
        values = [entry.tidy() if entry else {} for entry in (row.entries[place] for row in rows)]
        for what in _shown(keys, several=several, of_paper=of_paper, marked=marked):
            field = VALUES[what].field(f"{name}_{what}", **_about(head, keys, what))
            yield field, [value.get(what, False if what == "quoted" else None) for value in values]


def _of_paper(table: Table) -> bool:
    return any("paper" in entry.keys for entry in table.entries())


def _several(table: Table) -> bool:
    """Return whether a row has several cells, or both our and a paper's numbers."""
    return any(keys.keys() - {"metric"} for keys in table.keys)


def _titled(block: Block) -> str:
    """Return the title above a block; for a paper's block without a title, the table's name: `SelHN Table 1`."""
    keys = shared_keys(entry for row in block.rows for entry in row.entries)
    return block.title or f"{keys['paper']} Table {keys['table']}"


def _counts(entries: Iterable[TableEntry | None]) -> dict[str, object]:
    """Return the largest seed counts among a row's own numbers, or among the paper's if it has no others."""
    values: list[dict[str, Any]] = [entry.tidy() for entry in entries if entry]
    ours = [value for value in values if not value["quoted"]] or values
    numbers = {name: [value[name] for value in ours if value.get(name) is not None] for name in COUNTS}
    return {name: max(counts, default=None) for name, counts in numbers.items()}


def _shown(keys: Mapping[str, str], *, several: bool, of_paper: bool, marked: bool) -> list[str]:
    """Return which data columns a printed column becomes, independent of its values."""
    side = keys.get("column")
    if keys.get("metric") == "known":
        return ["text"]
    if side == "difference":
        return ["difference", "standard_error"]
    counts = [name for name in COUNTS if several and (name, side) != ("expected", "paper")]
    marks = ["like_best"] * (marked and side != "paper")
    return ["mean", "std", *counts, *["quoted"] * (of_paper and not side), *marks]


def _words(table: Table) -> list[FileColumn]:
    """Return a table's text columns in addition to the row names, e.g. `data_size`, with one value per row."""
    rows = [row.words for block in table.blocks for row in block.rows]
    titles = table.stub_heads if table.words else []
    columns = [_typed([words[place].text for words in rows]) for place in range(len(titles))]
    return [
        (Column(kind, "as printed below its title").field(identifier(title), column=title), values)
        for title, (kind, values) in zip(titles, columns, strict=True)
        if title
    ]


def _typed(texts: Sequence[str]) -> tuple[pa.DataType, list[object]]:
    """Convert the texts of a column to typed values; `-` becomes null.

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
    """Encode a table as a Parquet file, with caption and command in the schema's metadata."""
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def _names(table: Table) -> list[str]:
    """Name each printed column by its keys, metric first: `i2t_r1_con`; a column without keys, by its heading."""
    names = list[str]()
    for keys, head in zip(table.keys, table.heads, strict=True):
        ordered = sorted(keys.items(), key=lambda item: item[0] != "metric")
        parts = [identifier(value, "" if name in TOLD else name) for name, value in ordered if value != "difference"]
        name = identifier("_".join(parts) or head, next(iter(keys), "column"))
        numbered = chain([name], (f"{name}_{number}" for number in count(2)))
        names.append(next(free for free in numbered if free not in names))
    return names


def identifier(text: str, of: str = "") -> str:
    """Turn text into an identifier for Python and SQL, prefixed by `of` if needed.

    >>> identifier("coco-5k"), identifier("Text → Image"), identifier("0.5", of="objective.tau")
    ('coco_5k', 'text_image', 'objective_tau_0_5')
    """
    name = re.sub(r"\W+", "_", text.lower()).strip("_")
    return name if name.isidentifier() or not of else identifier(f"{of} {text}")


def _about(head: str, keys: Mapping[str, str], what: str) -> dict[str, str]:
    """Return the metadata of a number column, except its meaning."""
    metric = keys.get("metric", "")
    unit = UNITS.get(metric) or unit_of(metric) if metric and VALUES[what].unit == METRIC_UNIT else VALUES[what].unit
    direction = {"i2t": "image to text", "t2i": "text to image"}.get(metric[:3], "")
    protocol = keys.get("protocol", "")
    return {
        "unit": unit, "column": head, "metric": metric, "direction": direction, "protocol": protocol, "value": what
    }  # fmt: skip


def _schema(fields: Sequence[pa.Field], table: Table, kind: str) -> pa.Schema:
    """Build a file's schema, with metadata on the table that pandas reads as `attrs`.

    The metadata also let pandas read nullable integer columns such as `n` as integers instead of floats.
    """
    about = table.about(kind)
    whole = {pa.int32(): "Int32", pa.int64(): "Int64", pa.bool_(): "boolean"}
    typed = [(field.name, str(field.type), whole[field.type]) for field in fields if field.type in whole]
    columns = [
        {"name": name, "field_name": name, "pandas_type": of, "numpy_type": dtype, "metadata": None}
        for name, of, dtype in typed
        if not name.endswith("quoted")  # never null
    ]
    of_pandas = {"index_columns": [], "column_indexes": [], "columns": columns, "attributes": about}
    return pa.schema(fields, {**about, "pandas": json.dumps(of_pandas), "PANDAS_ATTRS": json.dumps(about)})
