"""How alike two orders are: Kendall's tau."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.statistics.significance import Numbers


def kendall(x: Numbers, y: Numbers) -> float:
    """Kendall's tau-b: pairs in the same order minus pairs in opposite order, over all pairs that tie in neither.

    (C - D) / sqrt((C + D + X)(C + D + Y)), X and Y the pairs that tie in x or in y alone. NaN where x or y is constant.
    """
    return float(kendalls(np.asarray(x, dtype=float), np.asarray(y, dtype=float)))


def kendalls(x: NDArray[np.float64], y: NDArray[np.float64]) -> Any:
    """`kendall` along the last axis."""
    one, other = (np.sign(values[..., :, None] - values[..., None, :]) for values in (x, y))
    size = np.sqrt((one != 0).sum((-2, -1)) * (other != 0).sum((-2, -1), dtype=float))
    return np.divide((one * other).sum((-2, -1)), size, out=np.full_like(size, np.nan), where=size > 0)
