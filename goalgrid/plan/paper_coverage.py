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


def to_dict(coverage: "Coverage") -> dict[str, Any]:
    """The coverage of a table, with every number of the table."""
    numbers = [
        *((result, None) for result in coverage.filled),
        *((result, gap.text) for result, gap in coverage.lacking),
    ]
    return {
        "name": coverage.name,
        "filled": len(coverage.filled),
        "numbers": [{name: getattr(result, name) for name in _NAMES} | {"missing": why} for result, why in numbers],
        "changed": list(coverage.changed),
    }


def lines(coverage: "Coverage") -> list[str]:
    """The share of the table's numbers that the grid fills, and a line for each reason why numbers will be missing."""
    total = len(coverage.filled) + len(coverage.lacking)
    share = f"all {total}" if not coverage.lacking else f"{len(coverage.filled)} of {total}"
    changed = f", by settings other than the recipes': {', '.join(coverage.changed)}" if coverage.changed else ""
    reasons: dict[str, list[tuple[Result, Gap]]] = {}
    for result, gap in coverage.lacking:
        reasons.setdefault(gap.why, []).append((result, gap))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"{coverage.name}: the grid fills {share} numbers{changed}",
        *(f"{len(members):4} not: {why} {_what(members)}" for why, members in ordered),
    ]


def _what(members: "Sequence[tuple[Result, Gap]]") -> str:
    """The names of what is missing, or of the table's rows if it has no name; shortened."""
    rows = (", ".join(filter(None, [result.model, result.loss])) for result, _ in members)
    names = list(dict.fromkeys(gap.name or f"({row})" for (_, gap), row in zip(members, rows, strict=True)))
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
