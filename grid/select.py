"""`[select]`: values that are chosen by validation for each cell, and when the search for them gives a trial up."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Halving:
    """When search trials of one cell stop: beyond the best `1/factor` at epochs `grace`, `grace * factor`, ..."""

    cell: str
    """Trials of one cell are compared with one another alone."""
    by: str
    """Validation metric as in the history, e.g. `val_rsum`; larger is better."""
    grace: int = 2
    factor: int = 3
