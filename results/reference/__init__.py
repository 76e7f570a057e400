"""What the four papers report, number by number, as printed: a TOML file for every table.

>>> [result] = [r for r in results("goal-table3-coco")
...             if (r.recipe, r.objective, r.metric) == ("vsepp-r152-ft", "sig-ms_cir", "i2t_r1")]
>>> result.value.mean, result.value.std, result.value.n
(43.8, 0.5, 3)
"""

from results.reference.matching import Difference, Match, match, reported
from results.reference.paper_source import Paper, is_paper, listing
from results.reference.reading import Printed, Result, everything, names, read, results

__all__ = [
    "Difference",
    "Match",
    "Paper",
    "Printed",
    "Result",
    "everything",
    "is_paper",
    "listing",
    "match",
    "names",
    "read",
    "reported",
    "results",
]
