"""The Parquet files: their numbers are those that a reader of the table sees, docs/parquet.md has their columns."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.layouts import LAYOUTS, arrange
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.records.rounding import written
from goalgrid.results.records.scores import Quantity
from goalgrid.results.reference.reading import paper_table, table_names
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
    paper = f"{paper_table(name).paper} Table {paper_table(name).table}" if name in table_names() else ""
    lines = [(block.title or paper, row) for block in table.blocks for row in block.rows]
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
                assert set(values.values()) <= {None, False}


def test_a_column_says_what_it_holds() -> None:
    content = renderers.DATA["parquet"](TABLES["goal-table6"])
    assert content.column_names[2:5] == ["method", "pre_train", "data_size"]
    assert [field.type for field in content.schema][2:5] == [pa.string(), pa.bool_(), pa.float64()]
    assert content["data_size"].to_pylist()[-4:] == [5.6e6, 14e6, 4e6, 4e6]
    about = content.schema.field("t2i_r10_f30k_1k_mean").metadata
    assert about.pop(b"meaning").startswith(b"mean over seeds")
    assert about == {
        b"column": "Flickr 1K test Text → Image R@10".encode(), b"metric": b"t2i_r10", b"unit": b"percent",
        b"direction": b"text to image", b"protocol": b"f30k-1k", b"value": b"mean",
    }  # fmt: skip
    assert content.schema.metadata[b"caption"].startswith(b"GOAL Table 6: ")


def test_pandas_reads_it_as_the_paper_prints_it(tmp_path: Path) -> None:
    renderers.write(TABLES["goal-table3-coco"], "parquet", tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet").set_index(["block", "pair"])
    means = frame.filter(like="i2t").filter(like="mean").loc["VSE++ (ResNet152, fine-tuned)"]
    assert means.loc["sig-ms"].tolist() == [43.6, 43.8, 43.8]
    assert frame["i2t_r1_con_n"].unique().tolist() == [3]


def wide(table: Table) -> pa.Table:
    return renderers.DATA["parquet"](table)


def long(table: Table) -> pa.Table:
    return renderers.DATA["parquet-long"](table)


ROW = ["block", "row", "dataset", "protocol", "recipe"]


def test_a_row_of_one_cell_says_what_it_is_of_and_over_how_many_seeds() -> None:
    content = wide(arrange(FULL[:2], synthetic(FULL[:1]), layout="listing"))
    assert content.column_names[:12] == [*ROW, "objective", "model", "loss", "swept", "n", "expected", "i2t_r1_mean"]
    first, second, *_ = content.drop_columns(["block", "model", "loss", "swept"]).to_pylist()
    assert list(first.values())[:7] == ["con_con", "coco", "coco-5k", "vsepp-r152", "con_con", 3, 3]
    assert list(second.values())[:8] == ["con_nca", "coco", "coco-5k", "vsepp-r152", "con_nca", 0, 3, None]


def test_a_grid_with_two_of_three_seeds_shows_it() -> None:
    rows = dict(synthetic(FULL[:1]).rows)
    del rows[FULL[0].trials[1].id]
    for layout, name in (("listing", ""), ("goal", "i2t_r1_con_")):
        row = wide(arrange(FULL[:1], replace(synthetic([]), rows=rows), layout=layout)).to_pylist()[0]
        assert (row[f"{name}n"], row[f"{name}expected"]) == (2, 3)


def test_a_row_of_the_matrix_has_its_pair_and_the_seeds_of_each_cell() -> None:
    content = wide(arrange(FULL[:1], synthetic(FULL[:1]), layout="goal"))
    names = [f"{way}_r1_{triplet}" for way in ("i2t", "t2i") for triplet in ("con", "nca", "cir")]
    numbers = [f"{name}_{what}" for name in names for what in ("mean", "std", "n", "expected")]
    assert content.column_names == [*ROW, "model", "pair", "swept", *numbers]
    assert content["pair"].to_pylist() == ["con", "lin", "sig", "lin-ms", "sig-ms"]
    assert content["recipe"].to_pylist() == ["vsepp-r152"] * 5
    assert content["i2t_r1_con_expected"].to_pylist() == [3, None, None, None, None]


FEW = expand(load("goal-table3-f30k", ['objectives=["sig-ms_cir"]', "seeds=[0]"]))[-1:]
ALIKE = {"goal": {}, "known": {}, "listing": {}, "losses": {}, "against": {"layout": None, "against": "paper"}}


@every(("layout", "options"), ALIKE.items())
def test_files_of_two_grids_in_a_layout_have_the_same_columns(layout: str, options: dict[str, Any]) -> None:
    files = [wide(arrange(cells, synthetic(cells), **({"layout": layout} | options))) for cells in (FULL, FEW)]
    assert files[0].schema.equals(files[1].schema)
    assert pa.concat_tables(files).num_rows > files[0].num_rows


def test_methods_name_the_protocol_of_a_single_data_set_too() -> None:
    alone, both = (wide(arrange(cells, synthetic(cells), layout="methods")) for cells in (FULL[:2], BOTH))
    assert "i2t_r1_coco_5k_mean" in alone.column_names
    assert {*alone.column_names} < {*both.column_names}
    assert pd.concat([alone.to_pandas(), both.to_pandas()])["i2t_r1_f30k_1k_n"].isna().sum() > 0


@every("name", TABLES)
def test_names_are_identifiers(name: str) -> None:
    names = wide(TABLES[name]).column_names
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []
    assert len({*names}) == len(names)


def test_values_of_an_axis_that_are_no_names_are_told_apart() -> None:
    swept = expand(load("goal-table3-coco", ['sweep={"objective.tau"=[-1,1,0.5]}', 'objectives=["con_nca"]']))
    scores = synthetic(swept)
    table = arrange(swept, scores, axes=Axes(rows=("objective",), columns=("objective.tau", "metric")))
    names = [name for name in wide(table).column_names if name.startswith("i2t") and name.endswith("_mean")]
    assert names == ["i2t_r1_objective_tau_1_mean", "i2t_r1_objective_tau_1_2_mean", "i2t_r1_objective_tau_0_5_mean"]
    rows = arrange(swept, scores, axes=Axes(rows=("metric",), columns=("seed",)))
    assert "seed_0_mean" in wide(rows).column_names
    assert {row["swept"] for row in wide(rows).to_pylist()} == {f"objective.tau={tau}" for tau in (-1, 1, 0.5)}


def test_whole_numbers_and_truths_stay_what_they_are_in_pandas(tmp_path: Path) -> None:
    for name in ("selhn-table1", "goal-table3-coco", "goal", "against"):
        for kind in ("parquet", "parquet-long"):
            renderers.write(TABLES[name], kind, tmp_path / "t.parquet")
            frame = pd.read_parquet(tmp_path / "t.parquet")
            types = {str(frame[column].dtype) for column in frame if re.search(r"(^|_)(n|expected)$", column)}
            assert types == {"Int32"}
            assert {str(frame[column].dtype) for column in frame if column.endswith("quoted")} <= {"bool"}
            assert not frame["block"].isna().any()
            assert frame["block"].str.len().min() > 0


def test_pandas_has_the_caption(tmp_path: Path) -> None:
    table = replace(TABLES["goal"], command="goalgrid table demo")
    for kind in ("parquet", "parquet-long"):
        renderers.write(table, kind, tmp_path / "t.parquet")
        frame = pd.read_parquet(tmp_path / "t.parquet")
        assert frame.attrs == {
            "layout": "goal", "caption": table.caption, "command": f"goalgrid table demo --format {kind}"
        }  # fmt: skip
        frame.to_parquet(tmp_path / "again.parquet")
        assert pd.read_parquet(tmp_path / "again.parquet").attrs == frame.attrs
        assert renderers.DATA[kind](table).to_pandas().attrs == frame.attrs


def test_a_number_is_quoted_where_a_paper_prints_it() -> None:
    rows = long(TABLES["against"]).to_pylist()
    assert {row["column"] for row in rows if row["quoted"]} == {"paper"}
    assert not any(long(TABLES["goal"])["quoted"].to_pylist())
    assert all(long(TABLES["selhn-table1"])["quoted"].to_pylist())
    printed = long(TABLES["2ad-table1"]).to_pylist()  # with dashes
    assert {row["quoted"] for row in printed if row["text"] == "--"} == {False}


PAGE = (Path(__file__).parents[3] / "docs" / "parquet.md").read_text(encoding="utf-8")
OPTIONAL = {
    "settings": {"train.lr": 0.1},
    "chosen": {"train.lr": 0.1},
    "validation": {"search": 100.0},
    "like_best": True,
}


def documented(section: str) -> dict[str, str]:
    """The types of the columns in a section of the page, by name."""
    (text,) = re.findall(rf"\n## {section}\n(.*?)(?=\n## |\Z)", PAGE, re.DOTALL)
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.+?) \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| `")
    return {name: kind.replace("&lt;", "<") for name, kind, _, _ in rows}


def type_of(field: pa.Field) -> str:
    """Without the names that Arrow and Parquet give to what is in a list or a map."""
    return re.sub(r" \('\w+'\)", "", re.sub(r"(?<=<)(item|element): ", "", str(field.type)))


def of_every_kind() -> Iterator[Table]:
    """Tables that together have every column that there is."""
    yield from TABLES.values()
    swept = expand(load("goal-table3-coco", ['sweep={"objective.tau"=[1,2]}', 'objectives=["con_nca","con_cir"]']))
    for rows, columns in ((("pair", "triplet"), "metric"), (("metric",), "objective"), (("seed",), "metric")):
        yield arrange(swept, synthetic(swept), axes=Axes(rows=rows, columns=(columns,)))
    for name in ("listing", "selhn-table1"):
        first, *blocks = TABLES[name].blocks
        entries = (
            entry and replace(entry, **OPTIONAL, keys={**entry.keys, "differs": "d", "note": "n"})
            for entry in first.rows[0].entries
        )
        yield replace(
            TABLES[name], blocks=(replace(first, rows=(replace(first.rows[0], entries=tuple(entries)),)), *blocks)
        )


def test_the_page_has_every_column_of_both_forms_and_no_other() -> None:
    for section, form in (("Wide", wide), ("Long", long)):
        known, met = documented(section), set[str]()
        for table in of_every_kind():
            for field in form(table).schema:
                name = field.name
                if name not in known:
                    ends = [key for key in known if key.startswith("NAME_") and name.endswith(key[4:])]
                    name = max(ends, key=len, default="SETTING")
                    assert section == "Wide" or field.name == "objective.tau", field.name
                assert known[name] == re.sub(r"^struct<.*", "struct", type_of(field)), field.name
                met.add(name)
        assert met == known.keys(), section


def test_the_page_has_every_column_of_the_results(trained: Home) -> None:
    schema = pq.read_schema(trained.grid("demo").results)
    assert documented("Results") == {field.name: type_of(field) for field in schema}


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_the_lines_of_the_page_read_and_join_all_files(
    library: str, trained: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    (lines,) = re.findall(rf"```python\n(import {library}.*?)```", PAGE, re.DOTALL)
    (tmp_path / "runs").symlink_to(trained.path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(lines, names)
    shapes = {name: names[name].shape for name in ("wide", "long", "trials", "joined")}
    assert {name: shape[0] for name, shape in shapes.items()} == {
        "wide": 5, "long": 8 if library == "duckdb" else 4, "trials": 4, "joined": 8
    }  # fmt: skip
    values = names["joined"].df() if library == "duckdb" else names["joined"]
    pairs = zip(values["mean"], values["test_i2t_r1"], values["metric"], values["objective"], strict=True)
    means: dict[str, list[float]] = {}
    for mean, value, metric, objective in pairs:
        if metric == "i2t_r1":
            means.setdefault(f"{objective} {mean}", []).append(value)
    assert {key: len(several) for key, several in means.items()} == dict.fromkeys(means, 2)
    for key, several in means.items():
        assert float(key.split()[1]) == pytest.approx(sum(several) / 2)


def test_polars_and_duckdb_stack_wide_files_of_two_grids(tmp_path: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    for name, cells in (("a", FULL), ("b", FEW)):
        renderers.write(arrange(cells, synthetic(cells), layout="goal"), "parquet", tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    a, b = map(polars.read_parquet, paths)
    assert polars.concat([a, b]).height == len(a) + len(b) == 15
    counted = duckdb.sql(f"SELECT count(i2t_r1_con_n), count(i2t_r1_nca_expected) FROM read_parquet({paths})")
    assert counted.fetchall() == [(10, 10)]


@every("kind", ["parquet", "parquet-long"])
def test_polars_and_duckdb_stack_files_whose_columns_differ(kind: str, tmp_path: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    swept = expand(load("goal-table3-coco", ['sweep={"objective.tau"=[1,2]}', 'objectives=["con_nca"]']))
    tables = arrange(FULL, synthetic(FULL), layout="goal"), arrange(swept, synthetic(swept), layout="listing")
    paths = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    for table, path in zip(tables, paths, strict=True):
        renderers.write(table, kind, Path(path))
    a, b = map(polars.read_parquet, paths)
    assert a.columns != b.columns
    shape = (len(a) + len(b), len({*a.columns, *b.columns}))
    assert polars.concat([a, b], how="diagonal").shape == shape
    assert duckdb.sql(f"FROM read_parquet({paths}, union_by_name = true)").shape == shape
