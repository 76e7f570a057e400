"""Settings of pooling: how an encoder's vectors of an image or a caption are reduced to a single vector."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, PrivateAttr, ValidationInfo, field_validator

from goalgrid.grid.errors import unknown
from goalgrid.grid.objectives.declared import Declared, keys_of
from goalgrid.grid.objectives.parameters import Value
from goalgrid.grid.settings.base import IdentityDefault, ReadWhere, Settings, Unit, told_once
from goalgrid.grid.settings.user_modules import UserModule, completed, registered

POOLINGS = Declared(lambda: dict.fromkeys(keys_of("retrieval/encoders/pooling.py", "POOLING")))


def _known_pooling(name: str, info: ValidationInfo) -> str:
    known = [*POOLINGS, *registered(info.context, "pooling")]
    if name not in known:
        raise ValueError(unknown("pooling", name, known))
    return name


class _Schema:
    """The JSON schema of a pooling's name, built on demand."""

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        return {"type": "string", "enum": list(POOLINGS)}


PoolingName = Annotated[str, AfterValidator(_known_pooling), _Schema()]
Balance = Annotated[
    Annotated[float, Field(ge=0, le=1)] | Literal["learnt", "random"],
    told_once("a number from 0 to 1, 'learnt' or 'random'"),
]

SEVERAL = ReadWhere(
    lambda part, _: getattr(part, "output", "grid") in ("grid", "states"),
    "output = grid, or a caption's output = states",
)
"""Holds if an image or a caption has several vectors; the user's precomputed features count as several."""
HAS_HEAD = ReadWhere(lambda part, _: getattr(part, "head", "linear") != "none", "a head")
_KMAX = ReadWhere(lambda part, _: part.pooling == "kmax", "pooling = kmax")
_OWN = ReadWhere(lambda part, _: part.own_pooling is not None, "pooling = a pooling of your own")
_ADPOOL = ReadWhere(lambda part, _: part.pooling.startswith("adpool"), "pooling = adpool")


class PoolingSettings(Settings):
    """Settings of the pooling of vectors into one; `none` keeps the set, for scorers that read sets."""

    pooling: Annotated[PoolingName, SEVERAL] = Field("mean", description="pooling of several vectors into one")
    pool_k: Annotated[PositiveInt, Unit("values"), IdentityDefault(5), SEVERAL, _KMAX] = Field(
        5, description="number of largest values that k-max pooling averages"
    )
    pool_balance: Annotated[Balance, IdentityDefault("learnt"), SEVERAL, _ADPOOL] = Field(
        "learnt",
        description="weight of ADPOOL's token level; its embedding level gets the rest. learnt; random: drawn once "
        "from "
        "U(0, 1); or a number: 1 uses only the token level",
    )
    pool_parameters: Annotated[dict[str, Value], IdentityDefault({}), SEVERAL, _OWN] = Field(
        {},
        validate_default=True,
        description="values of the parameters declared by the decorator of your own pooling",
    )
    _own_pooling: UserModule | None = PrivateAttr(default=None)

    @field_validator("pool_parameters")
    @classmethod
    def _complete(cls, values: dict[str, Value], info: ValidationInfo) -> dict[str, Value]:
        """Fill in the parameters of a user-defined pooling; built-in poolings have none."""
        declared = registered(info.context, "pooling").get(info.data.get("pooling", ""))
        return completed(f"pooling {info.data['pooling']!r}", declared.parameters, values) if declared else {}

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._own_pooling = registered(context, "pooling").get(self.pooling)

    @property
    def own_pooling(self) -> UserModule | None:
        """The user-defined pooling that the name referred to at validation; None if it is a built-in pooling."""
        return self._own_pooling
