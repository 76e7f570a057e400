"""A table in GitHub's Markdown: all titles of a column share one header line, since Markdown allows only one."""

from goalgrid.results.tables import Table, TextFormat


def escape(text: str) -> str:
    """Escape plain text for a Markdown table.

    >>> print(escape("a|b *c* P^sig-ms"))
    a\\|b \\*c\\* P^sig-ms
    """
    return "".join(f"\\{character}" if character in "|*_`<>[]\\" else character for character in text)


def render(table: Table) -> str:
    parts = []
    for block in table.blocks:
        lines = [
            *([f"**{escape(block.title)}**\n"] if block.title else []),
            "| " + " | ".join(escape(head) for head in [*table.stub_heads, *table.heads]) + " |",
            "|" + "---|" * len(table.stub_heads) + "--:|" * len(table.heads),
        ]
        for words, entries in table.lines(block):
            texts = (f"**{text}**" if bold else text for text, bold in entries)
            lines.append("| " + " | ".join([*(escape(word.text) for word in words), *texts]) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, escape(table.caption)]) + "\n"


TEXT_FORMAT = TextFormat("md", render, "<!-- {} -->\n\n")
