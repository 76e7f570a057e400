"""[fair]: rules for a fair comparison; `run` and `table` fail if a required rule is violated."""

from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from goalgrid.grid.errors import unknown
from goalgrid.grid.settings.base import Settings


class Rule(NamedTuple):
    """A rule of fair comparison (`asks`), and a short label for cells that violate it (`broken`)."""

    asks: str
    broken: str


RULES = {
    "equal-epochs": Rule(
        "cells of a block train for equally many epochs, and their searches for the same share", "other epochs"
    ),
    "equal-settings": Rule("cells of a data set have equal settings, but for axes and chosen values", "other settings"),
    "equal-points": Rule("no point of a search failed or is impossible", "points failed"),
    "default-tried": Rule("the default is a point of the search", "default not tried"),
    "confirmed": Rule("further seeds confirm the choice", "chosen by one seed"),
    "gain-holds": Rule(
        "on fresh seeds, the validation metric of the choice is not below that of the default",
        "on fresh seeds below the default",
    ),
    "no-edge": Rule("no chosen number is the smallest or largest of those tried", "chosen at an edge"),
    "no-collapse": Rule("no seed is at chance or failed", "seeds collapsed"),
    "long-enough": Rule("the best epoch is not the last in half of the seeds or more", "best in its last epoch"),
    "equal-clipping": Rule("shares of clipped steps of a block differ by 0.5 at most", "clipped unlike others"),
    "train-apart-from-test": Rule("no test image is in the training split", "trained on test images"),
    "val-apart-from-test": Rule(
        "no test image is in the validation split, if validation chooses", "chosen on test images"
    ),
    "no-earlier-search": Rule(
        "no test results of earlier searches were known when the search began", "searched after test was seen"
    ),
}
"""Rules by name."""


def _rule(name: str) -> str:
    if name not in RULES:
        raise ValueError(unknown("rule", name, RULES))
    return name


class Fair(Settings):
    """[fair] of a grid file; it does not change trial ids."""

    require: list[Annotated[str, AfterValidator(_rule)]] = Field(
        default=[],
        description="rules that every cell must meet, or `goalgrid run` and `goalgrid table` exit with status 4; "
        "`goalgrid fair GRID` lists all rules",
    )
