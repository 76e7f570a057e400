"""A table for a paper: booktabs, `table*` so that it spans two columns."""

import re
from collections.abc import Sequence
from itertools import accumulate

from goalgrid.results.tables import Label, Table, TextFormat
from goalgrid.results.tables.notation import escape, prose

_NUMBER = re.compile(r"(?P<mean>[+-]?\d[\d,]*(?:\.\d+)?)(?: ± (?P<spread>\d+(?:\.\d+)?))?(?P<behind>.*)")

SISETUP = r"\sisetup{separate-uncertainty,detect-weight,retain-explicit-plus,retain-zero-uncertainty,tight-spacing}"
"""Spreads behind ±, and bold numbers as the text around them."""

PAGE = 90
"""Characters that fit in the width of a two-column page, with two between columns."""
LINES = 45
"""Lines that fit on a page in \\small, those of the caption included."""
SMALL_LINES = 56
"""Lines that fit on a page in \\scriptsize, those of the caption included."""
PROSE = 110
"""Characters of a caption that fit in the width of the page."""


def render(table: Table) -> str:
    r"""A `table*` environment; its first line says which packages it needs.

    A table that is too wide for the page has no spaces around ±; if it is still too wide, it is scaled to the page. A
    table that is too long is set smaller, and if it is still too long, its lines closer.
    """
    width, words = len(table.columns), len(table.stub_heads)
    tight = _characters(table, tight=False) > PAGE
    wide = _characters(table, tight=tight) > PAGE
    height = sum(len(block.rows) + 2 for block in table.blocks) + 2 + len(table.caption) // PROSE
    texts = [[text for text, _ in entries] for block in table.blocks for _, entries in table.lines(block)]
    columns = "".join(map(_numbers, zip(*texts, strict=True))) if table.siunitx else "c" * width
    lines = [
        "\\begin{table*}",
        "\\centering",
        "\\scriptsize" if height > LINES else "\\small",
        *(["\\renewcommand{\\arraystretch}{0.9}"] if height > SMALL_LINES else []),
        *(["\\setlength{\\tabcolsep}{3pt}"] if width > 6 else []),
        *(["\\resizebox{\\textwidth}{!}{%"] if wide else []),
        *([SISETUP] if table.siunitx else []),
        f"\\begin{{tabular}}{{{'l' * words}{columns}}}",
        "\\toprule",
        *_head(table),
    ]
    for block in table.blocks:
        title = f"\\multicolumn{{{words + width}}}{{c}}{{{prose(block.title)}}} \\\\"
        lines += ["\\midrule", *([title, "\\midrule"] if block.title else [])]
        for labels, entries in table.lines(block):
            shown = [_number(*entry) if table.siunitx else _text(_set(entry[0], tight), entry[1]) for entry in entries]
            lines.append(" & ".join([*map(_label, labels), *shown]) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}" + "}" * wide]
    lines += [f"\\caption{{{prose(table.caption)}}}", *([f"\\label{{{table.label}}}"] * bool(table.label))]
    text = "\n".join([*lines, "\\end{table*}"]) + "\n"
    extra = ",amssymb" * ("\\checkmark" in text) + ",siunitx" * table.siunitx
    return f"% needs \\usepackage{{booktabs,graphicx{extra}}}\n{text}"


def _characters(table: Table, *, tight: bool) -> int:
    rows = [line for block in table.blocks for line in table.lines(block)]
    texts = [[*(word.text for word in words), *(_set(text, tight) for text, _ in entries)] for words, entries in rows]
    columns = zip(table.header[-1], zip(*texts, strict=True), strict=False)
    return sum(2 + max(map(len, (head.label.text, *column))) for head, column in columns) - 2


def _head(table: Table) -> list[str]:
    *titled, last = table.header
    lines = list[str]()
    for line in titled:
        cells = [_label(head.label) and f"\\multicolumn{{{head.width}}}{{c}}{{{_label(head.label)}}}" for head in line]
        blank = ((cell or " & " * (head.width - 1)).strip() for cell, head in zip(cells, line, strict=True))
        starts = accumulate((head.width for head in line), initial=1)
        rules = [
            f"\\cmidrule(lr){{{start}-{start + head.width - 1}}}"
            for head, start in zip(line, starts, strict=False)
            if head.label.text
        ]
        lines += [" & ".join(blank) + " \\\\", " ".join(rules)]
    words, braces = len(table.stub_heads), ("{{{}}}" if table.siunitx else "{}").format
    columns = [_label(head.label) if place < words else braces(_label(head.label)) for place, head in enumerate(last)]
    return [*lines, " & ".join(columns) + " \\\\"]


def _label(label: Label) -> str:
    return label.latex or prose(label.text)


def _text(text: str, bold: bool) -> str:
    latex = re.sub(r"^-(?=\d)", "$-$", escape(text))
    return f"\\textbf{{{latex}}}" if bold else latex


def _number(text: str, bold: bool) -> str:
    r"""A number for a column of siunitx, what stands behind it in braces; any other text in braces.

    >>> print(_number("63.1 ± 0.2†", True), _number("+0.3", False), _number("--", False))
    \bfseries 63.1 \pm 0.2 {$^{\dagger}$} +0.3 {--}
    """
    if not (match := _NUMBER.fullmatch(text)):
        return f"{{{_text(text, bold)}}}"
    spread, behind = match["spread"], match["behind"]
    words = ["\\bfseries"] * bold + [match["mean"].replace(",", "")]
    words += [f"\\pm {spread}"] * bool(spread) + [f"{{{escape(behind)}}}"] * bool(behind)
    return " ".join(words)


def _numbers(texts: Sequence[str]) -> str:
    r"""A column of siunitx that has room for these numbers.

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


def _set(text: str, tight: bool) -> str:
    return text.replace(" ± ", "±") if tight else text


TEXT_FORMAT = TextFormat("tex", render, "% {}\n")
