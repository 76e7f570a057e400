"""What `goalgrid plan` says of the papers' tables that a grid names: which of their numbers it will fill."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goalgrid.reading.overview import Overview

if TYPE_CHECKING:
    from goalgrid.results.reference.coverage import Coverage, Gap
    from goalgrid.results.reference.reading import Result

LISTED = 4
"""Names or rows that are spelled out for a reason."""

_NAMES = ("block", "model", "loss", "metric", "dataset", "protocol", "recipe", "objective")


def fills(overview: Overview) -> "list[Coverage]":
    """Every table that the grid names, held against its cells."""
    if not overview.grid.tables:
        return []
    from goalgrid.results.reference.coverage import coverage

    return [coverage(name, overview.cells) for name in overview.grid.tables]


def to_dict(found: "Coverage") -> dict[str, Any]:
    """The coverage of a table, with every number of the table."""
    numbers = [*((result, None) for result in found.filled), *((result, gap.text) for result, gap in found.lacking)]
    return {
        "name": found.name,
        "filled": len(found.filled),
        "numbers": [{name: getattr(result, name) for name in _NAMES} | {"missing": why} for result, why in numbers],
        "changed": list(found.changed),
    }


def lines(found: "Coverage") -> list[str]:
    """The share of the table's numbers that the grid fills, and a line for each reason why numbers will be missing."""
    total = len(found.filled) + len(found.lacking)
    share = f"all {total}" if not found.lacking else f"{len(found.filled)} of {total}"
    changed = f", by settings other than the recipes': {', '.join(found.changed)}" if found.changed else ""
    reasons: dict[str, list[tuple[Result, Gap]]] = {}
    for result, gap in found.lacking:
        reasons.setdefault(gap.why, []).append((result, gap))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"{found.name}: the grid fills {share} numbers{changed}",
        *(f"{len(members):4} not: {why} {_what(members)}" for why, members in ordered),
    ]


def _what(members: "Sequence[tuple[Result, Gap]]") -> str:
    """The names of what is missing, or of the table's rows if it has no name; shortened."""
    rows = (", ".join(filter(None, [result.model, result.loss])) for result, _ in members)
    names = list(dict.fromkeys(gap.name or f"({row})" for (_, gap), row in zip(members, rows, strict=True)))
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
