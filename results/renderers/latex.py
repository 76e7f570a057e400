"""A table for a paper: booktabs, `table*` so that it spans two columns. Escaping happens here and nowhere else."""

import re

from results.renderers.text_format import TextFormat
from results.tables.notation import mathematics
from results.tables.table import Label, Table, TableEntry

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
LINES = 46
"""So many lines fit above one another, with the caption, in \\small."""


def escape(text: str) -> str:
    """Plain text as LaTeX.

    >>> print(escape("fc_bow: 50% ± 1"))
    fc\\_bow: 50\\% $\\pm$ 1
    """
    return "".join(_SPECIAL.get(character, character) for character in text)


def render(table: Table) -> str:
    r"""A `table*` environment; needs \usepackage{booktabs,graphicx}.

    In what is too wide for the page ± stands close to its numbers, and if that is not enough all is scaled to the page;
    what is too long is set smaller.
    """
    width = sum(len(group.columns) for group in table.groups)
    tight = _characters(table, tight=False) > PAGE
    wide = _characters(table, tight=tight) > PAGE
    long = sum(len(block.rows) + 2 for block in table.blocks) + 2 > LINES
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        "\\begin{table*}",
        "\\centering",
        "\\scriptsize" if long else "\\small",
        *(["\\setlength{\\tabcolsep}{3pt}"] if width > 6 else []),
        *(["\\resizebox{\\textwidth}{!}{%"] if wide else []),
        f"\\begin{{tabular}}{{l{'c' * width}}}",
        "\\toprule",
        *_head(table),
    ]
    for block in table.blocks:
        lines += [
            "\\midrule",
            f"\\multicolumn{{{width + 1}}}{{c}}{{{_prose(block.title)}}} \\\\",
            "\\midrule",
        ]
        bold = table.best_of(block)
        for number, row in enumerate(block.rows):
            entries = [_text(entry, (number, column) in bold, tight) for column, entry in enumerate(row.entries)]
            lines.append(" & ".join([_label(row.label), *entries]) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}" + "}" * wide, f"\\caption{{{_prose(table.caption)}}}", "\\end{table*}"]
    return "\n".join(lines) + "\n"


def _characters(table: Table, *, tight: bool) -> int:
    """How wide all columns are together."""
    rows = [row for block in table.blocks for row in block.rows]
    heads = [column.text for group in table.groups for column in group.columns]
    columns = zip(*([_plain(entry, tight) for entry in row.entries] for row in rows), strict=True)
    widths = [max(map(len, (head, *entries))) for head, entries in zip(heads, columns, strict=False)]
    return max(map(len, (table.corner.text, *(row.label.text for row in rows)))) + sum(2 + width for width in widths)


def _head(table: Table) -> list[str]:
    titles, rules, start = [], [], 2
    for group in table.groups:
        count = len(group.columns)
        titles.append(f"\\multicolumn{{{count}}}{{c}}{{{_label(group.title)}}}")
        if group.title.text:
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    columns = [_label(column) for group in table.groups for column in group.columns]
    return [
        " & ".join(["", *titles]) + " \\\\",
        " ".join(rules),
        " & ".join([_label(table.corner), *columns]) + " \\\\",
    ]


def _label(label: Label) -> str:
    return label.latex or _prose(label.text)


def _prose(text: str) -> str:
    """With losses and GOAL's cells as papers write them."""
    return mathematics(text, escape)


def _text(entry: TableEntry | None, bold: bool, tight: bool) -> str:
    text = re.sub(r"^-(?=\d)", "$-$", escape(_plain(entry, tight)))
    return f"\\textbf{{{text}}}" if bold else text


def _plain(entry: TableEntry | None, tight: bool) -> str:
    text = entry.text if entry else "--"
    return text.replace(" ± ", "±") if tight else text


TEXT_FORMAT = TextFormat("tex", render, "% {}\n")
