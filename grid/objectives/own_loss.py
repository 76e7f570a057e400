"""A user's own loss as an entry of the catalogue: its parameters, and whether its signature has the same."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from goalgrid.grid.errors import UserError, several, unknown
from goalgrid.grid.objectives.parameters import Mining, ObjectiveEntry, Parameter, Value

On = Literal["hardest", "all", "scores"]
"""What a loss is a function of: triplets with the hardest negative, triplets with all negatives, or all scores."""

OF_THE_PROGRAM = {
    "variant", *ObjectiveEntry("", "", "", {}, Mining("hardest", fixed=False)).parameters,
}  # fmt: skip
"""Names of parameters that every objective has, or may have."""


def parameter(
    default: Value,
    meaning: str,
    *,
    released: Value | Literal["as paper"] = "as paper",
    choices: tuple[str, ...] = (),
    optional: bool = False,
    only_with: tuple[str, Value] | None = None,
) -> Parameter:
    """A parameter of a loss of your own; `goalgrid.Parameter`.

    Args:
        default: 10.0 takes any number, 10 whole numbers from 1 up, True a truth value, a text one of the choices.
        meaning: one line, with its unit; `goalgrid objectives NAME` prints it.
        released: the default under the variant "released", where it differs.
        choices: the texts that it may be.
        optional: whether "none" is a value, too.
        only_with: another parameter and the value with which this one is read.

    Raises:
        UserError: the default is no value of such a parameter.
    """
    both = default, default if released == "as paper" else released
    made = Parameter(meaning, *both, choices=tuple(choices), optional=optional, only_with=only_with)
    for value in both:
        if isinstance(value, str) and not choices:
            raise UserError(
                f"Parameter({default!r}, ...): a parameter that is a text needs its choices, e.g. ('a', 'b')"
            )
        try:
            made.parse(value)
        except ValueError as error:
            raise UserError(f"Parameter({default!r}, ...): the default {error}") from None
    return made


def entry_of(
    name: str, equation: Callable[..., Any], on: On, parameters: Mapping[str, Parameter], formula: str, source: str
) -> ObjectiveEntry:
    """The entry of a user's loss.

    Raises:
        UserError: its signature has other parameters than are declared, or a declaration is wrong.
    """
    problems = [*_declared(on, parameters), *_taken(equation, parameters)]
    if problems:
        raise several(f"objective {name!r}", problems)
    said = (inspect.getdoc(equation) or "").partition("\n")[0]
    mining = Mining("hardest" if on == "hardest" else "all", fixed=on != "hardest")
    return ObjectiveEntry(
        "own", source, formula or said or "no formula given", dict(parameters), mining, equation=equation, on=on
    )


def _declared(on: str, parameters: Mapping[str, Any]) -> list[str]:
    """What is wrong with a declaration by itself."""
    problems = [] if on in get_args(On) else [unknown("value", on, get_args(On), where="of on")]
    for name, parameter in parameters.items():
        if not isinstance(parameter, Parameter):
            problems.append(f"{name} = {parameter!r} is no goalgrid.Parameter(default, meaning)")
        elif name in OF_THE_PROGRAM:
            problems.append(f"{name} is a parameter that the program gives to objectives; name yours otherwise")
        elif parameter.only_with and parameter.only_with[0] not in parameters:
            problems.append(unknown("parameter", parameter.only_with[0], parameters, where=f"in only_with of {name}"))
    return problems


def _taken(equation: Callable[..., Any], parameters: Mapping[str, Any]) -> list[str]:
    """How a signature differs from the declared parameters."""
    taken = list(inspect.signature(equation).parameters.values())
    if isinstance(equation, type):
        called = any("__call__" in vars(kind) for kind in equation.__mro__)
        problems = [] if called else [f"class {equation.__name__} has no __call__(self, triplets)"]
    else:
        first, taken = taken[:1], taken[1:]
        by_place = [each for each in first if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        problems = [] if by_place else ["its first argument has to be the triplets, or the scores"]
    names = [each.name for each in taken]
    return [*problems, *differences(equation.__name__, names, parameters)]


def differences(defined: str, taken: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """How the arguments that a definition of this name takes differ from the declared parameters."""
    hint = "goalgrid.Parameter(default, meaning)"
    return [
        *(f"{name} is declared, but {defined} takes no {name}" for name in parameters if name not in taken),
        *(
            f"{defined} takes {name}, which is not declared; add {name} = {hint} to the decorator"
            for name in taken
            if name not in parameters
        ),
    ]
