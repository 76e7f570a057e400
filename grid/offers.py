"""How a user's own file offers losses, poolings, encoders and scorers: the decorators, and what they have offered."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from goalgrid.grid.errors import UserError, several, unknown
from goalgrid.grid.objectives.own_loss import On, differences, entry_of
from goalgrid.grid.objectives.parameters import Parameter
from goalgrid.grid.settings.base import check_name
from goalgrid.grid.settings.own_parts import OwnKind, OwnPart, ReadsImages

PREFIX = "uses:"
"""Begins the module names of users' files, so that none hides a module of ours or of a library."""

Equation = TypeVar("Equation", bound=Callable[..., Any])
Network = TypeVar("Network", bound=type)


Kind = Literal["objective", "pooling", "image encoder", "text encoder", "scorer"]


@dataclass(frozen=True)
class Offer:
    """Something of a user's own under a name.

    Args:
        defined: the name of its definition in its module.
        made: what a catalogue of ours holds of it.
    """

    kind: Kind
    name: str
    defined: str
    made: Any


offered: dict[str, list[Offer]] = {}
"""What each module that was imported offers, by the module's name."""


def objective(
    name: str, *, on: On = "hardest", formula: str = "", source: str = "", **parameters: Parameter
) -> Callable[[Equation], Equation]:
    """Offer a function or class as an objective: `@goalgrid.objective("mine", tau=Parameter(10.0, "steepness"))`.

    Args:
        name: by which grids name it.
        on: "hardest": triplets (`objectives.triplets.Triplets`) with the hardest negative; a grid may choose others.
            "all": triplets with all negatives, -inf where there is none. Of both it returns the value of each triplet,
            or of each anchor.
            "scores": the matrix of scores, images by texts, pair k at (k, k). It returns the loss of the batch.
        formula: one line; default: the first line of the docstring.
        source: where the equation stands; default: the file's name.
        parameters: every argument after the first. A class takes them in its constructor, and is called as a function.

    Raises:
        UserError: the signature has other parameters, or a declaration is wrong.
    """

    def offer(equation: Equation) -> Equation:
        from_file = source or str(equation.__module__).removeprefix(PREFIX)
        _offer("objective", name, equation, entry_of(name, equation, on, parameters, formula, from_file))
        return equation

    return offer


def pooling(name: str) -> Callable[[Equation], Equation]:
    """Offer a pooling: a function of `values` (b, n, d) and `present` (b, n) that returns (b, d); or a class of such.

    At least one member is present in each row; the value of a member that is not present must not count. A class is a
    `torch.nn.Module` whose constructor takes d; its weights learn.

    Raises:
        UserError: the signature is another.
    """

    def offer(equation: Equation) -> Equation:
        wanted = ["dim"] if isinstance(equation, type) else ["values", "present"]
        taken = list(inspect.signature(equation).parameters)
        if taken != wanted:
            signature = f"{equation.__name__} takes ({', '.join(taken)})"
            raise UserError(f"pooling {name!r}: {signature}; it should take ({', '.join(wanted)})")
        _offer("pooling", name, equation, equation)
        return equation

    return offer


def image_encoder(name: str, *, on: ReadsImages = "pictures", **parameters: Parameter) -> Callable[[Network], Network]:
    """Offer a `torch.nn.Module` as an image encoder: `@goalgrid.image_encoder("mine", width=Parameter(64, "cells"))`.

    Its constructor takes `shape`, of an image; `dim`, of the joint space; and the parameters. It is called with a batch
    of images and returns (b, dim), before normalisation.

    Args:
        name: by which recipes and grids name it, under `model.image.encoder = "own"`.
        on: "pictures": images are (b, 3, size, size) of 0 to 255, uint8; `model.image` has size, framing and
            augmentation. "features": a vector an image, (b, k), that the user computed. "regions": several, (b, n, k).
        parameters: every argument of the constructor after the first two.

    Raises:
        UserError: the class is no such module, or a declaration is wrong.
    """

    def offer(network: Network) -> Network:
        _offer_part("image encoder", name, network, parameters, on)
        return network

    return offer


def text_encoder(name: str, **parameters: Parameter) -> Callable[[Network], Network]:
    """Offer a `torch.nn.Module` as a text encoder: `@goalgrid.text_encoder("mine", width=Parameter(64, "values"))`.

    Its constructor takes `words`, how many indices there are; `dim`, of the joint space; and the parameters. It is
    called with ids (b, n), 0 behind a caption's end, and lengths (b), and returns (b, dim), before normalisation.

    Raises:
        UserError: the class is no such module, or a declaration is wrong.
    """

    def offer(network: Network) -> Network:
        _offer_part("text encoder", name, network, parameters)
        return network

    return offer


def scorer(name: str, **parameters: Parameter) -> Callable[[Equation], Equation]:
    """Offer a scorer of sets: `@goalgrid.scorer("mine", sharpness=Parameter(9.0, "steepness"))`.

    A function of `images` (i, n, d), `regions` (i), `words` (t, m, d) and `lengths` (t), then of the parameters, which
    returns the scores (i, t). `images` and `words` hold unit vectors in float32; an image has its first `regions`
    vectors, a caption its first `lengths`, and behind them stand zeros, which must not count.

    A class is a `torch.nn.Module` whose `forward` takes the same four; its constructor takes `dim`, which is d, and the
    parameters. Its weights learn.

    Args:
        name: by which recipes and grids name it, under `model.scorer.kind = "own"`.
        parameters: every further argument of the function or the constructor.

    Raises:
        UserError: the signature is another, or a declaration is wrong.
    """

    def offer(equation: Equation) -> Equation:
        _offer_part("scorer", name, equation, parameters)
        return equation

    return offer


CONSTRUCTED: dict[OwnKind, tuple[str, ...]] = {
    "image encoder": ("shape", "dim"),
    "text encoder": ("words", "dim"),
    "scorer": ("dim",),
}
"""What the constructor of an own class takes before its parameters."""
CALLED: dict[OwnKind, tuple[str, ...]] = {
    "image encoder": ("images",),
    "text encoder": ("ids", "lengths"),
    "scorer": ("images", "regions", "words", "lengths"),
}
"""What its `forward` takes, and a function before its parameters."""


def _offer_part(
    kind: OwnKind, name: str, network: Any, parameters: Mapping[str, Any], on: ReadsImages = "pictures"
) -> None:
    problems = [] if on in get_args(ReadsImages) else [unknown("value", on, get_args(ReadsImages), where="of on")]
    if kind == "scorer" and not isinstance(network, type):
        problems += _begins(network.__name__, network, CALLED[kind], parameters)
    elif not isinstance(network, type) or not hasattr(network, "state_dict"):
        problems.append(f"{network.__name__} is no class that derives from torch.nn.Module")
    else:
        problems += _begins(f"{network.__name__}.__init__", network, CONSTRUCTED[kind], parameters)
        module: Any = network
        called, forward = CALLED[kind], list(inspect.signature(module.forward).parameters)[1:]
        if len(forward) != len(called):
            problems.append(f"{network.__name__}.forward takes ({', '.join(forward)}); it takes ({', '.join(called)})")
    for parameter, value in parameters.items():
        if not isinstance(value, Parameter):
            problems.append(f"{parameter} = {value!r} is no goalgrid.Parameter(default, meaning)")
        elif value.only_with or value.released != value.paper:
            problems.append(f"{parameter}: released and only_with are for parameters of losses")
    if problems:
        raise several(f"{kind} {name!r}", problems)
    _offer(kind, name, network, OwnPart(network, parameters, on))


def _begins(
    defined: str, network: Callable[..., Any], first: tuple[str, ...], parameters: Mapping[str, Any]
) -> list[str]:
    """What is wrong with a signature that should begin with these names, and go on with the parameters."""
    taken = list(inspect.signature(network).parameters)
    if tuple(taken[: len(first)]) != first:
        return [f"{defined} takes ({', '.join(taken)}); it begins with {', '.join(first)}"]
    return differences(network.__name__, taken[len(first) :], parameters)


def _offer(kind: Kind, name: str, equation: Callable[..., Any], made: Any) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise UserError(f"{name!r}: {error}") from None
    if "." in equation.__qualname__:
        raise UserError(f"{name!r}: {equation.__qualname__} has to stand at the top of the file, in no other function")
    offered.setdefault(equation.__module__, []).append(Offer(kind, name, equation.__qualname__, made))
