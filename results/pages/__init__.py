"""Jinja templates: HTML pages with inline style and script, an export's README, a Slurm script, a grid file."""

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

if TYPE_CHECKING:  # a new grid's file loads no pyarrow
    from goalgrid.results.tables import Block, Label, TableEntry


def page(template: str, **content: Any) -> str:
    """Render a template of this folder; values are escaped in HTML templates."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["inline"] = lambda name: Markup(_source(name))  # our own: not escaped
    environment.filters |= {
        "symbol": _symbol,
        "block_title": _title,
        "number": _number,
        "behind": _behind,
        "markdown": _markdown,
    }
    return environment.get_template(template).render(**content)


def _source(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _markdown(text: str) -> Markup:
    """Convert a user's Markdown to HTML; tables are allowed, raw HTML and images (which need a network) are not."""
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text))


def _symbol(label: "Label", names: Mapping[str, str]) -> Markup:
    """Convert a label to HTML; the part after ^ of the papers' notation, `P^con`, becomes a superscript.

    If its LaTeX differs from its text, both are kept as attributes for the copy buttons.
    """
    from goalgrid.results.tables.paper_words import PaperWords

    base, raised, power = label.text.partition("^")
    power, space, rest = power.partition(" ")
    shown = Markup("{}<sup>{}</sup>{}{}").format(base, power, space, rest) if raised else escape(label.text)
    return _with_latex(label.text, PaperWords(names, {}).label(label), shown)


def _title(block: "Block", names: Mapping[str, str]) -> Markup:
    """Convert a block's title to HTML, with its LaTeX for the copy buttons."""
    from goalgrid.results.tables.paper_words import PaperWords

    return _with_latex(block.title, PaperWords(names, {})(block.printed or block.title), escape(block.title))


def _with_latex(text: str, latex: str, shown: Markup) -> Markup:
    """Wrap the shown HTML with its text and LaTeX, if the LaTeX differs from the escaped text."""
    from goalgrid.results.tables import notation

    if latex == notation.escape(text):
        return shown
    return Markup('<span data-text="{}" data-latex="{}">{}</span>').format(text, latex, shown)


def _number(entry: "TableEntry") -> str:
    """Return the number used to sort an entry's column; empty if it has none."""
    shown = entry.score.shown
    return "" if shown != shown else repr(shown)


def _behind(entry: "TableEntry") -> str:
    """Return the ids of the trials averaged in a value and of the missing trials, for the tooltip."""
    return "\n".join([*entry.score.trials, *map(" ".join, entry.score.missing)])
