"""Which finished trials are no better than chance on the validation split: one verdict, wherever it is shown."""

from collections.abc import Container, Mapping
from typing import Any

from goalgrid.grid.store.home import Home


class Chance(Container[str]):
    """Ids of the trials whose checkpoint that counts has a validation rsum that an untrained model may reach.

    The history of a trial is read when it is first asked for, since a large table asks for few. A trial without one, as
    an ensemble or an imported checkpoint, is never at chance.
    """

    def __init__(self, home: Home, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """`rows`: `val_rsum` of the records, by trial id."""
        self._home, self._rows, self._known = home, rows, dict[str, float | None]()

    def reach(self, trial_id: str) -> float | None:
        """Return the rsum of chance for a trial that is no better; None for any other."""
        if trial_id not in self._known:
            row = self._home.trial(trial_id).last_row() or {}
            chance, rsum = row.get("val_chance"), self._rows[trial_id]["val_rsum"]
            self._known[trial_id] = chance if isinstance(chance, int | float) and rsum <= chance else None
        return self._known[trial_id]

    def __contains__(self, trial_id: object) -> bool:
        return trial_id in self._rows and self.reach(str(trial_id)) is not None
