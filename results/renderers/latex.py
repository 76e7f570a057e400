"""A LaTeX table for a paper: booktabs, one column or page wide, with notes below."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from goalgrid.grid.errors import UserError
from goalgrid.results.renderers.table_notes import Notes, notes_of
from goalgrid.results.tables import Block, Label, Row, Table, TableEntry, TextFormat
from goalgrid.results.tables.notation import check_set, escape
from goalgrid.results.tables.paper_words import PaperWords

_NUMBER = re.compile(r"(?P<mean>[+-]?\d[\d,]*(?:\.\d+)?)(?: ± (?P<spread>\d+(?:\.\d+)?))?(?P<behind>.*)")

SISETUP = r"\sisetup{separate-uncertainty,detect-weight,retain-explicit-plus,retain-zero-uncertainty,tight-spacing}"
"""siunitx options: spreads after ±, and bold numbers like the surrounding text."""

COLUMN, TEXT = 229, 469
"""Widths of a column and of the page in a two-column paper, in points; other document classes are wider."""
ONE_COLUMN = 345
"""Text width of a single-column paper, in points."""
NOTE = 4.1
"""Average width of a character in a note, in points."""
TINY = 0.75
"""Below this scale, the author is advised to use the full page width."""
LINES = 3
"""Maximum number of lines of notes."""


@dataclass(frozen=True)
class Size:
    """A font size with the space between columns."""

    command: str
    character: float
    """Width of a digit, in points."""
    gap: int
    """`\\tabcolsep`, in points."""
    tight: bool = False
    """Whether ± has no spaces around it."""


SIZES = (
    Size("small", 4.7, 6),
    Size("small", 4.7, 3),
    Size("small", 4.7, 3, tight=True),
    Size("footnotesize", 4.3, 3, tight=True),
    Size("scriptsize", 4.0, 2, tight=True),
)
"""Sizes to try, from the largest, which is at most the size of body text."""
AIRY = SIZES[1]
"""A table that fits a column at this size is set in a column, unless the author chooses a width."""


def render(table: Table) -> str:
    r"""Render a `table` or `table*`, or with `plain` only the tabular; the first line names the required packages.

    In a wide table, first the spaces between columns and around ± shrink, then the font; if it is still too wide or
    too long, LaTeX scales it down. Nothing is ever scaled up. Notes meant only for the author are comments.

    Raises:
        UserError: pdflatex cannot typeset a character, or `--cite` names a reference that the table lacks.
    """
    style = table.latex
    words = PaperWords(table.names, _cited(table))
    width = style.width or ("column" if _points(table, words, AIRY) <= COLUMN else "text")
    size = next((size for size in SIZES if _points(table, words, size) <= _room(width)), SIZES[-1])
    points = _points(table, words, size)
    in_notes: float = min(_room(width), ONE_COLUMN, points if style.notes == "threeparttable" else ONE_COLUMN)
    notes = notes_of(table, words, 0 if style.plain else int(LINES * in_notes / NOTE))
    tabular = _tabular(table, words, notes, size)
    body = tabular if style.plain else _float(table, words, notes, size, width, tabular)
    packages = [
        *([] if style.plain else ["adjustbox"]),
        *(["amssymb"] if "\\checkmark" in "".join(body) else []),
        "booktabs",
        *(["siunitx"] if style.siunitx else []),
        *(["threeparttable"] if style.notes == "threeparttable" and notes.keyed else []),
    ]
    scale = _room(width) / points
    advice = f"scaled to about {100 * scale:.0f} % of its size; --width text gives it more room"
    small = [advice] if width == "column" and scale < TINY and not style.plain else []
    aside = [f"% {' '.join(line.split())}" for line in (*notes.aside, *small)]
    text = "\n".join([f"% needs \\usepackage{{{','.join(packages)}}}", *aside, *body]) + "\n"
    check_set("\n".join(body))
    return text


def _room(width: str) -> int:
    return COLUMN if width == "column" else TEXT


def _cited(table: Table) -> Mapping[str, str]:
    """Return the bibliography keys of `--cite` by reference number; raise UserError if no row has a number."""
    known = dict.fromkeys(
        number
        for block in table.blocks
        for row in block.rows
        for text in (*(word.text for word in row.words or (row.label,)), *map(_shown, row.entries))
        for number in re.findall(r"\[(\d+)\]", text)
    )
    for number, key in table.latex.cite.items():
        if number not in known:
            has = f"its references are {', '.join(sorted(known, key=int))}" if known else "it has no references"
            raise UserError(f"--cite {number}={key}: no row of this table has [{number}]; {has}.")
    return table.latex.cite


def _float(table: Table, words: PaperWords, notes: Notes, size: Size, width: str, tabular: Sequence[str]) -> list[str]:
    """Wrap the tabular in its environment, with notes, caption and label."""
    name = "table" if width == "column" else "table*"
    style, below = table.latex, list[str]()
    fitted = [
        "\\begin{adjustbox}{max totalsize={\\linewidth}{0.8\\textheight}}",
        *tabular,
        "\\end{adjustbox}",
    ]
    if style.notes == "threeparttable" and notes.keyed:
        lines = [f"\\item[{key}] {text}" if key else text for key, text in notes.keyed]
        fitted = [
            "\\begin{threeparttable}",
            "\\begin{tabular}{@{}c@{}}",  # whose width is that of the notes
            *fitted,
            "\\end{tabular}",
            "\\begin{tablenotes}[para,flushleft]",
            "\\footnotesize",
            *lines,
            "\\end{tablenotes}",
            "\\end{threeparttable}",
        ]
    elif notes.keyed:
        lines = [f"\\textsuperscript{{{key}}}\\,{text}" if key else text for key, text in notes.keyed]
        below = ["\\par\\smallskip", "\\begin{minipage}{\\linewidth}", "\\footnotesize", *lines, "\\end{minipage}"]
    title = escape(style.caption) or notes.title
    stop = "." if notes.in_caption and title[-1] not in ".!?" else ""
    return [
        f"\\begin{{{name}}}",
        "\\centering",
        f"\\{size.command}",
        *([f"\\setlength{{\\tabcolsep}}{{{size.gap}pt}}"] if size.gap != SIZES[0].gap else []),
        *fitted,
        *below,
        f"\\caption{{{' '.join([title + stop, *notes.in_caption])}}}",
        *([f"\\label{{{style.label}}}"] if style.label else []),
        f"\\end{{{name}}}",
    ]


def _tabular(table: Table, words: PaperWords, notes: Notes, size: Size) -> list[str]:
    width, stub, siunitx = len(table.columns), len(table.stub_heads), table.latex.siunitx
    texts = [[_shown(entry) for entry in row.entries] for block in table.blocks for row in block.rows]
    columns = "".join(map(_numbers, zip(*texts, strict=True))) if siunitx else "c" * width
    lines = [*([SISETUP] if siunitx else []), f"\\begin{{tabular}}{{{'l' * stub}{columns}}}", "\\toprule"]
    lines += _head(table, words)
    for block in table.blocks:
        title = words(block.title if block.printed is None else block.printed)
        heading = f"\\multicolumn{{{stub + width}}}{{c}}{{{title}}} \\\\"
        lines += ["\\midrule", *([heading, "\\midrule"] if title else [])]
        lines += _rows(table, block, words, notes, size)
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _rows(table: Table, block: Block, words: PaperWords, notes: Notes, size: Size) -> Iterator[str]:
    """Yield the rows, with rules around each group of more than one row."""
    best, number = table.best_of(block), 0
    groups = [list(rows) for _, rows in groupby(block.rows, key=lambda row: row.group)]
    ruled = [False, *(max(map(len, pair)) > 1 for pair in pairwise(groups))]
    for rule, rows in zip(ruled, groups, strict=True):
        yield from ["\\midrule"] if rule else []
        for row in rows:
            cells = [
                _cell(entry, (number, place) in best, table.latex.siunitx, size, notes, words)
                for place, entry in enumerate(row.entries)
            ]
            yield " & ".join([*_labels(row, words, notes), *cells]) + " \\\\"
            number += 1


def _labels(row: Row, words: PaperWords, notes: Notes) -> Iterator[str]:
    for place, word in enumerate(row.words or (row.label,)):
        letters = notes.letters(row.notes) if place == row.named else ""
        label = words.label(word)
        apart = "~" if letters and label.endswith("$") else ""  # from a superscript of the label
        yield label + apart + _raised(letters)


def _raised(letters: str) -> str:
    return f"\\textsuperscript{{{letters}}}" if letters else ""


def _shown(entry: TableEntry | None) -> str:
    return entry.shown if entry else "--"


def _cell(entry: TableEntry | None, bold: bool, siunitx: bool, size: Size, notes: Notes, words: PaperWords) -> str:
    raised = _raised(notes.letters(entry.notes)) if entry else ""
    text = _shown(entry)
    if words.refers(text):  # the name of a loss, in place of a number
        return (f"{{{words.latex(text)}}}" if siunitx else words.latex(text)) + raised
    if siunitx:
        return _number(text, bold, raised)
    return _text(text.replace(" ± ", "±") if size.tight else text, bold) + raised


def _points(table: Table, words: PaperWords, size: Size) -> float:
    """Estimate the width of the tabular at this size, in points."""
    rows = [row for block in table.blocks for row in block.rows]
    stub = [[words.plain(word.text) for word in row.words or (row.label,)] for row in rows]
    numbers = [[_shown(entry) for entry in row.entries] for row in rows]
    texts = [
        [*words_of_row, *(text.replace(" ± ", "±") if size.tight else text for text in texts_of_row)]
        for words_of_row, texts_of_row in zip(stub, numbers, strict=True)
    ]
    columns = zip(table.header[-1], zip(*texts, strict=True), strict=False)
    widths = [max(map(len, (head.label.text, *column))) for head, column in columns]
    return size.character * sum(widths) + 2 * size.gap * len(widths)


def _head(table: Table, words: PaperWords) -> list[str]:
    *titled, last = table.header
    lines = list[str]()
    for line in titled:
        labels = [words.label(head.label) for head in line]
        cells = [
            label and f"\\multicolumn{{{head.width}}}{{c}}{{{label}}}" for label, head in zip(labels, line, strict=True)
        ]
        blank = ((cell or " & " * (head.width - 1)).strip() for cell, head in zip(cells, line, strict=True))
        starts = accumulate((head.width for head in line), initial=1)
        rules = [
            f"\\cmidrule(lr){{{start}-{start + head.width - 1}}}"
            for head, start in zip(line, starts, strict=False)
            if head.label.text
        ]
        lines += [" & ".join(blank) + " \\\\", " ".join(rules)]
    stub, braces = len(table.stub_heads), ("{{{}}}" if table.latex.siunitx else "{}").format
    titles = [words.label(_capital(head.label) if not table.words else head.label) for head in last[:stub]]
    return [*lines, " & ".join([*titles, *(braces(words.label(head.label)) for head in last[stub:])]) + " \\\\"]


def _capital(label: Label) -> Label:
    return label if label.latex else Label(label.text[:1].upper() + label.text[1:])


def _text(text: str, bold: bool) -> str:
    latex = re.sub(r"^-(?=\d)", "$-$", escape(text))
    return f"\\textbf{{{latex}}}" if bold else latex


def _number(text: str, bold: bool, raised: str = "") -> str:
    r"""Write a number for a siunitx column, with any text after it in braces; put other text in braces.

    >>> print(_number("63.1 ± 0.2†", True), _number("+0.3", False), _number("--", False))
    \bfseries 63.1 \pm 0.2 {$^{\dagger}$} +0.3 {--}
    """
    if not (match := _NUMBER.fullmatch(text)):
        return f"{{{_text(text, bold)}{raised}}}"
    spread, behind = match["spread"], escape(match["behind"]) + raised
    parts = ["\\bfseries"] * bold + [match["mean"].replace(",", "")]
    parts += [f"\\pm {spread}"] * bool(spread) + [f"{{{behind}}}"] * bool(behind)
    return " ".join(parts)


def _numbers(texts: Sequence[str]) -> str:
    r"""Return a siunitx column specification with room for these numbers.

    >>> print(_numbers(["9.1 ± 0.2", "+63.1 ± 12.0†", "--"]))
    S[table-format=+2.1(3),table-space-text-post={$^{\dagger}$}]
    """
    numbers = [match for text in texts if (match := _NUMBER.fullmatch(text))]
    if not numbers:
        return "c"
    parts = [match["mean"].replace(",", "").lstrip("+-").partition(".") for match in numbers]
    whole, digits = max(len(part[0]) for part in parts), max(len(part[2]) for part in parts)
    sign = "+" * any(match["mean"][0] in "+-" for match in numbers)
    spread = max(len(str(match["spread"] or "").replace(".", "").lstrip("0")) for match in numbers)
    behind = escape(max((match["behind"] for match in numbers), key=len))
    room = f",table-space-text-post={{{behind}}}" if behind else ""
    return f"S[table-format={sign}{whole}.{digits}{f'({spread})' if spread else ''}{room}]"


TEXT_FORMAT = TextFormat("tex", render, "% {}\n")
