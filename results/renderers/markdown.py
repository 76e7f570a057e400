"""A table in GitHub's Markdown: group and column in one header line, since Markdown has but one."""

from results.renderers.text_format import TextFormat
from results.tables.table import Table, TableEntry


def escape(text: str) -> str:
    """Plain text inside a Markdown table.

    >>> print(escape("a|b *c* P^sig-ms"))
    a\\|b \\*c\\* P^sig-ms
    """
    return "".join(f"\\{character}" if character in "|*_`<>[]\\" else character for character in text)


def render(table: Table) -> str:
    """A heading and a table a block, then the caption."""
    heads = [f"{group.title.text} {column.text}".strip() for group in table.groups for column in group.columns]
    parts = []
    for block in table.blocks:
        bold = table.best_of(block)
        lines = [
            f"**{escape(block.title)}**\n",
            "| " + " | ".join(escape(head) for head in [table.corner.text, *heads]) + " |",
            "|---|" + "--:|" * len(heads),
        ]
        for number, row in enumerate(block.rows):
            entries = (_text(entry, (number, column) in bold) for column, entry in enumerate(row.entries))
            lines.append("| " + " | ".join([escape(row.label.text), *entries]) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, escape(table.caption)]) + "\n"


def _text(entry: TableEntry | None, bold: bool) -> str:
    text = entry.text if entry else "--"
    return f"**{text}**" if bold else text


TEXT_FORMAT = TextFormat("md", render, "<!-- {} -->\n\n")
