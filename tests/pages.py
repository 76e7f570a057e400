"""Pages of docs/ that the tests write: `python -m tests.pages settings > docs/settings.md`."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from goalgrid.grid.groups import grouped
from goalgrid.listings import paper_rows
from goalgrid.listings.settings_list import SWEEPABLE
from goalgrid.listings.settings_list import settings as every_setting
from goalgrid.results.analysis.claims import PRINTED, ClaimSource, document, judged
from goalgrid.results.analysis.documents import as_markdown
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.records.history import unit_of
from goalgrid.results.records.record import SCHEMA
from goalgrid.results.reference.coverage import ORIGINS, PaperRow
from goalgrid.results.reference.reading import PAPERS, Paper, paper_table, table_names
from goalgrid.results.renderers.parquet import UNITS, printed
from goalgrid.results.tables import columns

SETTINGS = """# Settings

After reading this page you know every setting that a grid file may set, with its type, default, unit and meaning. The
tests wrote it from the models that check grid files: `python -m tests.pages settings`. `goalgrid settings NAME`
shows a single setting, or all that begin with NAME.

A setting of a data set, a model, a training or an objective belongs in `[set]`, or with a list of values in `[sweep]`;
on the command line it is `--set NAME=VALUE`. A recipe may have another value than the default: `goalgrid recipes NAME`
shows its values. "Of" names the encoders, scorers or objectives that have it. "Read with" says what a training needs to
read it; a setting that no trial of a grid reads is refused. Settings of `[data.NAME]`, `[resources]` and
`[reliability]` change no trial. A value that may be none is written `"none"`, e.g. in a grid that extends another.
"""
TABLES = """# The rows of the papers' tables

After reading this page you know which rows of the four papers' tables you can train with goalgrid, and by which grid.
The tests wrote it: `python -m tests.pages tables`. `goalgrid tables selhn-table5` shows a single table,
`goalgrid tables selhn` the tables of a paper. [The tables with your numbers](paper-tables.md) are another page.

**Trainable here**: a shipped grid fills all numbers of the row that are measured here. The page does not say which
rows were trained: what trials here reached is in [papers.md](papers.md) and [flickr8k.md](flickr8k.md). The line names
the grid, the recipe and the objective. **Quoted**: the paper took the numbers from elsewhere and did not train them; a
number in brackets is the reference in the paper. A quoted row that a grid trains counts as trainable here; where
recipe and objective are shipped, but no grid fills the row, the line names both. **Not possible**: the paper trained
the row, and no grid here does; the line says why.

**Differs** says how the training here differs from the source of the numbers, which is the paper for its own rows, and
for a quoted row the model's own paper and code: settings, a part that stands in for another, our reading of what a
paper leaves open, the words of captions, the images that choose the checkpoint. What is in parentheses is the source's.
What all rows of a table share is above the table. It is empty where we know of no difference. Captions of more than 60
words are cut here in all rows, and in no source that we know. More on GOAL's objectives: [variants](variants.md).
"""
CLAIMS = """# The papers' claims

After reading this page you know which sentences of the four papers are supported by the papers' own tables. The
tests wrote this page: `python -m tests.pages claims`. `goalgrid claims goal demo` also tests the claims of a
paper on the trials of a grid; `--comparisons` shows each comparison. What trials here say: [papers.md](papers.md).
"""
PARQUET = """# The Parquet files

After reading this page you know where the numbers of a grid are, how to read them, and what each column means. The
tests wrote it from the code that writes the files: `python -m tests.pages parquet`.

| in `runs/grids/NAME/` | a row is | written also by |
|---|---|---|
| `tables/LAYOUT.parquet`: wide | a printed row | `goalgrid table NAME --format parquet` |
| `tables/LAYOUT.long.parquet`: long | a number, and its trials | `goalgrid table NAME --format parquet-long` |
| `results.parquet` | a finished trial | `goalgrid export`, as `records.parquet` |

`goalgrid run` writes all three at its end, and names the folder. LAYOUT is the layout's name, `goal` for a grid of
GOAL's matrix; `--runs DIR` takes another folder than `runs`. CSV and JSON have the columns of the long form. The
schema of a file holds the meaning and unit of each column, and the table's caption, layout and command, which pandas
has as `wide.attrs`.

```python
import pandas as pd

wide = pd.read_parquet("runs/grids/demo/tables/goal.parquet")
long = pd.read_parquet("runs/grids/demo/tables/goal.long.parquet")
trials = pd.read_parquet("runs/grids/demo/results.parquet")
joined = long.explode("trials").merge(trials, left_on="trials", right_on="trial_id", suffixes=("", "_of_trial"))
```

```python
import polars as pl

wide = pl.read_parquet("runs/grids/demo/tables/goal.parquet")
long = pl.read_parquet("runs/grids/demo/tables/goal.long.parquet")
trials = pl.read_parquet("runs/grids/demo/results.parquet")
joined = long.explode("trials").join(trials, left_on="trials", right_on="trial_id")
```

```python
import duckdb

wide = duckdb.sql("FROM 'runs/grids/demo/tables/goal.parquet'")
long = duckdb.sql("SELECT *, unnest(trials) AS trial_id FROM 'runs/grids/demo/tables/goal.long.parquet'")
trials = duckdb.sql("FROM 'runs/grids/demo/results.parquet'")
joined = duckdb.sql("SELECT * FROM long JOIN trials USING (trial_id)")
```

`joined` has each number with each trial behind it. `block` and `row` join the wide form with the long one.

The wide files of two grids in one layout have the same columns, so that `pd.concat([a, b])`, `pl.concat([a, b])` and
`duckdb.sql("FROM read_parquet(['a.parquet', 'b.parquet'])")` stack them; those of `results.parquet` are the same in all
grids. Columns may differ in the layout `methods`, which has a column for each protocol of the grid, with other
`--columns` or `--metric`, in papers' tables, and in long files, which have a column for each swept setting. Then
`pl.concat([a, b], how="diagonal")` and `read_parquet([...], union_by_name = true)` stack them.
"""
WIDE = """A value on which all numbers of a row agree is a column of the row, null where they differ. NAME is the
metric, then what the layout has in its columns: `i2t_r1`; in GOAL's matrix the triplet weight, `i2t_r1_con`; in the
layout `methods` and in papers' tables with data sets side by side the protocol, `i2t_r1_coco_5k`; with `--against
paper` `i2t_r1_ours`; with seeds as columns `i2t_r1_seed_0`. Where a row is one cell, it has one `n` and one
`expected`, the most that one of its numbers has; else each NAME has its own. The metadata of a column hold what is
printed above it, metric, direction and protocol."""
LONG = """In every file are `block`, `row`, `dataset`, `protocol`, `recipe`, `objective`, `metric`, `n`, `expected`,
`mean`, `std`, `quoted`, `text`, `trials`, `missing` and `heading`; the others are there where a value has them.
SETTING is a swept setting by its dotted name, e.g. `train.lr`."""
RESULTS = """`settings` and `environment` are JSON; `goalgrid.load(NAME).records()` gives settings as columns."""
WORDS = {"data_size": "images"}
"""Units of the papers' columns of words."""


def settings() -> Iterator[str]:
    yield from SETTINGS.splitlines()
    before = ""
    for setting in every_setting():
        section = setting.place if setting.place != SWEEPABLE else setting.name.rpartition(".")[0]
        if section != before:
            yield from ("", f"## {section}", "")
            yield from ("| setting | type | default | unit | meaning |", "|---|---|---|---|---|")
        before = section
        kind = setting.type + (f": {setting.allowed}" if setting.allowed else "")
        read = f" Read with {' and '.join(setting.read_with)}." if setting.read_with else ""
        of = f" Of {', '.join(f'`{name}`' for name in setting.of)}." if setting.of else ""
        meaning = f"{setting.meaning}.{read}".replace("*", r"\*") + of
        cells = (f"`{setting.name}`", kind, setting.default_text, setting.unit, meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def tables() -> Iterator[str]:
    rows = paper_rows.rows()
    yield from TABLES.splitlines()
    yield from ("", paper_rows.count(rows), "", f"| table | rows | {' | '.join(ORIGINS)} |", "|---|---|---|---|---|")
    for table, members in grouped((row.table, row) for row in rows).items():
        counts = Counter(row.origin for row in members)
        numbers = (len(members), *(counts[origin] for origin in ORIGINS))
        yield f"| [{table}](#{table.lower()}) | {' | '.join(map(str, numbers))} |"
    for table, members in grouped((row.table, row) for row in rows).items():
        yield from ("", f"## {table}", "", f"{paper_table(table).heading}.", "")
        if shared := paper_rows.shared_differences(members):
            yield from (f"All rows that are trainable here differ: {'; '.join(shared)}.", "")
        yield from ("| row | here | differs |", "|---|---|---|")
        for row in members:
            title = f"{row.block}: " if row.block else ""
            cells = (
                title + row.label,
                paper_rows.here(_as_code(row)),
                "; ".join(phrase for phrase in row.differs if phrase not in shared),
            )
            yield f"| {' | '.join(map(_plain, cells))} |"


def claims() -> Iterator[str]:
    yield from CLAIMS.splitlines()
    yield from ("", *as_markdown(document([ClaimSource(PRINTED, judged(PAPERS))])).splitlines())


def parquet() -> Iterator[str]:
    yield from PARQUET.splitlines()
    units = {name: unit for name in METRIC_NAMES if (unit := unit_of(name)) != "percent"} | UNITS
    yield from ("", f"Metrics are in percent, but for {'; '.join(f'`{name}`: {units[name]}' for name in units)}.")
    words = _of_words()
    of_row = columns.PLACE | words | columns.PAPER | columns.OF | columns.PARTS
    of_row |= {"swept": columns.SWEPT, "differs": columns.DIFFERS}
    of_row |= {name: columns.VALUES[name] for name in columns.COUNTS}
    yield from ("", "## Wide", "", *WIDE.splitlines())
    yield from _listed(of_row | {f"NAME_{name}": column for name, column in columns.VALUES.items()})
    yield from ("", "## Long", "", *LONG.splitlines())
    of_settings = {name: columns.Column(pa.struct([]), text) for name, text in columns.TABLES.items()}
    yield from _listed(words | columns.LONG | {"SETTING": columns.SETTING} | of_settings)
    yield from ("", "## Results", "", *RESULTS.splitlines())
    about = ((field, field.metadata[b"meaning"].decode(), field.metadata[b"unit"].decode()) for field in SCHEMA)
    yield from _listed({field.name: columns.Column(field.type, meaning, unit) for field, meaning, unit in about})


def _of_words() -> dict[str, columns.Column]:
    """The columns of words of all papers' tables, as their files have them."""
    fields = {}
    for name in table_names():
        source = Paper.read(name)
        for field in printed(arrange(list(source.rows), source)).schema:
            title = (field.metadata or {}).get(b"column")
            if title and b"value" not in field.metadata:
                meaning = f"the column `{title.decode()}` of a paper's table"
                fields[field.name] = columns.Column(field.type, meaning, WORDS.get(field.name, ""))
    return fields


def _listed(of: Mapping[str, columns.Column]) -> Iterator[str]:
    yield from ("", "| column | type | unit | meaning |", "|---|---|---|---|")
    for name, column in of.items():
        kind = "struct" if pa.types.is_struct(column.type) else str(column.type).replace("<item: ", "<")
        cells = (f"`{name}`", kind, column.unit, column.meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


PAGES = {"settings": settings, "tables": tables, "claims": claims, "parquet": parquet}


def _as_code(row: PaperRow) -> PaperRow:
    """The row with its names between backticks; several objectives are a row of GOAL's matrix."""
    first, *others = row.objectives or ("",)
    objectives = (f"{first.partition('_')[0]}_*" if others else first,) if first else ()
    names = {"grids": row.grids, "recipes": row.recipes, "objectives": objectives}
    return replace(row, **{field: tuple(f"`{name}`" for name in values) for field, values in names.items()})


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*") if "`" not in text else text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in PAGES[sys.argv[1]]())
