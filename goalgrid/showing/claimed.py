"""`goalgrid claims`: the papers' sentences, held against their printed tables and against a grid's trials."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.store.home import Home
from goalgrid.reading.named_grids import recall, start
from goalgrid.results.reference.reading import PAPERS
from goalgrid.showing.tables import cells_and_scores
from goalgrid.terminal.options import all_known

if TYPE_CHECKING:
    from goalgrid.results.analysis.claims import JudgedClaim


def sources(
    paper: str | None, grid: str | None, home: Home, overrides: Sequence[str] = ()
) -> "list[tuple[str, list[JudgedClaim]]]":
    """Which claims hold in the papers' own tables, and which hold in the finished trials of a grid.

    Args:
        paper: a name in `PAPERS`; a grid, if `grid` is None and no paper has this name; None: all papers.

    Raises:
        UserError: no such paper or grid, or records cannot be read.
        NothingDone: no trial of the grid is done.
    """
    from goalgrid.results.analysis.claims import judged_by_print, judged_by_trials

    if grid is None and paper is not None and paper not in PAPERS:
        given, paper, grid = paper, None, paper
        names = {*PAPERS, *catalog.names("presets"), *(folder.path.name for folder in home.grids())}
        if given.split("@")[0] not in names and not given.endswith(".toml"):
            hint = f"Papers: {', '.join(PAPERS)}. Or give the path of a grid file, ending in .toml."
            raise UserError(unknown("paper or grid", given, sorted(names), hint=hint))
    all_known(*([("paper", paper, PAPERS)] if paper else []))
    papers = [paper] if paper else list(PAPERS)
    judged = [("printed", judged_by_print(papers))]
    if grid is not None:
        recalled = recall(grid, home, overrides)
        cells, scores = cells_and_scores(recalled, home, anew=start(grid, home, overrides))
        judged.append((recalled.name, judged_by_trials(papers, cells, scores)))
    return judged


PAGE = """# The papers' claims

After reading this page you know which sentences of the four papers are supported by the papers' own tables. The
program wrote this page: `goalgrid claims --format markdown`. `goalgrid claims goal demo` also tests the claims of a
paper on the trials of a grid; `--comparisons` shows each comparison. What trials here say: [papers.md](papers.md).
"""
