"""Notes of a table in a paper: as many as fit below it; the rest goes to its caption or to its author."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goalgrid.grid.errors import counted
from goalgrid.results.tables import Table
from goalgrid.results.tables.legend import letters
from goalgrid.results.tables.paper_words import PaperWords


@dataclass(frozen=True)
class Notes:
    """Notes below a table, in its caption, and only for the author."""

    title: str
    keyed: tuple[tuple[str, str], ...] = ()
    """Pairs of letter and note as LaTeX; the letter is empty for notes on all rows."""
    in_caption: tuple[str, ...] = ()
    """Sentences that do not fit below the table, as LaTeX."""
    aside: tuple[str, ...] = ()
    """Notes for the author, including those that do not fit, as plain text."""
    letter_of: Mapping[str, str] = field(default_factory=dict)
    """The letter of each explained remark."""

    def letters(self, remarks: Iterable[str]) -> str:
        """Return the letters of the explained remarks, `a,b`."""
        return ",".join(sorted(self.letter_of[remark] for remark in remarks if remark in self.letter_of))


def notes_of(table: Table, words: PaperWords, room: int) -> Notes:
    """Arrange the notes of a table, with at most `room` characters below it; if `room` is 0, all are for the author.

    The order is: sentences, notes on all rows, remarks on single rows (with letters), as many as fit. The last note
    counts the rows with further remarks, all of which are in the column `differs` of data formats.
    """
    legend, remarks = table.legend, _rows_of_remarks(table)
    printed = [_sentence(words.named(sentence.in_paper)) for sentence in legend.sentences if sentence.in_paper]
    printed[1:] = sorted(printed[1:], key=lambda text: text[0].isalnum())  # signs come first
    aside = [sentence.text for sentence in legend.sentences if not sentence.in_paper]
    everywhere = words.named(f"All rows: {'; '.join(legend.shared)}.") if legend.shared else ""
    every = [*([everywhere] if everywhere else []), *(f"{mark}: {note}." for mark, note in legend.marks.items())]
    title = words.latex(_sentence(words.named(legend.title.in_paper)))
    if not room:
        return Notes(title, aside=(*aside, *printed, *every))
    least = _more(len(set().union(*remarks.values(), *([_trained(table)] if everywhere else []))))
    below = list[str]()
    while printed and _length([*below, printed[0], least]) <= room:
        below.append(printed.pop(0))
    shared = everywhere if _length([*below, everywhere, least]) <= room else ""
    below += [shared] * bool(shared)
    unsaid = _trained(table) if everywhere and not shared else set[Place]()
    explained, more = _explained(remarks, unsaid, words, room - _length(below))
    letter_of = dict(zip(explained, letters(), strict=False))
    keyed = [("", " ".join(map(words.latex, below)))] if below else []
    keyed += [(letter, words(f"{remark}.")) for remark, letter in letter_of.items()]
    keyed += [("", more)] if more else []
    return Notes(title, tuple(keyed), tuple(map(words.latex, printed)), (*aside, *(every if more else [])), letter_of)


Place = tuple[int, int]
"""Indices of block and row."""


def _rows_of_remarks(table: Table) -> dict[str, set[Place]]:
    """Map each remark to its rows, in order of appearance."""
    rows: dict[str, set[Place]] = {}
    for number, block in enumerate(table.blocks):
        for place, row in enumerate(block.rows):
            for remark in (*row.notes, *(note for entry in row.entries if entry for note in entry.notes)):
                rows.setdefault(remark, set()).add((number, place))
    return rows


def _trained(table: Table) -> set[Place]:
    """Return the rows whose training here differs from the paper's."""
    rows = [(number, place, row) for number, block in enumerate(table.blocks) for place, row in enumerate(block.rows)]
    return {
        (number, place) for number, place, row in rows if any("differs" in entry.keys for entry in row.entries if entry)
    }


def _explained(
    remarks: Mapping[str, set[Place]], unsaid: set[Place], words: PaperWords, room: int
) -> tuple[list[str], str]:
    """Return as many remarks as fit, and the note that counts the rows of the others."""
    by_length = sorted(remarks, key=lambda remark: len(words.plain(remark)))
    for count in range(len(by_length), -1, -1):
        explained = [remark for remark in remarks if remark in by_length[:count]]
        more = _more(len(unsaid.union(*(remarks[remark] for remark in by_length[count:]))))
        if _length([more, *(f"a {words.plain(remark)}." for remark in explained)]) <= room or not count:
            break
    return explained, more


def _more(rows: int) -> str:
    if not rows:
        return ""
    return f"Further notes on {counted(rows, 'row')} are in the supplement."


def _sentence(text: str) -> str:
    """Add a full stop, and a capital letter unless the text begins with a name such as `con_cir`."""
    text = f"{text.rstrip('.,:; ')}."
    return text[0].upper() + text[1:] if re.match(r"[a-z]+(?![\w^-])", text) else text


def _length(texts: Iterable[str]) -> int:
    return sum(len(text) + 1 for text in texts if text)
