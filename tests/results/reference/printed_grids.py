"""The printed tables, transcribed from the papers' text, and our formats read back into the same form.

A file of `printed/` holds a table as a grid: after comments the lines of the header, then the rows; `||` is between
the columns of words and those of numbers. In the header, `<` continues the title to its left, `^` the one above. A
line without `||` is a title of the rows below it. Left out are the words that name lines of the header, as "Eval Task".
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from goalgrid.results import renderers
from goalgrid.results.records.rounding import written
from goalgrid.results.renderers import terminal
from goalgrid.results.tables import Table

FOLDER = Path(__file__).parent / "printed"
Titles = tuple[str, ...]
"""The titles above a column, from the top."""


@dataclass(frozen=True)
class Line:
    title: str
    """Of the rows that it is among; empty: they have none."""
    words: tuple[str, ...]
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class PrintedGrid:
    words: tuple[Titles, ...]
    numbers: tuple[Titles, ...]
    """The columns of words and those of numbers."""
    lines: tuple[Line, ...]

    @property
    def joined(self) -> "PrintedGrid":
        """With one title above each column, as in formats whose header is one line, and the last for words."""
        return replace(self, words=tuple(path[-1:] for path in self.words), numbers=tuple(map(_joined, self.numbers)))

    @property
    def unreferenced(self) -> "PrintedGrid":
        """Without references to the paper's bibliography, which another paper's LaTeX lacks."""

        def plain(texts: Iterable[str]) -> tuple[str, ...]:
            return tuple(re.sub(r" \[\d+\]$", "", text) for text in texts)

        lines = (replace(line, words=plain(line.words), numbers=plain(line.numbers)) for line in self.lines)
        return replace(self, lines=tuple(lines))

    @property
    def sparse(self) -> "PrintedGrid":
        """With each title above the first column that it spans alone, as on a screen."""
        return replace(self, words=_sparse(self.words), numbers=_sparse(self.numbers))


def _sparse(paths: Sequence[Titles]) -> tuple[Titles, ...]:
    shown, before = list[Titles](), ()
    for path in paths:
        same = next((depth for depth in range(len(path)) if path[depth : depth + 1] != before[depth : depth + 1]), 0)
        shown.append(path[min(same, len(path) - 1) :])
        before = path
    return tuple(shown)


def transcribed(name: str) -> PrintedGrid:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    _, head, body = re.split(r"\n\n", text.strip("\n"))
    rows = [tuple(cell.strip() for cell in re.split(r"\|\|?", line)) for line in head.split("\n")]
    count = head.split("\n")[0].split("||")[0].count("|") + 1
    spread = [_continued(row) for row in rows]
    paths = [tuple(title for title in column if title not in ("", "^")) for column in zip(*spread, strict=True)]
    paths = [path or ("",) for path in paths]
    lines, title = list[Line](), ""
    for line in body.split("\n"):
        if "||" not in line:
            title = line
            continue
        words, numbers = (tuple(cell.strip() for cell in side.split("|")) for side in line.split("||"))
        lines.append(Line(title, words, numbers))
    return PrintedGrid(tuple(paths[:count]), tuple(paths[count:]), tuple(lines))


def _continued(row: Sequence[str]) -> list[str]:
    filled = list[str]()
    for cell in row:
        filled.append(filled[-1] if cell == "<" else cell)
    return filled


def _joined(path: Titles) -> Titles:
    return (" ".join(path).strip(),)


def _of_rows(heads: Sequence[Sequence[tuple[str, int]]], count: int, lines: Iterable[Line]) -> PrintedGrid:
    """A grid whose header is lines of titles with the columns that each spans; `count` columns are words."""
    spread = [[title for title, width in line for _ in range(width)] for line in heads]
    assert len({len(line) for line in spread}) == 1, heads
    paths = [tuple(filter(None, column)) or ("",) for column in zip(*spread, strict=True)]
    return PrintedGrid(tuple(paths[:count]), tuple(paths[count:]), tuple(lines))


def _number(text: str) -> str:
    return "-" if text == "--" else text


class _Cells(HTMLParser):
    """The first table of a page: its rows of tag, text and span."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str, int]]] = []
        self.cell: tuple[str, str, int] | None = None
        self.skipped = self.done = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.done:
            return
        self.skipped = self.skipped or dict(attrs).get("class") == "mark"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("sup", "sub"):
            self.handle_data("^" if tag == "sup" else "_")
        elif tag in ("th", "td"):
            self.cell = tag, "", int(dict(attrs).get("colspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        if tag == "span":
            self.skipped = False
        if tag in ("th", "td") and self.cell:
            kind, text, span = self.cell
            self.rows[-1].append((kind, re.sub(r"\s+", " ", text).strip(), span))
            self.cell = None
        self.done = self.done or tag == "table"

    def handle_data(self, data: str) -> None:
        if self.cell and not self.skipped:
            self.cell = self.cell[0], self.cell[1] + data, self.cell[2]


def of_html(text: str) -> PrintedGrid:
    cells = _Cells()
    cells.feed(text)
    body = next(place for place, row in enumerate(cells.rows) if any(tag == "td" and word for tag, word, _ in row))
    titles = [place for place, row in enumerate(cells.rows) if len(row) == 1]
    first = min([body, *titles])
    count = sum(tag == "th" for tag, _, _ in cells.rows[body])
    lines, title = list[Line](), ""
    for row in cells.rows[first:]:
        if len(row) == 1:
            title = row[0][1]
            continue
        texts = [text for _, text, _ in row]
        lines.append(Line(title, tuple(texts[:count]), tuple(map(_number, texts[count:]))))
    return _of_rows([[(text, span) for _, text, span in row] for row in cells.rows[:first]], count, lines)


_PLAIN = {
    r"\rightarrow": "→", r"\pm": "±", r"\times": "×", r"\infty": "∞", r"\checkmark": "✓", "$-$": "−",
    r"\mathchar`-": "-", r"\,": " ",
}  # fmt: skip


def _unlatex(text: str) -> str:
    """Plain text of what our renderer writes."""
    text = re.sub(r"\\textsuperscript\{[a-z,]+\}", "", text.strip())
    for latex, plain in _PLAIN.items():
        text = text.replace(latex, plain)
    text = re.sub(r"\\mathcal\{L\}_\{\\mathrm\{([^}]*)\}\}", r"L_\1", text)
    text = re.sub(r"([PT])\^\{\\mathrm\{([^}]*)\}\}", r"\1^\2", text)
    text = re.sub(r"\\textbf\{(.*)\}$", r"\1", text)
    text = re.sub(r"\$\^\{\\ddagger\}\$", "‡", text)
    text = re.sub(r"\\([#&%_{}])", r"\1", text)
    return text.replace("$", "").replace("~", " ").strip()


def of_latex(text: str) -> PrintedGrid:
    ((spec, body),) = re.findall(r"\\begin\{tabular\}\{([^\n]*)\}\n(.*)\\end\{tabular\}", text, re.DOTALL)
    head, *blocks = body.split("\\toprule\n")[1].split("\\bottomrule")[0].split("\\midrule\n")
    parts = [line.removesuffix("\\\\").strip() for line in head.split("\n") if line.endswith("\\\\")]
    heads = [[_spanning(cell) for cell in re.split(r"(?<!\\)&", part)] for part in parts]
    lines, title = list[Line](), ""
    for block in blocks:
        for row in filter(None, block.split("\n")):
            cells = [_spanning(cell) for cell in re.split(r"(?<!\\)&", row.removesuffix("\\\\"))]
            if len(cells) == 1:
                title = cells[0][0]
                continue
            texts = [re.sub(r"(?<=\d)±", " ± ", text).replace("  ", " ") for text, _ in cells]
            count = len(spec) - len(spec.lstrip("l"))
            lines.append(Line(title, tuple(texts[:count]), tuple(map(_number, texts[count:]))))
    return _of_rows(heads, len(spec) - len(spec.lstrip("l")), lines)


def _spanning(cell: str) -> tuple[str, int]:
    cell = re.sub(r"\\multirow\{[^}]*\}\{[^}]*\}\{(.*)\}", r"\1", cell.strip())
    if found := re.fullmatch(r"\\multicolumn\{(\d+)\}\{[^}]*\}\{(.*)\}", cell):
        return _unlatex(found[2]), int(found[1])
    return _unlatex(cell), 1


def of_markdown(text: str) -> PrintedGrid:
    lines, title, heads, count = list[Line](), "", list[str](), 0
    for line in text.split("\n"):
        cells = [re.sub(r"\\(.)", r"\1", cell).strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if found := re.fullmatch(r"\*\*(.*)\*\*", line):
            title = re.sub(r"\\(.)", r"\1", found[1])
        elif line.startswith("|--"):
            count = sum(not rule.endswith(":") for rule in line.strip("|").split("|"))
            heads = list(lines.pop().words)
        elif line.startswith("|"):
            bare = tuple(cell.strip("*") if re.fullmatch(r"\*\*.*\*\*", cell) else cell for cell in cells)
            lines.append(Line(title, bare, ()))
    rows = (Line(line.title, line.words[:count], tuple(map(_number, line.words[count:]))) for line in lines)
    return PrintedGrid(tuple((text,) for text in heads[:count]), tuple((text,) for text in heads[count:]), tuple(rows))


def of_terminal(text: str, star: str) -> PrintedGrid:
    """Columns are where no line of a block has two blanks above one another."""
    before, *parts = (section.strip("\n") for section in re.split(r"(?m)^ *─+ *$", text))
    titles = [before, *parts[2::3]]
    pairs = zip(parts[::3], parts[1::3], titles, strict=False)
    grids = [_of_screen(heads.split("\n"), rows.split("\n"), title.strip(), star) for heads, rows, title in pairs]
    first, *others = grids
    assert all((grid.words, grid.numbers) == (first.words, first.numbers) for grid in others)
    return replace(first, lines=tuple(line for grid in grids for line in grid.lines))


def _of_screen(heads: Sequence[str], rows: Sequence[str], title: str, star: str) -> PrintedGrid:
    width = max(map(len, [*heads, *rows]))
    padded = [line.ljust(width) for line in (*heads, *rows)]
    used = "".join(" " if set(column) == {" "} else "x" for column in zip(*padded, strict=True))
    spans = [match.span() for match in re.finditer(r"x(?:x| x)*", used)]
    cut = [[line[start:end].strip() for start, end in spans] for line in padded]
    top, below = cut[: len(heads)], cut[len(heads) :]
    flush = [
        place for place, (start, _) in enumerate(spans) if all(line[start] != " " for line in padded[len(heads) :])
    ]
    count = next(place for place in range(len(spans) + 1) if place not in flush)
    paths = [tuple(filter(None, column)) or ("",) for column in zip(*top, strict=True)]
    lines = [
        Line(title, tuple(row[:count]), tuple(_number(cell.removeprefix(star)) for cell in row[count:]))
        for row in below
    ]
    return PrintedGrid(tuple(paths[:count]), tuple(paths[count:]), tuple(lines))


def of_csv(text: str, words: Sequence[str]) -> PrintedGrid:
    """The long form, a row a number; `words` are the titles of the columns of words."""
    rows = list(csv.DictReader(io.StringIO(text)))
    width = next((place for place, row in enumerate(rows) if place and row["heading"] == rows[0]["heading"]), len(rows))
    heads = [row["heading"] for row in rows[:width]]
    lines = [rows[start : start + width] for start in range(0, len(rows), width)]
    assert all([row["heading"] for row in line] == heads for line in lines)
    return _of_records([(line[0], [row["text"].removeprefix("'") for row in line]) for line in lines], heads, words)


def of_parquet(data: bytes, words: Sequence[str]) -> PrintedGrid:
    """The printed form, with the text of each value by its numbers."""
    table = pq.read_table(io.BytesIO(data))
    columns: dict[str, dict[str, str]] = {}
    for field in table.schema:
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        if "value" in about:
            columns.setdefault(about["column"], {})[about["value"]] = field.name
    rows = [(row, [_value(row, names) for names in columns.values()]) for row in table.to_pylist()]
    return _of_records(rows, list(columns), words)


def _value(row: Mapping[str, object], names: Mapping[str, str]) -> str:
    if "mean" not in names:
        return str(row[names["text"]])
    mean, std = (row[names[key]] if key in names else None for key in ("mean", "std"))
    if not isinstance(mean, float):
        return "-"
    return written(mean) + (f" ± {written(std)}" if isinstance(std, float) else "")


def _of_records(
    rows: Sequence[tuple[Mapping[str, object], Sequence[str]]], heads: Sequence[str], words: Sequence[str]
) -> PrintedGrid:
    names = [re.sub(r"\W+", "_", title.lower()) for title in words]
    lines = [  # a block without a title bears the table's name
        Line(
            re.sub(r"^[\w+ ]+ Table \w+$", "", str(row["block"])),
            tuple(_word(row.get(name) if name else f"P^{row.get('pair_weight') or row.get('pair')}") for name in names),
            tuple(map(_number, numbers)),
        )
        for row, numbers in rows
    ]
    return PrintedGrid(tuple((title,) for title in words), tuple((head,) for head in heads), tuple(lines))


def _word(value: object) -> str:
    if value in (None, ""):
        return "-"
    if value in (True, False, "True", "False"):
        return "✓" if str(value) == "True" else "×"
    if isinstance(value, float) or re.fullmatch(r"\d+0000\.0", str(value)):
        return f"{float(str(value)) / 1e6:g}M"
    return str(value).removeprefix("'")


def screen(table: Table, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(terminal.render(table, bold=False))
    return console.export_text()


def grids(table: Table, like: PrintedGrid) -> dict[str, tuple[PrintedGrid, PrintedGrid]]:
    """In every format, what is read of our table, and what must be."""
    words = [path[-1] for path in like.words]
    star = "^" if any("*" in text for line in like.lines for text in line.words) else "*"
    text = renderers.TEXT
    return {
        "terminal": (of_terminal(screen(table, 300), star), like.sparse),
        "markdown": (of_markdown(text["markdown"].render(table)), like.joined),
        "html": (of_html(html_body(text["html"].render(table))), like),
        "latex": (of_latex(text["latex"].render(table)), like.unreferenced),
        "csv": (of_csv(text["csv"].render(table), words), like.joined),
        "parquet": (of_parquet(renderers.encoded(table, "parquet"), words), like.joined),
    }


def html_body(page: str) -> str:
    return page[page.index("<table") :]


def check_printed(table: Table, like: PrintedGrid) -> None:
    """Raise an AssertionError that names the first format in which a table is not the transcribed one.

    Of a table of records made of the printed numbers, what only we print does not count: letters of notes, marks of
    quoted numbers, and the spread or the mean of 0 where the paper prints none.
    """
    for kind, (ours, theirs) in grids(table, like).items():
        ours = replace(ours, lines=tuple(map(_as_printed, ours.lines, theirs.lines)))
        theirs = _without_signs(theirs) if kind == "parquet" else theirs
        assert (ours.words, ours.numbers) == (theirs.words, theirs.numbers), kind
        assert ours.lines == theirs.lines, kind


def _as_printed(ours: Line, theirs: Line) -> Line:
    words = (re.sub(r" \[[a-z](, [a-z])*\]$", "", word) for word in ours.words)
    numbers = map(_number_as_printed, ours.numbers, theirs.numbers)
    return Line(ours.title, tuple(words), tuple(numbers))


def _number_as_printed(ours: str, theirs: str) -> str:
    mean = ours.removesuffix("‡").removesuffix("" if "±" in theirs else " ± 0.0")
    return "-" if (mean, theirs) == ("0.0", "-") else mean


def _without_signs(grid: PrintedGrid) -> PrintedGrid:
    """Factors as numbers, which Parquet has: 9.6 for 9.6×."""
    lines = (replace(line, numbers=tuple(text.rstrip("×") for text in line.numbers)) for line in grid.lines)
    return replace(grid, lines=tuple(lines))
