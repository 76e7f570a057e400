"""How numbers are rounded and written: once for texts, bold and differences."""

import math
from decimal import ROUND_HALF_UP, Decimal

SHOWN_DIGITS = 1
"""Digits after the point in every table. Values that are equal at this precision tie for the best."""
NONE = "--"
"""A number that does not exist: seeds that show no spread give no test and no interval."""
SURE_DIGITS = 9
"""Digits after the point that a sum of floats does not touch: 0.1 + 0.2 is 0.3 up to here."""


def rounded(value: float, digits: int = SHOWN_DIGITS) -> float:
    """Round to decimals, half away from 0, as a reader does by hand; NaN and infinity stay.

    >>> rounded((10.1 + 10.2) / 2), rounded((10.0 + 10.3) / 2), rounded(-0.25)
    (10.2, 10.2, -0.3)
    """
    if not math.isfinite(value):
        return value
    exact = Decimal(f"{value:.{SURE_DIGITS}f}")
    return float(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def written(value: float, digits: int = SHOWN_DIGITS, sign: str = "") -> str:
    """Write the rounded value; `sign` "+" writes a plus, too. A value that rounds to 0 has no minus.

    >>> written(63.05), written(0.04, sign="+"), written(-0.04, sign="+"), written(0.0625, 3)
    ('63.1', '+0.0', '+0.0', '0.063')
    """
    return f"{rounded(value, digits):{sign}z.{digits}f}"


def number_text(value: float, digits: int = SHOWN_DIGITS, sign: str = "") -> str:
    """Write the value by `written`; `--` for NaN."""
    return NONE if math.isnan(value) else written(value, digits, sign)


def p_text(p: float) -> str:
    """Write a p value: `< 0.001`, `0.012`; `--` for NaN, of a test that is impossible."""
    return "< 0.001" if p < 0.001 else number_text(p, 3)
