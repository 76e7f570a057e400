"""How alike two orders are: Kendall's tau, and whether orders without anything in common are as alike by chance."""

import math

import numpy as np
from numpy.typing import NDArray

from goalgrid.results.statistics.significance import Numbers


def kendall(x: Numbers, y: Numbers) -> float:
    """Kendall's tau-b: pairs in the same order minus pairs in opposite order, over all pairs that tie in neither.

    (C - D) / sqrt((C + D + X)(C + D + Y)), X and Y the pairs that tie in x or in y alone. NaN where x or y is constant.
    """
    one, other = _signs(x), _signs(y)
    size = math.sqrt(np.count_nonzero(one) * np.count_nonzero(other))
    return float((one * other).sum() / size) if size else math.nan


def kendall_p(x: Numbers, y: Numbers) -> float:
    """p of the exact two-sided test that the orders have nothing in common: all orders of y are equally likely for x.

    The share of all orders with |C - D| as large as here. D is the number of inversions of an order; over all orders of
    n things it is the sum of independent numbers that are uniform on 0, ..., k - 1 for k = 1, ..., n. Kendall (1938). A
    tie counts for neither order, which makes the test conservative. NaN where x or y is constant.
    """
    one, other = _signs(x), _signs(y)
    if not (one.any() and other.any()):
        return math.nan
    shares = np.ones(1)
    for k in range(2, len(one) + 1):
        shares = np.convolve(shares, np.full(k, 1 / k))
    pairs = len(shares) - 1
    excess = abs((one * other).sum()) / 2
    return float(min(1.0, shares[np.abs(pairs - 2 * np.arange(pairs + 1)) >= excess].sum()))


def _signs(values: Numbers) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=float)
    return np.sign(x[:, None] - x)
