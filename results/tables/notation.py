"""The papers' notation in LaTeX: calligraphic losses, and GOAL's weights with their names as superscripts."""

import re
from collections.abc import Callable

from goalgrid.grid.objectives.goal_matrix import CELLS

_CELLS = "|".join(sorted(CELLS, key=len, reverse=True))
_NAMED = re.compile(
    rf"(?<![\w-])(?:L_(?P<loss>\w+(?:-\w+)*)|(?P<letter>[PT])\^(?P<weight>[a-z]+(?:-ms)?)|(?P<cell>{_CELLS}))(?![\w-])"
)


def weight(letter: str, name: str) -> str:
    r"""A weight of GOAL, for LaTeX's math mode.

    >>> print(weight("P", "sig-ms"))
    P^{\mathrm{sig\mathchar`-ms}}
    """
    return rf"{letter}^{{{_upright(name)}}}"


def mathematics(text: str, escape: Callable[[str], str]) -> str:
    r"""Text as LaTeX: losses, weights and cells in the papers' notation, the rest as plain text.

    Args:
        escape: makes LaTeX of plain text.

    >>> print(mathematics("BFAN* + L_T-SelHN", str), mathematics("fc-bow, con_cir; T^nca", str))
    BFAN* + $\mathcal{L}_{\mathrm{T\mathchar`-SelHN}}$ fc-bow, $P^{\mathrm{con}}\,T^{\mathrm{cir}}$; $T^{\mathrm{nca}}$
    """
    parts, end = [], 0
    for match in _NAMED.finditer(text):
        parts += [escape(text[end : match.start()]), f"${_symbol(match)}$"]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _symbol(match: re.Match[str]) -> str:
    if match["loss"]:
        return rf"\mathcal{{L}}_{{{_upright(match['loss'])}}}"
    if match["weight"]:
        return weight(match["letter"], match["weight"])
    pair, triplet = match["cell"].split("_")
    return rf"{weight('P', pair)}\,{weight('T', triplet)}"


def _upright(name: str) -> str:
    """A name in upright letters; its hyphens stay hyphens, which math mode would set as minus signs."""
    hyphened = name.replace("-", r"\mathchar`-")
    return rf"\mathrm{{{hyphened}}}"
