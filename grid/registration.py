"""Decorators that register user-defined losses, poolings, encoders and scorers."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from goalgrid.grid.errors import UserError, said_by, several, unknown
from goalgrid.grid.objectives.goal_matrix import Weight
from goalgrid.grid.objectives.parameters import REDUCTIONS, ObjectiveEntry, On, Parameter, Value
from goalgrid.grid.settings.base import check_name
from goalgrid.grid.settings.user_modules import ReadsImages, UserModule, UserModuleKind

PREFIX = "uses:"
"""Prefix of the module names of users' files, so that no file shadows a module of goalgrid or of a library."""

Equation = TypeVar("Equation", bound=Callable[..., Any])

Kind = Literal["objective", "pair weight", "triplet weight", "pooling", "image encoder", "text encoder", "scorer"]


@dataclass(frozen=True)
class Registration:
    """A registered loss, pooling, encoder or scorer: its name, the name of its definition, and its catalogue entry."""

    kind: Kind
    name: str
    defined: str
    entry: Any


registered: dict[str, list[Registration]] = {}
"""The registrations of each imported module, by the module's name."""

OF_THE_PROGRAM = {"variant", *ObjectiveEntry("", "", "", {}).parameters}
"""Names of parameters that goalgrid itself adds to objectives."""

ONE_ARGUMENT = (
    'a loss takes one argument, t, which has t.s_pos and t.s_neg; or with on="scores" the scores, which are '
    "image @ text.T. Further arguments are declared parameters: docs/own.md shows how to convert a loss."
)


FIRST_TRIES = {
    r"\bTriplets\b": "Read t.s_pos and t.s_neg, of an anchor with its positive and its negatives: t is not a tensor",
    r"\bByte\b|unsigned char|uint8": "Begin with images = images.float() / 255: pictures are 8-bit integers",
    r"\bLong\b|int64": "Embed the ids first with torch.nn.Embedding(words, width): they are word indices",
    r"before Module\.__init__\(\) call": "Begin the constructor with super().__init__()",
}
"""Advice for common first mistakes in a loss or encoder, keyed by a pattern of torch's error message."""


def advice(error: BaseException) -> str:
    """Return advice on how to fix this error in a user's file, preceded by a full stop; empty if there is none."""
    return next((f". {fix}" for words, fix in FIRST_TRIES.items() if re.search(words, said_by(error))), "")


def _check_named(kind: Kind, name: object) -> None:
    """Raise a UserError if a decorator is used without a name, directly on a function or class."""
    if callable(name):
        defined = getattr(name, "__name__", "NAME")
        raise UserError(f'it has no name: write @goalgrid.{kind.replace(" ", "_")}("{defined}")')


def module_of(path: Path, source: str) -> str:
    """Return the module name of a user's file: its stem and a digest of its path and text, `uses:losses-1a2b3c4d`.

    Files with equal names, and different versions of a file, are therefore different modules. Code fingerprints do not
    contain this name.
    """
    return f"{PREFIX}{path.stem}-{sha256(f'{path} {source}'.encode(errors='surrogatepass')).hexdigest()[:8]}"


def stem_of(module: str) -> str:
    """Return the stem of a user's file, given its module name; any other module name is returned unchanged."""
    return module.removeprefix(PREFIX).rpartition("-")[0] if module.startswith(PREFIX) else module


@dataclass(frozen=True)
class Declaration:
    """A decorator that declares a loss or weight; the declaration can be read without importing the function."""

    kind: Kind
    name: str
    entry: ObjectiveEntry | Weight

    def __post_init__(self) -> None:
        _check_named(self.kind, self.name)

    def __call__(self, equation: Equation) -> Equation:
        """Register the function or class under the name."""
        problems = _problems(self.entry) if isinstance(self.entry, ObjectiveEntry) else []
        if problems := [*problems, *_call(equation), *self._differences(equation)]:
            raise several(f"{self.kind} {self.name!r}", _unconverted(self, equation) or problems)
        entry = self.described(inspect.getdoc(equation))
        source = entry.source or stem_of(equation.__module__)
        _register(self.kind, self.name, equation, replace(entry, source=source, equation=equation))
        return equation

    def described(self, docstring: str | None) -> Any:
        """Return the entry; its formula is the first line of the docstring unless the declaration has another."""
        first = (docstring or "no formula given").partition("\n")[0].removesuffix(".")
        return replace(self.entry, formula=self.entry.formula or first)

    def _differences(self, equation: Callable[..., Any]) -> list[str]:
        """The differences between the signature and the declared parameters.

        If an objective has `needs`, training reads parameters that are not arguments, and sets those with a default.
        """
        arguments = _arguments(equation)[not isinstance(equation, type) :]
        if relative := getattr(self.entry, "relative", None):
            arguments += inspect.signature(relative).parameters.values()
        names, training = [argument.name for argument in arguments], getattr(self.entry, "needs", ())
        if training:
            names = [argument.name for argument in arguments if argument.default is argument.empty]
            names += [name for name in self.entry.own if name not in names]
        return differences(equation.__name__, list(dict.fromkeys(names)), self.entry.own)


def _arguments(equation: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments of a function or constructor; none for the inherited constructor of torch.nn.Module."""
    inherited = getattr(equation.__init__, "__module__", "") == "torch.nn.modules.module"
    return [] if inherited else list(inspect.signature(equation).parameters.values())


def _call(equation: Callable[..., Any]) -> list[str]:
    """Problems of the call signature of a loss or weight."""
    if isinstance(equation, type):
        if not any("__call__" in vars(kind) for kind in equation.__mro__):
            return [f"class {equation.__name__} has no __call__(self, triplets)"]
        name = "forward" if hasattr(equation, "forward") else "__call__"
        if getattr(equation, name).__name__ == "_forward_unimplemented":  # torch.nn.Module's own
            return [f"class {equation.__name__} has no forward(self, t)"]
        taken = list(inspect.signature(getattr(equation, name)).parameters.values())[1:]
        bare = [a.name for a in taken if a.default is a.empty and a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
        if not taken or len(bare) > 1:
            given = ", ".join(str(argument) for argument in taken)
            return [f"{equation.__name__}.{name} takes ({given}) after self; {ONE_ARGUMENT}"]
        return []
    first = next(iter(inspect.signature(equation).parameters.values()), None)
    by_place = first and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    return [] if by_place else ["its first argument must be the triplets, or the scores"]


def _unconverted(declaration: Declaration, loss: Callable[..., Any]) -> list[str]:
    """Advice for a loss that takes s_pos and s_neg, or image and text; empty for any other function."""
    arguments = inspect.signature(loss).parameters
    bare = {a.name for a in arguments.values() if a.default is a.empty and a.kind is a.POSITIONAL_OR_KEYWORD}
    usual = len(bare - declaration.entry.own.keys()) > 1 and next(iter(arguments)) not in ("t", "triplets", "scores")
    if declaration.kind != "objective" or isinstance(loss, type) or not usual:
        return []
    return [f"{loss.__name__} takes ({', '.join(arguments)}); {ONE_ARGUMENT}"]


def objective(
    name: str,
    *,
    on: On = "hardest",
    formula: str = "",
    source: str = "",
    known_as: str = "",
    reductions: tuple[Value, Value] = ("sum", "sum"),
    remines: bool | None = None,
    needs: tuple[str, ...] = (),
    surrogate: bool = False,
    columns: tuple[str, ...] = (),
    **parameters: Parameter,
) -> Declaration:
    """Register a function or class as an objective: `@goalgrid.objective("mine", tau=Parameter(10.0, "steepness"))`.

    Args:
        name: name of the objective in grid files.
        on: the argument of the loss.
            "hardest": triplets (`objectives.triplets.Triplets`) with the hardest negative; a grid may choose others.
            "all": triplets with all negatives; missing ones are -inf. For both, return one value per triplet or anchor.
            "scores": the score matrix, images by texts, with pair k at (k, k). Return the loss of the batch.
        formula: one line; default: the first line of the docstring, without its full stop.
        source: the publication of the equation; default: the file's name.
        known_as: an alternative name.
        reductions: default of `objective.reduction` under the variants "paper" and "released".
        remines: whether a grid may choose other negatives; default: only with on="hardest".
        needs: components that training adds; training then reads the parameters that are not arguments of the function.
        surrogate: the gradient is deliberately not the derivative of the value; `goalgrid check` does not compare them.
        columns: columns of the table of captions (CSV, JSON lines, parquet); `t.extra[NAME]` holds one number per pair.
        parameters: every argument after the first; a class takes them in its constructor and is called like a function.

    Raises:
        UserError: the signature does not match the parameters, or a declaration is wrong.
    """
    remines = on == "hardest" if remines is None else remines
    entry = ObjectiveEntry(
        "own", source, formula, parameters, known_as, reductions, needs, columns, on, remines, surrogate
    )
    return Declaration("objective", name, entry)


def triplet_weight(name: str, *, source: str, **parameters: Parameter) -> Declaration:
    """Register a function of triplets as a triplet weight of GOAL's matrix; declare every argument after the first."""
    return Declaration("triplet weight", name, Weight("", source, parameters))


def pair_weight(
    name: str, *, source: str, relative: Callable[..., Any] | None = None, **parameters: Parameter
) -> Declaration:
    """Register a function of triplets as a pair weight; `relative` builds the sets whose means are m+ and m-."""
    return Declaration("pair weight", name, Weight("", source, parameters, relative))


def equations(module: str, kind: Kind) -> dict[str, Callable[..., Any]]:
    """Return the functions and classes that a module of goalgrid registers, by name."""
    return {one.name: one.entry.equation for one in registered.get(module, ()) if one.kind == kind}


def _problems(entry: ObjectiveEntry) -> list[str]:
    """Problems in an objective's declaration, regardless of its signature."""
    problems = [unknown("value", entry.on, get_args(On), where="of on")] if entry.on not in get_args(On) else []
    problems += [
        unknown("value", word, REDUCTIONS, where="of reductions") for word in entry.reductions if word not in REDUCTIONS
    ]
    parameters: Mapping[str, Any] = entry.own
    for name, parameter in parameters.items():
        if not isinstance(parameter, Parameter):
            problems.append(f"{name} = {parameter!r} is not a goalgrid.Parameter(default, meaning)")
        elif name in OF_THE_PROGRAM:
            problems.append(f"{name} is a parameter that every objective has; choose another name")
        elif parameter.only_with and parameter.only_with[0] not in parameters:
            problems.append(unknown("parameter", parameter.only_with[0], parameters, where=f"in only_with of {name}"))
    return problems


def differences(defined: str, taken: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Return the differences between the arguments that `defined` takes and the declared parameters."""
    undeclared = "is not declared; add {} = goalgrid.Parameter(default, meaning) to the decorator"
    problems = [f"{name} is declared, but {defined} takes no {name}" for name in parameters if name not in taken]
    return problems + [
        f"{defined} takes {name}, which {undeclared.format(name)}" for name in taken if name not in parameters
    ]


def pooling(name: str, **parameters: Parameter) -> Callable[[Equation], Equation]:
    """Register a pooling: `@goalgrid.pooling("mine", power=Parameter(2.0, "exponent"))`.

    A function takes `values` (b, n, d), `present` (b, n) and the parameters, and returns (b, d). Each row has at least
    one present member, and the result must not depend on the values of absent members. A class is a `torch.nn.Module`
    whose constructor takes `dim` (d) and the parameters, and which is called with `values` and `present`; its weights
    are trained.

    Args:
        name: its name in `model.image.pooling` or `model.text.pooling` of recipes and grids.
        parameters: every further argument of the function or the constructor.

    Raises:
        UserError: the signature does not match, or a declaration is wrong.
    """

    _check_named("pooling", name)

    def register(equation: Equation) -> Equation:
        first = ("dim",) if isinstance(equation, type) else ("values", "present")
        defined = f"{equation.__name__}{'.__init__' * isinstance(equation, type)}"
        if problems := [*_begins(defined, equation, first, parameters), *_undeclared(parameters)]:
            raise several(f"pooling {name!r}", problems)
        _register("pooling", name, equation, UserModule(equation, parameters))
        return equation

    return register


def image_encoder(
    name: str, *, on: ReadsImages = "pictures", **parameters: Parameter
) -> Callable[[Equation], Equation]:
    """Register a `torch.nn.Module` as an image encoder: `@goalgrid.image_encoder("mine", width=Parameter(64, "px"))`.

    Its constructor takes `shape` (of one image), `dim` (of the joint space) and the parameters. It is called with a
    batch of images and returns (b, dim), before normalisation.

    Args:
        name: its name in recipes and grids with `model.image.encoder = "own"`.
        on: the input. "pictures": (b, 3, size, size) in uint8, 0 to 255, with size, framing and augmentation from
            `model.image`. "features": the user's precomputed features, one vector per image, (b, k). "regions": several
            vectors per image, (b, n, k).
        parameters: every argument of the constructor after the first two.

    Raises:
        UserError: the class is not such a module, or a declaration is wrong.
    """
    return _module("image encoder", name, parameters, on)


def text_encoder(name: str, **parameters: Parameter) -> Callable[[Equation], Equation]:
    """Register a `torch.nn.Module` as a text encoder: `@goalgrid.text_encoder("mine", width=Parameter(64, "values"))`.

    Its constructor takes `words` (the vocabulary size), `dim` (of the joint space) and the parameters. It is called
    with ids (b, n), padded with 0, and lengths (b), and returns (b, dim), before normalisation.

    Raises:
        UserError: the class is not such a module, or a declaration is wrong.
    """
    return _module("text encoder", name, parameters)


def scorer(name: str, **parameters: Parameter) -> Callable[[Equation], Equation]:
    """Register a scorer of sets: `@goalgrid.scorer("mine", sharpness=Parameter(9.0, "steepness"))`.

    A function takes `images` (i, n, d), `regions` (i), `words` (t, m, d), `lengths` (t) and the parameters, and returns
    the scores (i, t). `images` and `words` hold float32 unit vectors, zero-padded: an image has `regions` vectors and
    a caption has `lengths` vectors. The scores must not depend on the padding.

    A class is a `torch.nn.Module` whose `forward` takes these four arguments, and whose constructor takes `dim` (d) and
    the parameters. Its weights are trained.

    Args:
        name: its name in recipes and grids with `model.scorer.kind = "own"`.
        parameters: every further argument of the function or the constructor.

    Raises:
        UserError: the signature does not match, or a declaration is wrong.
    """
    return _module("scorer", name, parameters)


ARGUMENTS: dict[UserModuleKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image encoder": (("shape", "dim"), ("images",)),
    "text encoder": (("words", "dim"), ("ids", "lengths")),
    "scorer": (("dim",), ("images", "regions", "words", "lengths")),
}
"""Required arguments by kind: those of the constructor, then those of `forward` or of a function."""


def _module(
    kind: UserModuleKind, name: str, parameters: Mapping[str, Any], on: ReadsImages = "pictures"
) -> Callable[[Equation], Equation]:
    _check_named(kind, name)
    constructed, called = ARGUMENTS[kind]

    def register(network: Equation) -> Equation:
        problems = [] if on in get_args(ReadsImages) else [unknown("value", on, get_args(ReadsImages), where="of on")]
        defined, module = network.__name__, cast(Any, network)
        if kind == "scorer" and not isinstance(network, type):
            problems += _begins(defined, network, called, parameters)
        elif not isinstance(network, type) or not hasattr(network, "state_dict"):
            problems.append(f"{defined} is not a subclass of torch.nn.Module")
        else:
            problems += _begins(f"{defined}.__init__", network, constructed, parameters)
            forward = list(inspect.signature(module.forward).parameters)[1:]
            if len(forward) != len(called):
                problems.append(f"{defined}.forward takes ({', '.join(forward)}); it must take ({', '.join(called)})")
        if problems := [*problems, *_undeclared(parameters)]:
            raise several(f"{kind} {name!r}", problems)
        _register(kind, name, network, UserModule(network, parameters, on))
        return network

    return register


def _undeclared(parameters: Mapping[str, Any]) -> list[str]:
    """Problems in the parameters declared by the decorator of a pooling, encoder or scorer."""
    problems = list[str]()
    for name, value in parameters.items():
        if not isinstance(value, Parameter):
            problems.append(f"{name} = {value!r} is not a goalgrid.Parameter(default, meaning)")
        elif value.only_with or value.released != value.default:
            problems.append(f"{name}: only parameters of losses may have released and only_with")
    return problems


def _begins(
    defined: str, network: Callable[..., Any], first: tuple[str, ...], parameters: Mapping[str, Any]
) -> list[str]:
    """Problems in a signature, which must begin with these names, followed by the parameters."""
    taken = [argument.name for argument in _arguments(network)]
    if tuple(taken[: len(first)]) != first:
        return [f"{defined} takes ({', '.join(taken)}); its first arguments must be {', '.join(first)}"]
    return differences(network.__name__, taken[len(first) :], parameters)


def _register(kind: Kind, name: str, equation: Callable[..., Any], entry: Any) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise UserError(f"{name!r}: {error}") from None
    if "." in equation.__qualname__:
        raise UserError(
            f"{name!r}: define {equation.__qualname__} at the top of the file, not inside a function or class"
        )
    registered.setdefault(equation.__module__, []).append(Registration(kind, name, equation.__qualname__, entry))
