"""What a user reads: stdout carries the product, stderr the talk."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from goalgrid.overview import Overview, Work, seconds_left, work_left
from grid.errors import UserError
from grid.expansion import Cell, Trial
from grid.gridfile import Scalar
from grid.home import State
from grid.objectives import CATALOGUE, unknown_objective

if TYPE_CHECKING:
    from results.table import Table

out = Console()
err = Console(stderr=True)

NEW = {"GOAL": "new in GOAL"}

PIPED_WIDTH = 160
"""Columns of a table where stdout is no terminal."""


def show(text: str) -> None:
    """Print a line of the product."""
    print(text)


def show_list(lines: Mapping[str, str]) -> None:
    """Print a name and what it is a line."""
    width = max(map(len, lines))
    show("\n".join(f"{name:{width}}  {text}" for name, text in lines.items()))


def say(message: str) -> None:
    """Print a line of talk."""
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def show_table(table: "Table") -> None:
    """Print a table as wide as the terminal, or as it is where there is none."""
    from results.renderers import terminal

    Console(width=None if out.is_terminal else PIPED_WIDTH).print(terminal.render(table))


def show_status(overview: Overview, *, as_json: bool) -> None:
    """Print how many trials are in which state, and why each failure failed."""
    if as_json:
        show(json.dumps(overview.to_dict(), indent=2))
        return
    show(f"{overview.grid.name}: {overview.headline()}")
    for line in [*failure_lines(overview), *collapse_lines(overview)]:
        show(line)


def show_plan(overview: Overview, *, as_json: bool) -> None:
    """Print the axes, the states and what is left to pay for."""
    estimate, work = seconds_left(overview), work_left(overview)
    if as_json:
        cost = {"seconds_left": estimate and estimate[0], "estimated_from": estimate[1] if estimate else 0}
        parts = [{**asdict(part), "all_steps": part.all_steps} for part in work]
        show(json.dumps({**overview.to_dict(), "work": parts, **cost}, indent=2))
        return
    grid = overview.grid
    show(f"{grid.name}: {overview.headline()}")
    for name, values in grid.axes().items():
        show(f"  {name:12} {len(values):3}  {', '.join(map(str, values))}")
    for part in work:
        show(f"  {_work(part)}")
    if len(work) > 1 and all(part.all_steps for part in work):
        show(f"  in all {sum(part.all_steps or 0 for part in work):,} steps")
    show(f"  {_cost(len(overview.left()), estimate)}")


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


def failure_lines(overview: Overview) -> list[str]:
    """Failures by their reason, each with a log and the command that runs one of its trials alone."""
    lines = []
    for reason, trials in overview.failures().items():
        lines += [
            f"failed: {len(trials)} x {reason}",
            f"  log: {overview.home.trial(trials[0].id).error}",
            f"  alone: goalgrid resume {overview.grid.name} --only '{_only(trials[0], overview)}' --here",
        ]
    return lines


def collapse_lines(overview: Overview) -> list[str]:
    """Trials that collapsed, each by name: their numbers are chance, whatever the loss says."""
    return [f"collapsed: {trial.id}: all similarities are equal" for trial in overview.collapsed()]


def _only(trial: Trial, overview: Overview) -> str:
    """The filter that names this trial."""
    cell = next(cell for cell in overview.cells if trial in cell.trials)
    others = [_axes(other) for other in overview.cells]
    words = [f"{name}={value}" for name, value in _axes(cell).items() if any(o[name] != value for o in others)]
    return " ".join([*words, f"seed={trial.settings.seed}"])


def _axes(cell: Cell) -> dict[str, Scalar]:
    return {"dataset": cell.dataset, "recipe": cell.recipe, "objective": cell.objective, **dict(cell.swept)}


def _work(part: Work) -> str:
    """`45 x vsepp-r152 on coco: 30 epochs of 4,426 steps, 5,975,100 in all; features of 1,142,870 views, once`."""
    epochs = f"{part.epochs} epoch{'s' * (part.epochs != 1)}"
    steps = f" of {part.steps:,} steps, {part.all_steps:,} together" if part.steps is not None else ""
    views = f"; its backbone sees {part.views:,} views, once for all" if part.views else ""
    after = f", each after its {part.after}" if part.after else ""
    return f"{part.trials} x {part.recipe} on {part.dataset}{after}: {epochs}{steps}{views}"


def _cost(left: int, estimate: tuple[float, int] | None) -> str:
    if not left:
        return "nothing is left to train"
    if estimate is None:
        return f"{left} left; how long they take is known once one is done"
    seconds, samples = estimate
    return f"{left} left: {seconds / 60:.1f} minutes of training by {samples} finished ones, shared by all at once"


def exit_state(states: list[State]) -> State:
    """The state that decides how a command exits: done only if all are."""
    if all(state is State.DONE for state in states):
        return State.DONE
    return State.FAILED if State.FAILED in states else State.INTERRUPTED
