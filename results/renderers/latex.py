"""A table for a paper: booktabs, `table*` so that it spans two columns. Escaping happens here and nowhere else."""

from results.table import Entry, Row, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "−": "$-$",
    "×": r"$\times$",
    "\u00a0": "~",
    "†": r"$^{\dagger}$",
    "²": r"$^2$",
    "η": r"$\eta$",
    "ω": r"$\omega$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


PAGE = 90
"""So many characters, counting two between columns, fit beside one another in a two-column page's width."""


def escape(text: str) -> str:
    """Plain text as LaTeX.

    >>> print(escape("fc_bow: 50% ± 1"))
    fc\\_bow: 50\\% $\\pm$ 1
    """
    return "".join(_SPECIAL.get(character, character) for character in text)


def render(table: Table) -> str:
    r"""A `table*` environment; needs \usepackage{booktabs,graphicx}. What is too wide is scaled to the page."""
    width = sum(len(group.columns) for group in table.groups)
    wide = _characters(table) > PAGE
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        "\\begin{table*}",
        "\\centering",
        "\\small",
        *(["\\setlength{\\tabcolsep}{3pt}"] if width > 6 else []),
        *(["\\resizebox{\\textwidth}{!}{%"] if wide else []),
        f"\\begin{{tabular}}{{l{'c' * width}}}",
        "\\toprule",
        *_head(table),
    ]
    for block in table.blocks:
        lines += [
            "\\midrule",
            f"\\multicolumn{{{width + 1}}}{{c}}{{{escape(block.title)}}} \\\\",
            "\\midrule",
        ]
        bold = table.best_of(block)
        for number, row in enumerate(block.rows):
            entries = [_text(entry, (number, column) in bold) for column, entry in enumerate(row.entries)]
            lines.append(" & ".join([row.label.latex or escape(row.label.text), *entries]) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}" + "}" * wide, f"\\caption{{{escape(table.caption)}}}", "\\end{table*}"]
    return "\n".join(lines) + "\n"


def _characters(table: Table) -> int:
    """How wide the widest row is."""
    rows = (row for block in table.blocks for row in block.rows)
    return max((_length(row) for row in rows), default=0)


def _length(row: Row) -> int:
    return len(row.label.text) + sum(2 + len(entry.text if entry else "--") for entry in row.entries)


def _head(table: Table) -> list[str]:
    titles, rules, start = [], [], 2
    for group in table.groups:
        count = len(group.columns)
        titles.append(f"\\multicolumn{{{count}}}{{c}}{{{group.title.latex or escape(group.title.text)}}}")
        if group.title.text:
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    columns = [column.latex or escape(column.text) for group in table.groups for column in group.columns]
    corner = table.corner.latex or escape(table.corner.text)
    return [" & ".join(["", *titles]) + " \\\\", " ".join(rules), " & ".join([corner, *columns]) + " \\\\"]


def _text(entry: Entry | None, bold: bool) -> str:
    text = escape(entry.text) if entry else "--"
    return f"\\textbf{{{text}}}" if bold else text
