"""Documents of text and small tables of text, in every format that is read: what `effects` prints.

Numbers over axes are a `results.table.Table`; this is for findings, whose columns are of different kinds.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from results.renderers import latex, markdown

WIDTH = 100
GLUE = "\u00a0"
"""A space at which no line is broken."""


@dataclass(frozen=True)
class Sheet:
    """A small table of text; the first column is aligned left, the others right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """Sentences and sheets under a title."""

    title: str
    parts: tuple[str | Sheet, ...]


@dataclass(frozen=True)
class Document:
    """Sections, and what holds for all of them."""

    sections: tuple[Section, ...]
    footer: tuple[str, ...]


def text(document: Document) -> str:
    """Aligned for a terminal of 100 columns."""
    parts = []
    for section in document.sections:
        parts += [f"{section.title}\n{'=' * len(section.title)}"]
        parts += [_aligned(part) if isinstance(part, Sheet) else _wrapped(part) for part in section.parts]
    return "\n\n".join([*parts, "\n".join(_wrapped(line, "- ") for line in document.footer)]) + "\n"


def as_markdown(document: Document) -> str:
    """Headings, sentences and tables in GitHub's Markdown."""
    parts = []
    for section in document.sections:
        parts.append(f"## {markdown.escape(section.title)}")
        parts += [_markdown(part) if isinstance(part, Sheet) else markdown.escape(part) for part in section.parts]
    return "\n\n".join([*parts, "\n".join(f"- {markdown.escape(line)}" for line in document.footer)]) + "\n"


def as_latex(document: Document) -> str:
    r"""Paragraphs and `tabular`s; needs \usepackage{booktabs}."""
    parts = ["% needs \\usepackage{booktabs}"]
    for section in document.sections:
        parts.append(f"\\subsection*{{{latex.escape(section.title)}}}")
        parts += [_latex(part) if isinstance(part, Sheet) else latex.escape(part) for part in section.parts]
    notes = "\n".join(f"\\item {latex.escape(line)}" for line in document.footer)
    return "\n\n".join([*parts, f"\\begin{{itemize}}\n{notes}\n\\end{{itemize}}"]) + "\n"


TEXT: dict[str, Callable[[Document], str]] = {"terminal": text, "markdown": as_markdown, "latex": as_latex}


def _wrapped(line: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    filled = textwrap.fill(line, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False)
    return filled.replace(GLUE, " ")


def _aligned(sheet: Sheet) -> str:
    widths = [max(map(len, column)) for column in zip(sheet.head, *sheet.rows, strict=True)]
    lines = [
        "  ".join(
            f"{word.replace(GLUE, ' '):{'<' if place == 0 else '>'}{width}}"
            for place, (word, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in (sheet.head, *sheet.rows))
    ]
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([*([_wrapped(sheet.title)] if sheet.title else []), lines[0], rule, *lines[1:]])


def _markdown(sheet: Sheet) -> str:
    lines = [f"| {' | '.join(map(markdown.escape, row))} |" for row in (sheet.head, *sheet.rows)]
    lines.insert(1, "|---|" + "--:|" * (len(sheet.head) - 1))
    return "\n".join([*([f"{markdown.escape(sheet.title)}\n"] if sheet.title else []), *lines])


def _latex(sheet: Sheet) -> str:
    lines = [" & ".join(map(latex.escape, row)) + " \\\\" for row in (sheet.head, *sheet.rows)]
    lines.insert(1, "\\midrule")
    title = [f"{latex.escape(sheet.title)}\\\\[1ex]"] if sheet.title else []
    body = [f"\\begin{{tabular}}{{l{'r' * (len(sheet.head) - 1)}}}", "\\toprule", *lines, "\\bottomrule"]
    return "\n".join(["\\begin{center}", "\\small", *title, *body, "\\end{tabular}", "\\end{center}"])
