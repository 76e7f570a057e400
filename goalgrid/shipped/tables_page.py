"""`goalgrid tables`: for each row of the papers' tables, whether it can be trained here and by which grid."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from goalgrid.grid.errors import UserError, unknown
from goalgrid.reading.papers import shipped
from goalgrid.results.reference.coverage import ORIGINS, TRAINED, PaperRow, paper_rows
from goalgrid.results.reference.reading import PAPERS, paper_table, table_names

WITHOUT_NUMBERS = "goal-table1"
"""It names losses."""


def rows(name: str | None = None) -> list[PaperRow]:
    """The rows of a table, or of all tables of a paper; None: of all. UserError: no table or paper has this name."""
    known = [table for table in table_names() if table != WITHOUT_NUMBERS]
    chosen = [table for table in known if name in (None, table, table.partition("-")[0])]
    if not chosen:
        raise UserError(unknown("table of a paper", name, [*known, *PAPERS], hint="All: goalgrid tables."))
    return [row for table in chosen for row in paper_rows(table, shipped())]


def lines(rows: Sequence[PaperRow]) -> Iterator[str]:
    """A line for each row below the name of its table, and the count."""
    width = max(len(row.label) for row in rows)
    for table, members in _by_table(rows):
        yield f"{table}: {paper_table(table).title}"
        block = ""
        for row in members:
            if row.block != block:
                yield f"  {row.block}"
            block = row.block
            yield f"  {row.label:{width}}  {'; differs: '.join(filter(None, [_here(row), '; '.join(row.differs)]))}"
        yield ""
    yield count(rows)


def count(rows: Sequence[PaperRow]) -> str:
    """How many rows have which origin, and how many of the rows that the papers trained themselves can be trained."""
    counts = Counter(row.origin for row in rows)
    trained_by_papers = [row for row in rows if not row.quoted]
    trained = sum(row.origin == TRAINED for row in trained_by_papers)
    return (
        f"{len(rows)} rows: {', '.join(f'{counts[origin]} {origin}' for origin in ORIGINS)}; "
        f"of the {len(trained_by_papers)} rows that the papers trained themselves, {trained} are {TRAINED}. "
        f"Of the {counts[TRAINED]} rows that are {TRAINED}, {sum(bool(row.differs) for row in rows)} differ from "
        "their source in something that we know of."
    )


def markdown(rows: Sequence[PaperRow]) -> Iterator[str]:
    """The page docs/tables.md, with these rows."""
    yield from PAGE.splitlines()
    yield from ("", count(rows), "", f"| table | rows | {' | '.join(ORIGINS)} |", "|---|---|---|---|---|")
    for table, members in _by_table(rows):
        counts = Counter(row.origin for row in members)
        numbers = (len(members), *(counts[origin] for origin in ORIGINS))
        yield f"| [{table}](#{table.lower()}) | {' | '.join(map(str, numbers))} |"
    for table, members in _by_table(rows):
        yield from ("", f"## {table}", "", f"{paper_table(table).heading}.", "")
        yield from ("| row | here | differs |", "|---|---|---|")
        for row in members:
            title = f"{row.block}: " if row.block else ""
            cells = title + row.label, _here(row, mark="`"), "; ".join(row.differs)
            yield f"| {' | '.join(map(_plain, cells))} |"


def _here(row: PaperRow, mark: str = "") -> str:
    """How the row can be had here."""
    quoted = f"quoted from {row.quoted}" if row.quoted else ""
    what = ", ".join([*(f"{mark}{name}{mark}" for name in row.recipes), _objectives(row.objectives, mark)])
    if not row.grids:
        why = f"{what} are shipped, but no grid fills the row" if row.objectives else row.why
        return ": ".join(filter(None, [quoted or row.origin, why]))
    grids = ", ".join(f"{mark}{grid}{mark}" for grid in row.grids)
    return f"{grids}: {what}" + (f"; the paper's number is {quoted}" if quoted else "")


def _objectives(objectives: Sequence[str], mark: str) -> str:
    if len(objectives) > 1:  # a whole row of GOAL's matrix
        return f"{mark}{objectives[0].partition('_')[0]}_*{mark}"
    return ", ".join(f"{mark}{name}{mark}" for name in objectives)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*") if "`" not in text else text.replace("|", "\\|")


def _by_table(rows: Iterable[PaperRow]) -> list[tuple[str, list[PaperRow]]]:
    tables: dict[str, list[PaperRow]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    return list(tables.items())


PAGE = """# The rows of the papers' tables

After reading this page you know which rows of the four papers' tables you can train with goalgrid, and by which grid.
The program wrote it: `goalgrid tables --format markdown`. `goalgrid tables selhn-table5` shows a single table,
`goalgrid tables selhn` the tables of a paper. [The tables with your numbers](paper-tables.md) are another page.

**Trained here**: a shipped grid fills all numbers of the row that are measured here. The line names the grid, the
recipe and the objective. **Quoted**: the paper took the numbers from elsewhere and did not train them; a number in
brackets is the reference in the paper. A quoted row that a grid trains counts as trained here; where recipe and
objective are shipped, but no grid fills the row, the line names both. **Not possible**: the paper trained the row, and
no grid here does; the line says why.

**Differs** says how the training here differs from the source of the numbers: another schedule than a quoted row's own
paper has, a part that stands in for another, our reading of what a paper leaves open. It is empty where we know of no
difference. What GOAL leaves open of its objectives concerns all of its rows: [variants](variants.md)."""
