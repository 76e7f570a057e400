"""A paper's table with our scores: marks at rows that differ, a caption that counts all numbers, theirs beside ours."""

from dataclasses import replace
from itertools import chain
from string import ascii_lowercase

from goalgrid.grid.errors import counted
from goalgrid.results.layouts.captions import selections, spread
from goalgrid.results.records.scores import counted_reasons
from goalgrid.results.reference.filled import QUOTED, Filled, Quoted
from goalgrid.results.tables.table import Block, Group, Label, Row, Table, TableEntry

SIDES = ("ours", "paper")


def noted(table: Table, source: Filled) -> Table:
    """The table with its caption, and marks at the rows whose training differs from the source of the printed numbers.

    Marks are letters, since numbers in brackets are references in the papers' rows. What all rows with scores share has
    no mark.
    """
    rows = [notes for notes in source.differs.values() if notes or len(source.differs) > 1]
    shared = set(rows[0]).intersection(*rows) if len(rows) > 1 else set[str]()
    notes = dict.fromkeys(chain.from_iterable(source.differs.values()))
    marks = dict(zip((note for note in notes if note not in shared), ascii_lowercase, strict=False))
    of_text = {"; ".join(notes): notes for notes in source.differs.values()}

    def marked(row: Row) -> Row:
        texts = [dict(entry.keys).get("differs", "") for entry in row.entries if entry]
        letters = sorted({marks[note] for text in texts for note in of_text.get(text, ()) if note in marks})
        return replace(row, mark=f"[{', '.join(letters)}]" if letters else "")

    blocks = tuple(replace(block, rows=tuple(map(marked, block.rows))) for block in table.blocks)
    remarks = [f"All rows trained here: {note}." for note in notes if note in shared]
    remarks += [f"[{letter}]: {note}." for note, letter in marks.items()]
    return replace(table, blocks=blocks, caption=" ".join([caption(source), *remarks]))


def caption(source: Filled) -> str:
    """Which table, what our numbers are, how many are quoted, missing or of other code, and what trains the missing."""
    used, scores, content = source.used, source.scores, source.content
    variants = " and ".join(dict.fromkeys(cell.trials[0].shared.objective.variant for cell in used))
    what = f"{spread(used, interval=scores.interval)}; {selections(used)}; {variants} variant of the objectives"
    quoted = sum(isinstance(value, Quoted) for value in source.values)
    measured = source.measured if source.quoting else [score for score in source.measured if score.expected]
    empty, partly = sum(not score.n for score in measured), sum(0 < score.n < score.expected for score in measured)
    lacking = [f"{empty} of {counted(len(measured), 'number')} are missing (--)"] * bool(empty)
    lacking += [f"{partly} lack seeds (n/expected)"] * bool(partly)
    why = counted_reasons(dict(pair for score in measured for pair in score.missing).values())
    differing, done = scores.of_other_code(used)
    sentences = [
        f"{'; '.join(filter(None, [content.heading, content.note]))}.",
        f"Ours: {what}; best in bold.",
        f"{QUOTED}: {counted(quoted, 'number')} as printed, which no grid here trains or measures." if quoted else "",
        f"{' and '.join(lacking)}: {why}. To train them: goalgrid run --paper {source.name}." if lacking else "",
        *(f"{count} of {done} trials were {what}." for what, count in differing.items()),
    ]
    return " ".join(filter(None, sentences))


def interleaved(ours: Table, printed: Table, source: Filled) -> Table:
    """Each column of the paper's table twice: with our scores, then as printed."""

    def both(label: Label) -> tuple[Label, ...]:
        return tuple(Label(f"{label.text} {side}", label.latex and f"{label.latex} {side}") for side in SIDES)

    def sided(entry: TableEntry | None, side: str) -> TableEntry | None:
        return entry and replace(entry, keys=(*entry.keys, ("column", side)))

    def entries(*rows: Row) -> tuple[TableEntry | None, ...]:
        pairs = zip(*(row.entries for row in rows), strict=True)
        return tuple(sided(entry, side) for pair in pairs for entry, side in zip(pair, SIDES, strict=True))

    groups = tuple(Group(group.title, tuple(chain.from_iterable(map(both, group.columns)))) for group in ours.groups)
    blocks = tuple(
        Block(
            block.title,
            tuple(replace(row, entries=entries(row, his)) for row, his in zip(block.rows, other.rows, strict=True)),
        )
        for block, other in zip(ours.blocks, printed.blocks, strict=True)
    )
    runs = f"; ± is the standard deviation over {source.content.runs} runs" if source.content.runs else ""
    return replace(ours, groups=groups, blocks=blocks, caption=f"{ours.caption} Paper: as printed{runs}.")
