"""Detects finished trials that perform at chance level on the validation split; all outputs use the same verdict."""

from collections.abc import Container, Mapping
from typing import Any

from goalgrid.grid.store.home import Home


class Chance(Container[str]):
    """Ids of the trials whose selected checkpoint has a validation rsum that an untrained model could reach.

    A trial's history is read on first use, since a large table needs few of them. A trial without a history, e.g. an
    ensemble or an imported checkpoint, is never at chance.
    """

    def __init__(self, home: Home, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Store where to look; `rows`: columns of the records, including `val_rsum`, by trial id."""
        self._home, self._rows, self._known = home, rows, dict[str, float | None]()

    def reach(self, trial_id: str) -> float | None:
        """Return the chance level of rsum if the trial does not exceed it; else None."""
        if trial_id not in self._known:
            row = self._home.trial(trial_id).last_row() or {}
            chance, rsum = row.get("val_chance"), self._rows[trial_id]["val_rsum"]
            self._known[trial_id] = chance if isinstance(chance, int | float) and rsum <= chance else None
        return self._known[trial_id]

    def __contains__(self, trial_id: object) -> bool:
        return trial_id in self._rows and self.reach(str(trial_id)) is not None
