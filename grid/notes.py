"""What a grid is for, in its author's words. The report begins with it; it changes no trials."""

from pathlib import Path

from pydantic import Field

from goalgrid.grid.errors import text_of
from goalgrid.grid.settings.base import Settings


class Notes(Settings):
    """[notes]: of a grid file; the file `notes.md` in the grid's folder adds to them later."""

    title: str = Field(default="", description="title of the report, instead of the grid's name")
    hypothesis: str = Field(default="", description="hypothesis that the grid tests")
    text: str = Field(default="", description="further text, in Markdown")
    author: str = Field(default="", description="author of the grid")

    def markdown(self, later: str = "") -> str:
        """Return all notes as one Markdown text, with those that `notes.md` adds `later`; empty without notes."""
        title = f"# {self.title}" * bool(self.title)
        hypothesis = f"Hypothesis: {self.hypothesis}" * bool(self.hypothesis)
        return "".join(
            f"{part.strip()}\n\n" for part in (title, self.author, hypothesis, self.text, later) if part.strip()
        )


def later(path: Path) -> str:
    """Read `notes.md` in the grid's folder; empty without that file. UserError: it cannot be read."""
    return text_of(path, "notes", "Save them as UTF-8.") if path.exists() else ""
