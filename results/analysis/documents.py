"""Documents of sentences and small text tables, as plain text, Markdown or LaTeX, e.g. for `goalgrid effects`."""

import math
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from goalgrid.results.records.rounding import NONE, written
from goalgrid.results.renderers import markdown
from goalgrid.results.statistics.significance import Interval
from goalgrid.results.tables.notation import check_set, prose

WIDTH = min(100, shutil.get_terminal_size((100, 0)).columns)
"""Line width of text output: the terminal's width, at most 100 columns."""
GLUE = "\u00a0"


@dataclass(frozen=True)
class Sheet:
    """A small text table; the first column is left-aligned, the others are right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def telling(cls, title: str, head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> "Sheet":
        """Build a sheet, dropping columns (except the first) that are empty or `NONE` in all rows."""
        shown = [place for place in range(len(head)) if not place or {row[place] for row in rows} - {"", NONE}]
        titles, *others = (tuple(row[place] for place in shown) for row in (head, *rows))
        return cls(title, titles, tuple(others))


@dataclass(frozen=True)
class DocumentSection:
    """Sentences and sheets under a title."""

    title: str
    parts: tuple[str | Sheet, ...]


@dataclass(frozen=True)
class Document:
    """Sections, and a footer of sentences that apply to all of them."""

    sections: tuple[DocumentSection, ...]
    footer: tuple[str, ...]


def text(document: Document) -> str:
    """Write the document as plain text; sentences are wrapped at `WIDTH` columns."""
    footer = "\n".join(_wrapped(line, "- ") for line in document.footer)
    return _joined(document, lambda title: f"{title}\n{'=' * len(title)}", _aligned, _wrapped, footer)


def as_markdown(document: Document) -> str:
    """Write the document in GitHub's Markdown: headings, sentences and tables."""
    footer = "\n".join(f"- {markdown.escape(line)}" for line in document.footer)
    return _joined(document, lambda title: f"## {markdown.escape(title)}", _markdown, markdown.escape, footer)


def as_latex(document: Document) -> str:
    r"""Write the document in LaTeX: paragraphs and `tabular`s; needs \usepackage{booktabs}.

    Raises a UserError if pdflatex cannot typeset a character.
    """
    notes = "\n".join(f"\\item {prose(line)}" for line in document.footer)
    footer = f"\\begin{{itemize}}\n{notes}\n\\end{{itemize}}"
    body = _joined(document, lambda title: f"\\subsection*{{{prose(title)}}}", _latex, prose, footer)
    check_set(body)
    return f"% needs \\usepackage{{booktabs}}\n\n{body}"


Written = Callable[[str], str]


def _joined(document: Document, title: Written, sheet: Callable[[Sheet], str], sentence: Written, footer: str) -> str:
    parts = list[str]()
    for section in document.sections:
        parts.append(title(section.title))
        parts += [sheet(part) if isinstance(part, Sheet) else sentence(part) for part in section.parts]
    return "\n\n".join([*parts, footer]) + "\n"


TEXT: dict[str, Callable[[Document], str]] = {"terminal": text, "markdown": as_markdown, "latex": as_latex}


def interval_text(interval: Interval, sign: str = "") -> str:
    """Format an interval, e.g. `[-0.2, 1.3]`; `--` if it is NaN."""
    low, high = (written(bound, sign=sign) for bound in (interval.low, interval.high))
    return NONE if math.isnan(interval.low) else f"[{low}, {high}]"


def finite(value: Any) -> Any:
    """Convert the value for JSON: dataclasses to dicts, NaN and infinity to None."""
    return to_jsonable_python(value, inf_nan_mode="null")


def _wrapped(line: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    filled = textwrap.fill(line, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False)
    return filled.replace(GLUE, " ")


def _aligned(sheet: Sheet) -> str:
    rows = [[word.replace(GLUE, " ") for word in row] for row in (sheet.head, *sheet.rows)]
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows]
    rule = "─" * (first + sum(2 + width for width in others))
    return "\n".join([*([_wrapped(sheet.title)] if sheet.title else []), lines[0], rule, *lines[1:]])


def _markdown(sheet: Sheet) -> str:
    lines = [f"| {' | '.join(map(markdown.escape, row))} |" for row in (sheet.head, *sheet.rows)]
    lines.insert(1, "|---|" + "--:|" * (len(sheet.head) - 1))
    return "\n".join([*([f"{markdown.escape(sheet.title)}\n"] if sheet.title else []), *lines])


def _latex(sheet: Sheet) -> str:
    lines = [" & ".join(map(prose, row)) + " \\\\" for row in (sheet.head, *sheet.rows)]
    lines.insert(1, "\\midrule")
    title = [f"{prose(sheet.title)}\\\\[1ex]"] if sheet.title else []
    body = [f"\\begin{{tabular}}{{l{'r' * (len(sheet.head) - 1)}}}", "\\toprule", *lines, "\\bottomrule"]
    return "\n".join(["\\begin{center}", "\\small", *title, *body, "\\end{tabular}", "\\end{center}"])
