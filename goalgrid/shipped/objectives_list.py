"""What `goalgrid objectives` says: a line for each objective, or the explanation of a single one."""

from collections.abc import Iterator

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import CATALOGUE, unknown_objective
from goalgrid.grid.objectives.goal_matrix import GOAL, of_a_loss
from goalgrid.grid.settings import parts
from goalgrid.terminal.views import setting_text


def lines() -> Iterator[str]:
    """A line for each objective: name, family, known name, whether a loss has this gradient, source."""
    for name, entry in CATALOGUE.items():
        known_as = entry.known_as or ("new in GOAL" if entry.family == "GOAL" else "")
        yield f"{name:17} {entry.family:12} {known_as:32} {_integral(name):10} {entry.source}"


def explained(name: str) -> Iterator[str]:
    """An objective's equation, source, and parameters under both variants.

    Raises:
        UserError: no objective has this name.
    """
    if name not in CATALOGUE:
        raise UserError(unknown_objective(name))
    entry = CATALOGUE[name]
    yield from (f"{name}{f': {entry.known_as}' if entry.known_as else ''}", "")
    yield from (f"  {formula}" for formula in entry.formula.split("; "))
    integral = f"; the gradient {_integral(name)} (m+ and m- held, no hinge)" if name in GOAL else ""
    yield from ("", f"family: {entry.family}; source: {entry.source}{integral}", "")
    yield f"  {'parameter':18} {'paper':>9} {'released':>9}  meaning"
    for key, parameter in entry.parameters.items():
        paper, released = map(setting_text, (parameter.paper, parameter.released))
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        only = f" [only with {parameter.only_with[0]} = {parameter.only_with[1]}]" if parameter.only_with else ""
        yield f"  {key:18} {paper:>9} {released:>9}  {parameter.meaning}{choices}{only}"
    for part in parts.of_objective(name):
        yield from ("", part.about)


def _integral(name: str) -> str:
    return ("of a loss" if of_a_loss(name) else "of no loss") if name in GOAL else ""
