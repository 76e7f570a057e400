"""What a grid is for, in its author's words. It stands at the top of the report and decides nothing."""

from pydantic import Field

from goalgrid.grid.settings.base import Settings


class Notes(Settings):
    """[notes]: of a grid file; the file `notes.md` in the grid's folder adds to them later."""

    title: str = Field(default="", description="of the report, instead of the grid's name")
    hypothesis: str = Field(default="", description="what the grid is to show or refute")
    text: str = Field(default="", description="more, in Markdown")
    author: str = Field(default="", description="who asks")
