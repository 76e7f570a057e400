"""HTML pages that stand on their own: templates, style and script, all in one file. Jinja escapes, and nothing else."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from results.table import Entry, Label


def page(template: str, **content: Any) -> str:
    """A template of this folder, filled.

    Args:
        content: what the template names; text of it is escaped.
    """
    return _environment().get_template(template).render(**content)


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["inline"] = lambda name: Markup(_source(name))  # our own style and script
    environment.filters |= {"symbol": _symbol, "number": _number, "behind": _behind}
    return environment


def _source(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _symbol(label: Label) -> Markup:
    """The papers' notation, `P^con`, with what is raised in it raised; any other label as it is."""
    base, raised, power = label.text.partition("^")
    return Markup(f"{escape(base)}<sup>{escape(power)}</sup>") if raised and label.latex else escape(label.text)


def _number(entry: Entry) -> str:
    """What its column is sorted by; empty for what is no number."""
    shown = entry.score.shown
    return "" if shown != shown else repr(shown)


def _behind(entry: Entry) -> str:
    """The trials behind a value and those that are missing, for whoever points at it."""
    missing = str(entry.score.tidy().get("missing") or "").split("; ")
    return "\n".join([*entry.trials, *missing]).strip()
