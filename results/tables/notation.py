"""Conversion of text to LaTeX: losses, weights and cells in the papers' notation; all other text escaped."""

import re
from unicodedata import lookup, normalize

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives.goal_matrix import CELLS

_SPELT = {"lambda": "lamda", "Lambda": "lamda"}
"""Greek letters whose Unicode name differs from their TeX command."""
_GREEK: tuple[str, ...] = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
)
_GREEK += ("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega")
_CAPITALS = ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega")
_SPECIAL = {
    **{lookup(f"GREEK SMALL LETTER {_SPELT.get(name, name)}"): rf"$\{name}$" for name in _GREEK},
    **{lookup(f"GREEK CAPITAL LETTER {_SPELT.get(name, name)}"): rf"$\{name}$" for name in _CAPITALS},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"}, "\u00a0": "~", "\u200b": "{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "→": r"$\rightarrow$", "∞": r"$\infty$", "²": r"$^2$",
    "✓": r"$\checkmark$", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "µ": r"$\mu$", "|": r"\textbar{}",
    "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "≈": r"$\approx$", "·": r"$\cdot$", "°": r"$^{\circ}$",
    "←": r"$\leftarrow$", "↔": r"$\leftrightarrow$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "³": r"$^3$",
    "§": r"\S{}", "©": r"\copyright{}", "®": r"\textregistered{}", "™": r"\texttrademark{}", "¹": "$^1$",
    "•": r"$\bullet$", "⋅": r"$\cdot$", "∗": r"$\ast$", "∈": r"$\in$", "∼": r"$\sim$", "√": r"$\surd$", "∑": r"$\sum$",
    "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\ldots{}",
}  # fmt: skip
_PLAIN_LETTERS = frozenset("ßæÆøØœŒåÅłŁı")
_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327")
"""Letters and accents available in every TeX font."""
_SETTING = re.compile(r"(?<![\w./-])(?:train|model|objective|dataset)((?:\.[a-z]\w*)+)(?![\w/])")
_SETTING_WORDS = {"lr": "learning rate", "lam": "λ", "eps": "ε"} | {
    name: lookup(f"GREEK SMALL LETTER {name}") for name in ("alpha", "beta", "gamma", "tau")
}

_CELLS = "|".join(sorted(CELLS, key=len, reverse=True))
_NAMED = re.compile(
    rf"(?<![\w-])(?:L_(?P<loss>\w+(?:-\w+)*)|(?P<letter>[PT])\^(?P<weight>[a-z]+(?:-ms)?)|(?P<cell>{_CELLS}))(?![\w-])"
)


def escape(text: str) -> str:
    """Escape plain text for LaTeX.

    >>> print(escape("fc_bow: 50% ± 1"))
    fc\\_bow: 50\\% $\\pm$ 1
    """
    spaced = re.sub(r"[ \t\r\n\f\v]+", " ", re.sub(r"--(?=\w)", "-\u200b-", _quoted(text)))
    return "".join(_SPECIAL.get(character, character) for character in spaced)


def _quoted(text: str) -> str:
    """Replace straight quotation marks by opening and closing ones."""
    return re.sub(r'(?<![^\s(\[“])"', "“", text).replace('"', "”")


def check_set(latex: str) -> None:
    """Raise UserError if pdflatex cannot typeset all characters; it names those that are missing.

    >>> check_set("Müller, Ångström, ß")
    """
    if strange := [repr(character) for character in dict.fromkeys(latex) if not _is_set(character)]:
        raise UserError(f"pdflatex cannot typeset {', '.join(strange)}; use other characters.")


def _is_set(character: str) -> bool:
    parts = normalize("NFD", character)
    base, accents = parts[0], parts[1:]
    known = character in _PLAIN_LETTERS or (accents != "" and base.isascii() and _ACCENTS.issuperset(accents))
    return known or character == "\n" or (character.isascii() and character.isprintable())


def setting_words(text: str) -> str:
    """Replace names of settings in a text by words.

    >>> setting_words("train.lr = 0.001, objective.tau = 10; model.text.word_drop 0 for 0.2")
    'learning rate = 0.001, τ = 10; text word drop 0 for 0.2'
    """

    def words(match: re.Match[str]) -> str:
        parts = match[1].split(".")[1:]
        return " ".join(_SETTING_WORDS.get(part, part.replace("_", " ")) for part in parts)

    return _SETTING.sub(words, text)


def weight(letter: str, name: str) -> str:
    r"""Return one of GOAL's weights in LaTeX math mode.

    >>> print(weight("P", "sig-ms"))
    P^{\mathrm{sig\mathchar`-ms}}
    """
    return rf"{letter}^{{{_upright(name)}}}"


def prose(text: str) -> str:
    r"""Convert text to LaTeX: losses, weights and cells in the papers' notation, the rest escaped.

    >>> print(prose("BFAN* + L_T-SelHN"), prose("fc-bow, con_cir; T^nca"))
    BFAN* + $\mathcal{L}_{\mathrm{T\mathchar`-SelHN}}$ fc-bow, $P^{\mathrm{con}}\,T^{\mathrm{cir}}$; $T^{\mathrm{nca}}$
    >>> print(prose('"the baseline P^con" ("RG" vs. "R")'))
    ``the baseline $P^{\mathrm{con}}$'' (``RG'' vs. ``R'')
    """
    text = _quoted(text)
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
    """Return a name in upright letters; hyphens are kept, since math mode would set them as minus signs."""
    hyphened = name.replace("-", r"\mathchar`-")
    return rf"\mathrm{{{hyphened}}}"
