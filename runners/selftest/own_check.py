"""The check of a user's own losses, poolings, encoders and scorers: each line computes what its name says."""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from goalgrid.grid import uses
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.own_parts import own_parts
from goalgrid.grid.settings.poolings import own_poolings
from goalgrid.runners.selftest.encoder_check import OF_ENCODERS, Broken
from goalgrid.runners.selftest.objective_check import OF_OBJECTIVES
from goalgrid.runners.selftest.pooling_check import OF_POOLINGS
from goalgrid.runners.selftest.scorer_check import OF_SCORERS

CHECKS: dict[str, dict[str, Callable[[str], str]]] = {
    "objective": OF_OBJECTIVES,
    "pooling": OF_POOLINGS,
    "image encoder": OF_ENCODERS,
    "text encoder": OF_ENCODERS,
    "scorer": OF_SCORERS,
}


@dataclass(frozen=True)
class Verdict:
    """The result of a check of a user's loss, pooling, encoder or scorer.

    Args:
        check: its name: `gradient`.
        holds: whether it passes.
        text: the measurement, or the fault.
    """

    check: str
    holds: bool
    text: str


def verdicts(name: str) -> Iterator[Verdict]:
    """The results of all checks of the user's loss, pooling, encoder or scorer of this name, one after the other."""
    of_parts = (kind for kind, parts in own_parts.items() if name in parts)
    kind = "pooling" if name in own_poolings else next(of_parts, "objective")
    for check, function in CHECKS[kind].items():
        try:
            yield Verdict(check, True, function(name))
        except (Broken, UserError) as found:
            yield Verdict(check, False, str(found))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not uses.raised(error):  # the user's Ctrl-C
                raise
            frame = traceback.extract_tb(error.__traceback__)[-1]
            yield Verdict(check, False, f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})")
