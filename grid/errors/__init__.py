"""What a user can cause: one message without a traceback, with the wrong thing, the right ones and the next step."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

LISTED = 500
"""Characters of known names that a message spells out; of a longer list, the nearest names."""


class UserError(Exception):
    """A mistake that a user can correct. The command line prints its message alone and exits with 2."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone."""
        return [f"goalgrid.UserError: {self}"]


def unknown(what: str, name: object, known: Collection[str], *, where: str = "", hint: str = "") -> str:
    """Say that `name` is no known `what`, with the nearest name, the known ones and the next step.

    >>> print(unknown("pair weight", "sigg", ["con", "lin", "sig"], where="in objectives[2]"))
    unknown pair weight 'sigg' in objectives[2]. Did you mean 'sig'? Known: con, lin, sig.
    """
    nearest = get_close_matches(str(name), list(known), n=1)
    listed, more = list(known), ""
    if len(", ".join(known)) > LISTED:
        listed = get_close_matches(str(name), list(known), n=8, cutoff=0.0)
        more = f" and {len(known) - len(listed)} more"
    parts = [
        f"unknown {what} {name!r}{' ' + where if where else ''}.",
        f"Did you mean {nearest[0]!r}?" if nearest else "",
        f"Known: {', '.join(listed)}{more}.",
        hint,
    ]
    return " ".join(part for part in parts if part)


def several(heading: str, problems: Iterable[str]) -> UserError:
    """One error that reports all problems of a file at once."""
    lines = list(problems)
    if len(lines) == 1:
        return UserError(f"{heading}: {lines[0]}")
    return UserError(f"{heading}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines))
