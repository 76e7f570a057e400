"""Templates, filled in by Jinja: HTML pages with style and script inside, an export's README, a script, a grid file."""

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

if TYPE_CHECKING:  # a new grid's file loads no pyarrow
    from goalgrid.results.tables import Block, Label, TableEntry


def page(template: str, **content: Any) -> str:
    """Fill in a template of this folder; text in the values is escaped in HTML."""
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
    """A user's Markdown as HTML: with tables, without HTML of its own and without pictures, which need a network."""
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text))


def _symbol(label: "Label", names: Mapping[str, str]) -> Markup:
    """A label as HTML: in the papers' notation, `P^con`, the word after ^ as a superscript; else as it is.

    Notation, and what has another name in papers, keeps its text and its LaTeX, for the buttons that copy a table.
    """
    from goalgrid.results.tables.paper_words import PaperWords

    base, raised, power = label.text.partition("^")
    power, space, rest = power.partition(" ")
    shown = Markup("{}<sup>{}</sup>{}{}").format(base, power, space, rest) if raised else escape(label.text)
    return _with_latex(label.text, PaperWords(names, {}).label(label), shown)


def _title(block: "Block", names: Mapping[str, str]) -> Markup:
    """The title of a block, with the title in papers for the buttons that copy a table."""
    from goalgrid.results.tables.paper_words import PaperWords

    return _with_latex(block.title, PaperWords(names, {})(block.printed or block.title), escape(block.title))


def _with_latex(text: str, latex: str, shown: Markup) -> Markup:
    """What is shown of a text, with its LaTeX where that says more than the text."""
    from goalgrid.results.tables import notation

    if latex == notation.escape(text):
        return shown
    return Markup('<span data-text="{}" data-latex="{}">{}</span>').format(text, latex, shown)


def _number(entry: "TableEntry") -> str:
    """The number by which an entry's column is sorted; empty without a number."""
    shown = entry.score.shown
    return "" if shown != shown else repr(shown)


def _behind(entry: "TableEntry") -> str:
    """The trials behind a value and the trials that are missing, for the tooltip."""
    return "\n".join([*entry.score.trials, *map(" ".join, entry.score.missing)])
