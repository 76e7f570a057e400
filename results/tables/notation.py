"""Text as LaTeX: losses, weights and cells in the papers' notation, the rest escaped, here and nowhere else."""

import re

from goalgrid.grid.objectives.goal_matrix import CELLS

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"}, "\u00a0": "~", "\u200b": "{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "→": r"$\rightarrow$", "∞": r"$\infty$", "²": r"$^2$",
    "✓": r"$\checkmark$", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "η": r"$\eta$", "ω": r"$\omega$",
}  # fmt: skip

_CELLS = "|".join(sorted(CELLS, key=len, reverse=True))
_NAMED = re.compile(
    rf"(?<![\w-])(?:L_(?P<loss>\w+(?:-\w+)*)|(?P<letter>[PT])\^(?P<weight>[a-z]+(?:-ms)?)|(?P<cell>{_CELLS}))(?![\w-])"
)


def escape(text: str) -> str:
    """Plain text as LaTeX.

    >>> print(escape("fc_bow: 50% ± 1"))
    fc\\_bow: 50\\% $\\pm$ 1
    """
    return "".join(_SPECIAL.get(character, character) for character in re.sub(r"--(?=\w)", "-\u200b-", text))


def weight(letter: str, name: str) -> str:
    r"""A weight of GOAL, for LaTeX's math mode.

    >>> print(weight("P", "sig-ms"))
    P^{\mathrm{sig\mathchar`-ms}}
    """
    return rf"{letter}^{{{_upright(name)}}}"


def prose(text: str) -> str:
    r"""Text as LaTeX: losses, weights and cells in the papers' notation, the rest as plain text.

    >>> print(prose("BFAN* + L_T-SelHN"), prose("fc-bow, con_cir; T^nca"))
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
