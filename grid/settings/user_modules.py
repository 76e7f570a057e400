"""Encoders and scorers of the user's own, with the parameters that they declare; and how settings find them.

Settings that name something of the user's own are validated with the grid's catalogue as pydantic's context
(`catalog.Catalog.validated`), and hold what their name meant there. Without a context, only shipped names are known.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.objectives.parameters import Parameter, Value
from goalgrid.grid.settings.base import Settings

UserModuleKind = Literal["image encoder", "text encoder", "scorer"]
ReadsImages = Literal["pictures", "features", "regions"]
"""What an own image encoder reads: pixels, or features that the user computed: a vector an image, or several."""


@dataclass(frozen=True)
class UserModule:
    """A pooling, an encoder or a scorer of the user's own."""

    network: Any
    """Its class, a `torch.nn.Module`; a pooling or scorer without weights may be a function."""
    parameters: Mapping[str, Parameter]
    """What its constructor, or the function, takes beside what goalgrid gives it."""
    on: ReadsImages = "pictures"


def registered(context: Any, kind: str) -> Mapping[str, Any]:
    """Return what the catalogue in a validation's context registers of this kind, by name; without one, nothing."""
    return context["catalog"].registered(kind) if context else {}


def completed(part: str, declared: Mapping[str, Parameter], values: Mapping[str, Value]) -> dict[str, Value]:
    """Return all declared parameters of a user's own part, defaults filled in; ValueError: a name or value is wrong."""
    complete = {name: parameter.default for name, parameter in declared.items()}
    for name, value in values.items():
        if name not in declared:
            raise ValueError(unknown("parameter", name, declared or ["none"], where=f"of {part}"))
        try:
            complete[name] = declared[name].parse(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return complete


class WrongReturn(UserError):
    """A user's own part returned a value that cannot be learnt from."""


def file_of(defined: Any) -> str:
    """The file of a function or class, else the name of its module."""
    return str(getattr(sys.modules.get(defined.__module__), "__file__", defined.__module__))


def in_its_file(part: str, defined: Any) -> str:
    """A user's own part, a function or class, with its file: `scorer 'late' in /home/me/late.py`."""
    return f"{part} in {file_of(defined)}"


def check_shape(part: str, defined: Any, value: Any, of: str, *expected: tuple[int, ...]) -> None:
    """Check that a user's own part returned floating-point numbers in a tensor of one of the expected shapes."""
    tensor = hasattr(value, "requires_grad")  # numpy's arrays have a shape and a dtype, too
    given = tuple(value.shape) if tensor else "None" if value is None else type(value).__name__
    if given in expected and value.dtype.is_floating_point:
        return
    kind = f" of {value.dtype}" if given in expected else ""
    needs = f"{'' if tensor else 'a tensor of '}{expected[0] or 'one number'}{' in floating point' if kind else ''}"
    raise WrongReturn(
        f"{in_its_file(part, defined)} "
        + (_mean_of_loss(part, given, expected) or f"gives {given}{kind} for {of}; it should give {needs}.")
    )


def _mean_of_loss(part: str, given: tuple[int, ...] | str, expected: tuple[tuple[int, ...], ...]) -> str:
    """The advice for a loss with a mean too many or too few, without the sizes of a batch; else empty."""
    if not part.startswith("objective ") or isinstance(given, str) or given in expected:
        return ""
    if () in expected:
        return (
            'returns several numbers; with on="scores", return one, the loss of the batch. Leave out '
            'reduction="none", or add .mean().'
        )
    if given:
        return ""
    return (
        "returns one number; return the value of each triplet, with the shape of t.s_neg: (directions, anchors, "
        "negatives), or (anchors, negatives) with all negatives. Leave out .mean() or .sum(): the values are added "
        "(objective.reduction)."
    )


def check_gradient(part: str, defined: Any, of: str, *values: Any) -> None:
    """Check that a gradient flows through something of what a user's own part returned, all of it tensors."""
    if not any(value.requires_grad for value in values):
        raise WrongReturn(
            f"{in_its_file(part, defined)} gives a value without a gradient for {of}, so nothing would learn; it "
            "should compute its value from them by torch alone, without detach(), item(), numpy() or no_grad()."
        )


class UserModuleSettings(Settings):
    """Which encoder or scorer of the user's own it is, and all its parameters, defaults filled in."""

    of: ClassVar[UserModuleKind]
    name: str = Field(description="of your own encoders or scorers, the name that its decorator gives it")
    parameters: dict[str, Value] = Field(
        {}, validate_default=True, description="values of the parameters that its decorator declares"
    )

    _module: UserModule = PrivateAttr()

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        known = registered(info.context, cls.of)
        if name not in known:
            decorator = cls.of.replace(" ", "_")
            hint = f'Put @goalgrid.{decorator}("{name}") above its definition in a file that the grid uses.'
            raise ValueError(unknown(f"{cls.of} of your own", name, known or ["none"], hint=hint))
        return name

    @field_validator("parameters")
    @classmethod
    def _complete(cls, values: dict[str, Value], info: ValidationInfo) -> dict[str, Value]:
        if "name" not in info.data:
            return values
        name = info.data["name"]
        return completed(f"{cls.of} {name!r}", registered(info.context, cls.of)[name].parameters, values)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._module = registered(context, self.of)[self.name]

    @property
    def user_module(self) -> UserModule:
        """The encoder or scorer that the name meant when the settings were validated."""
        return self._module
