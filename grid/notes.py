"""[notes]: the author's notes on a grid, shown at the top of the report. They do not change trial ids."""

from pathlib import Path

from pydantic import Field

from goalgrid.grid.errors import text_of
from goalgrid.grid.settings.base import Settings


class Notes(Settings):
    """[notes] of a grid file; later notes can be added in `notes.md` in the grid's folder."""

    title: str = Field(default="", description="title of the report, instead of the grid's name")
    hypothesis: str = Field(default="", description="hypothesis that the grid tests")
    text: str = Field(default="", description="further text, in Markdown")
    author: str = Field(default="", description="author of the grid")

    def markdown(self, later: str = "") -> str:
        """Return all notes as one Markdown text, followed by `later` (the content of `notes.md`); may be empty."""
        title = f"# {self.title}" * bool(self.title)
        hypothesis = f"Hypothesis: {self.hypothesis}" * bool(self.hypothesis)
        return "".join(
            f"{part.strip()}\n\n" for part in (title, self.author, hypothesis, self.text, later) if part.strip()
        )


def later(path: Path) -> str:
    """Read `notes.md` in the grid's folder; return an empty text if it is missing, raise a UserError if unreadable."""
    return text_of(path, "notes", "Save them as UTF-8.") if path.exists() else ""
