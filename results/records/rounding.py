"""Rounds and formats numbers, in the same way for text, bold type and differences."""

import math
from decimal import ROUND_HALF_UP, Decimal

SHOWN_DIGITS = 1
"""Decimal places in every table. Values that are equal at this precision tie for the best."""
NONE = "--"
"""Shown for a number that does not exist, e.g. a p value or an interval of values without spread."""
SURE_DIGITS = 9
"""Decimal places unaffected by floating-point error: to this precision, 0.1 + 0.2 is 0.3."""


def rounded(value: float, digits: int = SHOWN_DIGITS) -> float:
    """Round to `digits` decimal places, halves away from 0, as one does by hand; NaN and infinity are kept.

    >>> rounded((10.1 + 10.2) / 2), rounded((10.0 + 10.3) / 2), rounded(-0.25)
    (10.2, 10.2, -0.3)
    """
    if not math.isfinite(value):
        return value
    exact = Decimal(f"{value:.{SURE_DIGITS}f}")
    return float(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def written(value: float, digits: int = SHOWN_DIGITS, sign: str = "") -> str:
    """Format the rounded value; with `sign` "+", positive values get a plus. A value that rounds to 0 has no minus.

    >>> written(63.05), written(0.04, sign="+"), written(-0.04, sign="+"), written(0.0625, 3)
    ('63.1', '+0.0', '+0.0', '0.063')
    """
    return f"{rounded(value, digits):{sign}z.{digits}f}"


def number_text(value: float, digits: int = SHOWN_DIGITS, sign: str = "") -> str:
    """Format the value like `written`; `--` for NaN."""
    return NONE if math.isnan(value) else written(value, digits, sign)


def p_text(p: float) -> str:
    """Format a p value, e.g. `< 0.001` or `0.012`; `--` for NaN (the test could not be computed)."""
    return "< 0.001" if p < 0.001 else number_text(p, 3)
