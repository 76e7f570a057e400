"""Parquet as printed: in every layout, the numbers of each cell are those that the reader of the table sees."""

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.results import renderers
from goalgrid.results.layouts import LAYOUTS, arrange
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.records.rounding import written
from goalgrid.results.records.scores import Quantity
from goalgrid.results.reference.reading import table_names
from goalgrid.results.tables import Table, TableEntry
from tests.cases import every

from .test_published import drawn, synthetic

FULL = expand(load("goal-table3-coco"))
BOTH = expand(load("goal-table3-coco", ['objectives=["con_con","con_nca"]']))
BOTH += expand(load("goal-table3-f30k", ['objectives=["con_con","con_nca"]']))


def of_grids() -> dict[str, Table]:
    """A table in every layout, with gaps, and in the layouts that options make."""
    scores = synthetic([*FULL, *BOTH])
    tables = {layout: arrange(FULL[:20], scores, layout=layout) for layout in LAYOUTS}
    tables["two data sets"] = arrange(BOTH, scores, layout="methods")
    tables["against"] = arrange(FULL, scores, against="paper")
    tables["speed"] = arrange(FULL, scores, layout="losses", metric="parameters,kpps")
    tables["seeds"] = arrange(FULL, scores, axes=Axes(rows=("objective",), columns=("seed", "metric")))
    return tables


TABLES = of_grids() | {name: drawn(name) for name in table_names()}


def text(entry: TableEntry, row: dict[str, object]) -> str:
    """What a reader sees, by the numbers alone."""
    if not {"mean", "difference"} & row.keys():
        return str(row["text"])
    sign, names = ("+", ("difference", "standard_error")) if "difference" in row else ("", ("mean", "std"))
    mean, spread = (row[name] for name in names)
    if not isinstance(mean, float):
        return "--"
    if isinstance(entry.score, Quantity):
        return Quantity(mean).text
    return written(mean, sign=sign) + (f" ± {written(spread)}" if isinstance(spread, float) else "")


@every("name", TABLES)
def test_every_number_is_that_of_the_printed_cell(name: str) -> None:
    table = TABLES[name]
    content = pq.read_table(io.BytesIO(renderers.encoded(table, "parquet")))
    lines = [(block.title, row) for block in table.blocks for row in block.rows]
    frame = content.to_pylist()
    assert [(row["block"], row["row"]) for row in frame] == [(title, row.label.text) for title, row in lines]
    columns: dict[str, dict[str, str]] = {head: {} for head in table.heads}
    for field in content.schema:
        if field.metadata and b"value" in field.metadata:
            about = {key.decode(): value.decode() for key, value in field.metadata.items()}
            assert field.name.endswith(f"_{about['value']}")
            columns[about["column"]][about["value"]] = field.name
    for (_, row), numbers in zip(lines, frame, strict=True):
        for entry, names in zip(row.entries, columns.values(), strict=True):
            values = {key: numbers[column] for key, column in names.items()}
            if entry:
                assert text(entry, values) == entry.score.text.rstrip("×"), (row.label, names)
            else:
                assert set(values.values()) == {None}


def test_a_column_says_what_it_holds() -> None:
    content = renderers.DATA["parquet"](TABLES["goal-table6"])
    assert content.column_names[2:5] == ["method", "pre_train", "data_size"]
    assert [field.type for field in content.schema][2:5] == [pa.string(), pa.bool_(), pa.float64()]
    assert content["data_size"].to_pylist()[-4:] == [5.6e6, 14e6, 4e6, 4e6]
    assert content.column_names[5:8] == ["i2t_r1_coco-5k_mean", "i2t_r1_coco-5k_std", "i2t_r1_coco-5k_n"]
    assert content.schema.field("t2i_r10_f30k-1k_mean").metadata == {
        b"column": "Flickr 1K test Text → Image R@10".encode(), b"metric": b"t2i_r10", b"unit": b"percent",
        b"direction": b"text to image", b"protocol": b"f30k-1k", b"value": b"mean",
    }  # fmt: skip
    assert renderers.DATA["parquet"](TABLES["goal"]).column_names[:4] == ["block", "row", "pair", "i2t_r1_con_mean"]
    assert content.schema.metadata[b"caption"].startswith(b"GOAL Table 6: ")


def test_pandas_reads_it_as_the_paper_prints_it(tmp_path: Path) -> None:
    renderers.write(TABLES["goal-table3-coco"], "parquet", tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet").set_index(["block", "pair"])
    means = frame.filter(like="i2t").filter(like="mean").loc["VSE++ (ResNet152, fine-tuned)"]
    assert means.loc["sig-ms"].tolist() == [43.6, 43.8, 43.8]
    assert frame["i2t_r1_con_n"].unique().tolist() == [3]
