"""The immutable base class of all settings, and the markers that annotate their fields."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo

from goalgrid.grid.errors import UserError


def check_name(text: str) -> str:
    """Return the name if it is safe in file names, ids and terminals; else raise a ValueError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", text):
        raise ValueError("a name begins with a letter or digit, and has letters, digits, '.', '_', '-'; 80 at most")
    return text


def check_named(what: str, name: str) -> None:
    """Raise a UserError if `check_name` rejects the name; `what` says what the name is of."""
    try:
        check_name(name)
    except ValueError as error:
        raise UserError(f"{what} {name!r}: {error}.") from None


Name = Annotated[str, AfterValidator(check_name)]


def told_once(allowed: str) -> WrapValidator:
    """Return a validator that reports one message with the allowed values, instead of pydantic's message per type."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"it should be {allowed}") from None

    return WrapValidator(check)


def _as_written(value: Any, field: FieldInfo | None) -> Any:
    """The value of a field: None for "none" if None is a value, a text for true or false if it takes numbers alone."""
    if isinstance(value, list):
        return [_as_written(one, field) for one in value]
    kinds = _kinds(field.annotation) if field and (value == "none" or isinstance(value, bool)) else set()
    if value == "none":
        return None if type(None) in kinds and "none" not in kinds else value
    return str(value).lower() if kinds & {int, float} and not kinds & {bool, str} else value


def _kinds(kind: Any) -> set[Any]:
    """A type and the types within it, and the choices of a literal."""
    return {kind}.union(*map(_kinds, get_args(kind)))


def _placeable(gpus: float) -> float:
    if gpus > 1 and not gpus.is_integer():
        raise ValueError("it should be a fraction of one GPU, up to 1, or a whole number of GPUs")  # as Ray requires
    return gpus


Gpus = Annotated[NonNegativeFloat, AfterValidator(_placeable)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """Base class of all settings: immutable, with all defaults filled in; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, content: Any) -> Any:
        """Read "none", since TOML has no null, and leave pydantic no true or false to read as 1 or 0."""
        if not isinstance(content, dict):
            return content
        return {name: _as_written(value, cls.model_fields.get(name)) for name, value in content.items()}

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # values may be tables, which have no hash


CHOICES = ("encoder", "kind")
"""The fields that select the class of a settings table: `encoder` for encoders, `kind` for scorers and fusion."""


CALL = "call"
"""The field that selects how a network is called: as published, or plainly."""
CALL_FIELDS = frozenset({"framing", "margin", "filter", "statistics", "prompt", "max_words"})
"""Fields of the same table that are reset when `call` changes; a change of encoder resets all fields."""

LEARNING = {"trains": "frozen", "frozen": "trains"}
"""The two fields that select which parts of a network are trained; setting one resets the other."""


def remaining_fields(table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a table that survive an override; another encoder, scorer or call resets some of them.

    >>> remaining_fields({"call": "plain", "filter": "bilinear", "size": 224}, {"call": "published"})
    {'call': 'plain', 'size': 224}
    """
    if any(choice in given and table.get(choice) != given[choice] for choice in CHOICES):
        return {}
    other = CALL in given and table.get(CALL, "plain") != given[CALL]
    dropped = CALL_FIELDS if other else frozenset[str]()
    dropped |= {after for name, after in LEARNING.items() if name in given and after not in given}
    return {name: value for name, value in table.items() if name not in dropped}


WHOLE = frozenset({"architecture"})
"""Fields whose value is a table that an extending recipe replaces as a whole; components declare further ones."""


class ReadWhere:
    """Marks a field that has an effect only under a condition; where it does not hold, a grid cannot set the field.

    Args:
        condition: takes the settings that hold the field, and their `Reader` (None for the model's settings).
        words: the condition in words, for messages and docs.
    """

    def __init__(self, condition: Callable[[Any, Any], bool], words: str) -> None:
        self.condition, self.words = condition, words


class Unit:
    """Marks a field with its unit, in the plural: epochs, pixels."""

    def __init__(self, words: str) -> None:
        self.words = words


class NoIdentity:
    """Marks a field that does not change a trial's results: it is not part of the trial id and cannot be swept."""


class IdentityDefault:
    """Marks a field that was added later: while it has this value, it is left out of the trial id.

    The value describes the program's behaviour before the field existed. It never changes, even if the default does.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
