"""Comparisons with papers: a grid next to reported numbers, and a paper's table filled with our numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle

from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts.captions import METRIC_NAMES, blocks_of, by_direction, caption, conditions, lacking
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.reference.filled import QUOTED, Filled, Quoted
from goalgrid.results.reference.matching import Difference, Match, changes, nothing_reported, reported
from goalgrid.results.reference.reading import Paper, Printed, paper_table
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.legend import Legend, Sentence, letters

SIDES = ("ours", "paper")
COLUMNS = (Label("ours"), Label("paper"), Label("difference"))


def with_ours(paper: Paper, draw: Callable[[Paper], Table], *, against: bool) -> Table:
    """Return a paper's table; if it has our scores, add notes and, with `against`, the paper's numbers."""
    if not isinstance(paper, Filled):
        return draw(paper)
    source = replace(paper, quoting=not against)
    table = noted(draw(source), source)
    return interleaved(table, draw(Paper(source.name, source.rows)), source) if against else table


def noted(table: Table, source: Filled) -> Table:
    """Add the caption, and mark rows whose training differs, or may differ, from the paper's.

    Marks are letters, since numbers in brackets are references in the papers' rows. Differences that all rows with
    scores share are listed once, without a mark.
    """
    rows = list(source.differs.values())
    trained = [notes for cell, notes in source.differs.items() if cell not in source.undecided]
    shared = set(trained[0]).intersection(*trained) if len(trained) > 1 else set[str]()
    notes = dict.fromkeys(chain.from_iterable(rows))
    marks = dict(zip((note for note in notes if note not in shared), letters(), strict=False))
    of_text = {"; ".join(notes): notes for notes in rows}

    def marked(row: Row) -> Row:
        texts = dict.fromkeys(entry.keys.get("differs", "") for entry in row.entries if entry)
        remarks = dict.fromkeys(note for text in texts for note in of_text.get(text, ()) if note in marks)
        mark = ", ".join(sorted(map(marks.__getitem__, remarks), key=lambda letter: (len(letter), letter)))
        return replace(row, mark=f"[{mark}]" if mark else "", notes=tuple(remarks))

    blocks = tuple(replace(block, rows=tuple(map(marked, block.rows))) for block in table.blocks)
    legend = replace(
        _legend(source),
        shared=tuple(note for note in notes if note in shared),
        marks={f"[{letter}]": note for note, letter in marks.items()},
    )
    return replace(table, blocks=blocks, legend=legend)


def _legend(source: Filled) -> Legend:
    content, missing = source.content, lacking(source.measured, "numbers")
    trials = f"{counted(source.untrained, 'trial')} missing from the table's grid"
    if source.untrained != len({trial_id for score in source.measured for trial_id, _ in score.missing}):
        trials += ", including trials that these depend on, and trials of rows filled with other settings"
    quoted = sum(isinstance(value, Quoted) for value in source.values)
    title = Sentence(
        f"{'; '.join(filter(None, [content.heading, content.legend, content.note]))}.",
        f"{content.title}; rows of {content.source}",
    )
    to_train = f"To train the {trials}: goalgrid run --paper {source.name}." if missing and source.untrained else ""
    sentences = [
        conditions(source.used, source.measured, "Ours: ", content.marks),
        Sentence("", content.legend) if content.legend else "",
        Sentence(
            f"{QUOTED}: {counted(quoted, 'number')} as printed in the paper; no grid here trains or measures them.",
            f"{QUOTED}: as printed, not trained here.",
        )
        if quoted
        else "",
        source.speed_note,
        missing,
        Sentence(to_train, printed=""),
        *(Sentence(text, printed="") for text in source.scores.of_other_code(source.used)),
    ]
    return Legend.of(title, sentences)


def interleaved(ours: Table, printed: Table, source: Filled) -> Table:
    """Show each column of the paper's table twice: first with our scores, then as printed."""

    def both(label: Label) -> tuple[Label, ...]:
        return tuple(Label(f"{label.text} {side}", label.latex and f"{label.latex} {side}") for side in SIDES)

    def entries(row: Row, his: Row) -> tuple[TableEntry | None, ...]:
        places = chain.from_iterable(map(_judged, row.entries, his.entries))
        sided = zip(places, cycle(SIDES), strict=False)
        return tuple(entry and replace(entry, keys={**entry.keys, "column": side}) for entry, side in sided)

    groups = tuple(
        replace(
            group,
            columns=tuple(chain.from_iterable(map(both, group.columns))),
            keys=tuple({**keys, "column": side} for keys in group.keys for side in SIDES),
        )
        for group in ours.groups
    )
    blocks = tuple(
        Block(
            block.title,
            tuple(replace(row, entries=entries(row, his)) for row, his in zip(block.rows, other.rows, strict=True)),
        )
        for block, other in zip(ours.blocks, printed.blocks, strict=True)
    )
    runs = f"; ± is the standard deviation over {source.content.runs} runs" if source.content.runs else ""
    paper = f"Paper: as printed{runs}."
    return replace(ours, groups=groups, blocks=blocks, legend=ours.legend.saying(paper))


def _judged(ours: TableEntry | None, theirs: TableEntry | None) -> tuple[TableEntry | None, TableEntry | None]:
    """Return our entry, marked as above or below the paper's, and the paper's entry."""
    if ours and theirs and isinstance(ours.score, Score) and isinstance(theirs.score, Printed):
        ours = replace(ours, verdict=Difference(ours.score, theirs.score).verdict)
    return ours, theirs


def against(cells: Sequence[Cell], scores: Scores, metric: str) -> Table:
    """Lay out our and the papers' values of one metric for every cell; raise UserError if no paper reports any."""
    titles = by_direction(metric)
    metrics = list(titles)
    match = reported(cells, scores, metrics)
    if not match.results:
        raise UserError(nothing_reported(cells, scores, metrics))
    groups = tuple(
        Group(title, COLUMNS, keys=tuple({"metric": name, "column": column.text} for column in COLUMNS))
        for name, title in titles.items()
    )
    notes = dict.fromkeys(filter(None, (match.notes(cell, name) for cell in cells for name in metrics)))
    marks = {note: f"[{number}]" for number, note in enumerate(notes, 1)}
    blocks = blocks_of(cells, lambda block: (_row(cell, scores, match, metrics, marks) for cell in block.values()))
    legend = caption(cells, scores, METRIC_NAMES[metric]).saying(_matched(cells, match, metrics))
    legend = replace(legend, marks={mark: note for note, mark in marks.items()})
    return Table("against", Label("objective"), groups, blocks, legend)


def _row(cell: Cell, scores: Scores, match: Match, metrics: list[str], marks: Mapping[str, str]) -> Row:
    entries: list[TableEntry | None] = []
    for metric in metrics:
        ours, result = scores.of(cell, metric), match.of(cell, metric)
        keys = {**scores.axes(cell), "metric": metric, **({"reported_in": result.name} if result else {})}
        note = match.notes(cell, metric)
        theirs = [result.value, Difference(ours, result.value)] if result else [None, None]
        for column, value, remark in zip(COLUMNS, [ours, *theirs], ["", note, note], strict=True):
            about = {**keys, "column": column.text, **({"note": remark} if remark else {})}
            mark = marks[remark] if remark and column is COLUMNS[1] else ""
            verdict = value.verdict if isinstance(value, Difference) else ""
            entries.append(TableEntry(value, about, mark=mark, verdict=verdict) if value else None)
    return Row(Label(cell.objective), tuple(entries))


def _matched(cells: Sequence[Cell], match: Match, metrics: list[str]) -> Sentence:
    """Name the papers' tables, count the cells with a reported number, and explain ± of a difference."""
    matched = [cell for cell in cells if any(match.of(cell, metric) for metric in metrics)]
    changed = changes(matched)
    warning = f" Settings that differ from the published recipe: {', '.join(changed)}." if changed else ""
    difference = f"Difference: ours - paper ± Welch's standard error, if both have a spread.{warning}"
    sources = ", ".join(paper_table(name).source for name in match.sources)
    return Sentence(
        f"Paper: as printed in {', '.join(match.sources)}, for {len(matched)} of {len(cells)} cells. {difference}",
        f"Paper: as printed in {sources}. {difference}",
    )
