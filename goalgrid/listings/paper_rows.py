"""`goalgrid tables`: list for each row of the papers' tables whether it can be trained here, and by which grid."""

from collections import Counter
from collections.abc import Iterator, Sequence

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.groups import grouped
from goalgrid.results.reference.coverage import ORIGINS, TRAINED, PaperRow, paper_rows
from goalgrid.results.reference.differences import common
from goalgrid.results.reference.reading import PAPERS, paper_table, table_names
from goalgrid.state.papers import shipped

WITHOUT_NUMBERS = "goal-table1"
"""A table that only lists losses."""


def rows(name: str | None = None) -> list[PaperRow]:
    """Return the rows of a table or of a paper's tables (None: all); raise UserError if there is no such name."""
    known = [table for table in table_names() if table != WITHOUT_NUMBERS]
    chosen = [table for table in known if name in (None, table, table.partition("-")[0])]
    if not chosen:
        raise UserError(unknown("table of a paper", name, [*known, *PAPERS], hint="All: goalgrid tables."))
    return [row for table in chosen for row in paper_rows(table, shipped())]


def lines(rows: Sequence[PaperRow]) -> Iterator[str]:
    """Yield one line per row, under its table's title and the differences shared by all its rows, then the counts."""
    width = max(len(row.label) for row in rows)
    for table, members in grouped((row.table, row) for row in rows).items():
        yield f"{table}: {paper_table(table).title}"
        shared, block = shared_differences(members), ""
        if shared:
            yield f"  all rows that are {TRAINED} differ: {'; '.join(shared)}"
        for row in members:
            if row.block != block:
                yield f"  {row.block}"
            block = row.block
            differs = "; ".join(phrase for phrase in row.differs if phrase not in shared)
            yield f"  {row.label:{width}}  {'; differs: '.join(filter(None, [here(row), differs]))}"
        yield ""
    yield count(rows)


def shared_differences(rows: Sequence[PaperRow]) -> tuple[str, ...]:
    """Return the differences from the source that all trainable rows of a table share."""
    return common(row.differs for row in rows if row.grids)


def count(rows: Sequence[PaperRow]) -> str:
    """Count the rows by origin, and how many of the rows that the papers trained themselves can be trained."""
    counts = Counter(row.origin for row in rows)
    trained_by_papers = [row for row in rows if not row.quoted]
    trained = sum(row.origin == TRAINED for row in trained_by_papers)
    return (
        f"{len(rows)} rows: {', '.join(f'{counts[origin]} {origin}' for origin in ORIGINS)}; "
        f"of the {len(trained_by_papers)} rows that the papers trained themselves, {trained} are {TRAINED}. "
        f"Of the {counts[TRAINED]} rows that are {TRAINED}, {sum(bool(row.differs) for row in rows)} differ from "
        "their source in ways that we know of."
    )


def here(row: PaperRow) -> str:
    """Say how to reproduce the row here, or why that is not possible."""
    quoted = f"quoted from {row.quoted}" if row.quoted else ""
    row_of_matrix = [f"{row.objectives[0].partition('_')[0]}_*"] if len(row.objectives) > 1 else row.objectives
    what = ", ".join([*row.recipes, *row_of_matrix])
    if not row.grids:
        why = f"{what} are shipped, but no grid fills the row" if row.objectives else row.why
        return ": ".join(filter(None, [quoted or row.origin, why]))
    return f"{', '.join(row.grids)}: {what}" + (f"; the paper's number is {quoted}" if quoted else "")
