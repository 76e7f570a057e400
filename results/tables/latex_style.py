"""How LaTeX sets a table, as its author asks for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goalgrid.grid.errors import UserError, check_known

WIDTHS = ("column", "text")
NOTES = ("plain", "threeparttable")


@dataclass(frozen=True)
class LatexStyle:
    """Style of a table in LaTeX."""

    label: str = ""
    caption: str = ""
    """The author's text in place of the title; notes stay."""
    siunitx: bool = False
    """Whether numbers are aligned at their points, by the package siunitx."""
    width: str = ""
    """`column`: the table fits a column, in `table`; `text`: the page, in `table*`; empty: the first that it fits."""
    notes: str = NOTES[0]
    """How notes are set below the table: `plain`, or by the package `threeparttable`."""
    plain: bool = False
    """Whether it is the tabular alone."""
    cite: Mapping[str, str] = field(default_factory=dict)
    """Keys of a bibliography by the numbers in brackets of a paper's rows; a number without a key is left out."""

    @classmethod
    def of(
        cls,
        *,
        label: str | None,
        caption: str | None,
        siunitx: bool,
        width: str | None,
        notes: str,
        plain: bool,
        cite: Iterable[str],
    ) -> "LatexStyle":
        """Build the style of these options of `goalgrid table`; UserError: an option is impossible."""
        check_known("width", width or WIDTHS[0], WIDTHS)
        check_known("form of notes", notes, NOTES)
        given = {"--label": label, "--caption": caption, "--width": width, "--notes": notes != NOTES[0]}
        if plain and (others := [name for name, value in given.items() if value]):
            raise UserError(f"--plain gives the tabular alone; leave {', '.join(others)} out.")
        if caption is not None and not caption.strip():
            raise UserError("--caption is empty; leave it out for the title of the table.")
        if label and not re.fullmatch(r"[A-Za-z0-9:._/+-]+", label):
            raise UserError(f"--label {label!r}: \\ref takes letters from a to z, digits and : . _ / + - alone.")
        for word in cite:
            if not re.fullmatch(r"[0-9]+=[A-Za-z0-9:._/+-]+", word):
                example = "give the number in brackets and a key of your bibliography, e.g. --cite 23=scan18"
                raise UserError(f"--cite {word}: {example}.")
        keys = dict(word.split("=") for word in cite)
        return cls(label or "", caption or "", siunitx, width or "", notes, plain, keys)
