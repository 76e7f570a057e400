"""User-defined encoders, scorers and poolings, their declared parameters, and how settings look them up.

Settings that name a user-defined component are validated with the grid's catalogue as pydantic's context
(`catalog.Catalog.validated`), and keep the component found there. Without a context, only built-in names are known.
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
"""Input of a user-defined image encoder: pixels, or precomputed features with one or several vectors per image."""


@dataclass(frozen=True)
class UserModule:
    """A user-defined pooling, encoder or scorer."""

    network: Any
    """Its class, a subclass of `torch.nn.Module`; a pooling or scorer without weights may also be a function."""
    parameters: Mapping[str, Parameter]
    """Parameters of its constructor, or of the function, in addition to the arguments that goalgrid passes."""
    on: ReadsImages = "pictures"


def registered(context: Any, kind: str) -> Mapping[str, Any]:
    """Return the components of this kind registered in the context's catalogue, by name; empty without a context."""
    return context["catalog"].registered(kind) if context else {}


def completed(part: str, declared: Mapping[str, Parameter], values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of all declared parameters, including defaults; raise a ValueError if one is wrong."""
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
    """A user-defined component returned a value that cannot be trained on."""


def file_of(defined: Any) -> str:
    """Return the file of a function or class, or the name of its module if it has no file."""
    return str(getattr(sys.modules.get(defined.__module__), "__file__", defined.__module__))


def in_its_file(part: str, defined: Any) -> str:
    """Return a user-defined component's name followed by its file: `scorer 'late' in /home/me/late.py`."""
    return f"{part} in {file_of(defined)}"


def check_shape(part: str, defined: Any, value: Any, of: str, *expected: tuple[int, ...]) -> None:
    """Raise a WrongReturn unless a user-defined component returned a floating-point tensor of an expected shape."""
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
    """Advice for a loss that reduces too much or too little, without batch sizes; empty in other cases."""
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
    """Raise a WrongReturn if no tensor that a user-defined component returned carries a gradient."""
    if not any(value.requires_grad for value in values):
        raise WrongReturn(
            f"{in_its_file(part, defined)} gives a value without a gradient for {of}, so nothing would learn; it "
            "should compute its value from them by torch alone, without detach(), item(), numpy() or no_grad()."
        )


class UserModuleSettings(Settings):
    """The name of a user-defined encoder or scorer, and the values of all its parameters, including defaults."""

    of: ClassVar[UserModuleKind]
    name: str = Field(description="name of your own encoder or scorer, as given to its decorator")
    parameters: dict[str, Value] = Field(
        {}, validate_default=True, description="values of the parameters declared by its decorator"
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
        """The encoder or scorer that the name referred to when the settings were validated."""
        return self._module
