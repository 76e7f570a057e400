"""What a user reads: stdout carries the product, stderr the talk."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from grid.errors import UserError
from grid.expansion import Cell
from grid.objectives import CATALOGUE, unknown_objective

if TYPE_CHECKING:
    from results.analysis.block_analysis import Analysis
    from results.tables.table import Table
    from runners.selftest.story import Claim

out = Console()
err = Console(stderr=True)

NEW = {"GOAL": "new in GOAL"}

PIPED_WIDTH = 200
"""Columns of a table where stdout is no terminal."""


def show(text: str) -> None:
    """Print a line of the product."""
    print(text, flush=True)


def show_list(lines: Mapping[str, str]) -> None:
    """Print a name and what it is a line."""
    width = max(map(len, lines))
    show("\n".join(f"{name:{width}}  {text}" for name, text in lines.items()))


def say(message: str) -> None:
    """Print a line of talk."""
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def show_json(content: Mapping[str, Any]) -> None:
    """Print the product for a program."""
    show(json.dumps(content, indent=2))


def show_table(table: "Table") -> None:
    """Print a table as wide as the terminal, or as it is where there is none."""
    from results.renderers import terminal

    Console(width=None if out.is_terminal else PIPED_WIDTH).print(terminal.render(table))


def show_findings(found: "Sequence[Analysis]", cells: Sequence[Cell], kind: str | None) -> None:
    """Print an analysis in one of its formats; None: as JSON."""
    from results.analysis.effects_text import for_programs, write_out

    text = json.dumps(for_programs(found), indent=2) if kind is None else write_out(found, cells, kind)
    show(text.rstrip("\n"))


def list_objectives() -> None:
    """Print one line an objective: name, family, known name, source."""
    for name, entry in CATALOGUE.items():
        show(f"{name:17} {entry.family:12} {entry.known_as or NEW.get(entry.family, ''):32} {entry.source}")


def explain_objective(name: str) -> None:
    """Print all about one objective: its equation, source and parameters under both variants.

    Raises:
        UserError: there is none of that name.
    """
    if name not in CATALOGUE:
        raise UserError(unknown_objective(name))
    entry = CATALOGUE[name]
    show(
        f"{name}{f': {entry.known_as}' if entry.known_as else ''}\n\n  {entry.formula.replace('; ', chr(10) + '  ')}\n"
    )
    show(f"family: {entry.family}; source: {entry.source}\n")
    show(f"  {'parameter':18} {'paper':>9} {'released':>9}  meaning")
    for key, parameter in entry.parameters.items():
        values = ["none" if value is None else str(value) for value in (parameter.paper, parameter.released)]
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        show(f"  {key:18} {values[0]:>9} {values[1]:>9}  {parameter.meaning}{choices}")


def show_verdicts(verdicts: "Iterable[Claim]", runs: Path) -> bool:
    """Print a line a verdict as it falls, and what they come to; whether all claims hold."""
    for verdict in verdicts:
        if verdict.problem:
            show(f"FAILED  {verdict.claim}: {verdict.problem}")
            show(f"goalgrid cannot be trusted with {runs} yet. {verdict.advice}")
            return False
        show(f"ok      {verdict.claim}")
    show(f"goalgrid can be trusted with {runs}: nothing was lost, and nothing was trained twice")
    return True
