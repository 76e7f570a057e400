"""Options for tables in LaTeX."""

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
    """Text that replaces the title; the notes are kept."""
    siunitx: bool = False
    """Whether numbers are aligned at the decimal point by the package siunitx."""
    width: str = ""
    """`column`: one column, in `table`; `text`: page width, in `table*`; empty: the narrowest that fits."""
    notes: str = NOTES[0]
    """Format of the notes below the table: `plain`, or the package `threeparttable`."""
    plain: bool = False
    """Whether only the tabular is written."""
    cite: Mapping[str, str] = field(default_factory=dict)
    """Bibliography keys by reference number in a paper's rows; references without a key are omitted."""

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
        """Build the style from options of `goalgrid table`; raise UserError if an option is invalid."""
        check_known("width", width or WIDTHS[0], WIDTHS)
        check_known("form of notes", notes, NOTES)
        given = {"--label": label, "--caption": caption, "--width": width, "--notes": notes != NOTES[0]}
        if plain and (others := [name for name, value in given.items() if value]):
            raise UserError(f"--plain prints only the tabular, so it cannot be combined with {', '.join(others)}.")
        if caption is not None and not caption.strip():
            raise UserError("--caption is empty; omit it to keep the title of the table.")
        if label and not re.fullmatch(r"[A-Za-z0-9:._/+-]+", label):
            raise UserError(f"--label {label!r} is invalid: use only letters a to z, digits and : . _ / + -.")
        for word in cite:
            if not re.fullmatch(r"[0-9]+=[A-Za-z0-9:._/+-]+", word):
                example = "give the number in brackets and a key of your bibliography, e.g. --cite 23=scan18"
                raise UserError(f"--cite {word}: {example}.")
        keys = dict(word.split("=") for word in cite)
        return cls(label or "", caption or "", siunitx, width or "", notes, plain, keys)
