"""Draw the figures of `goalgrid figures`: of a grid from its records, and of one trial from its weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goalgrid.grid.cli_option import option
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.store.home import Home
from goalgrid.inspection.trial_figures import attention_of, retrieved
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION, EXAMPLES = "attention", "examples"


@dataclass(frozen=True)
class FigureRequest:
    """The requested figures, and the options specific to `goalgrid figures`; without kinds, all figures of the grid."""

    kinds: Sequence[str]
    format: str
    only: str = ""
    protocol: str | None = None
    columns: int | None = option(None, "Width in columns of a paper; omits the title.", min=1, max=2)
    points: float = option(8.5, "Font size in points.", "POINTS", min=4, max=20)
    trial: str = option("", "With attention or examples: the trial; an unknown id lists all.", "ID")
    image: str = option("", "With attention: a test image, by file name or id; default: the first.", "NAME")
    caption: str = option("1", "With attention: the image's Nth caption, or any text.", "N|TEXT")
    quantity: list[str] = option(  # noqa: RUF009
        (), "With training or steps: draw this logged value; an unknown name lists all.", "NAME"
    )
    reference: str = option("", "With training: add a paper's published curve, e.g. 2ad-figureA1.", "CURVE")

    def check(self) -> None:
        """Check names and options; raise UserError for unknown names, or options that do not apply to the figures."""
        from goalgrid.results import figures

        known = [*figures.FIGURES, ATTENTION, EXAMPLES]
        check_known("format", self.format, figures.FORMATS)
        for kind in self.kinds:
            check_known("figure", kind, known)
        if (self.trial and not self.of_trial) or (self.image and ATTENTION not in self.kinds):
            example = "goalgrid figures GRID attention --trial ID"
            raise UserError(f"--trial, --image and --caption apply to attention, --trial also to examples: {example}")
        logged = {"training", "steps"} & {*self.kinds}
        if (self.quantity and not logged) or (self.reference and "training" not in self.kinds):
            example = "goalgrid figures GRID training --quantity NAME"
            raise UserError(f"--quantity and --reference apply to training: {example}")

    @property
    def of_trial(self) -> list[str]:
        return [kind for kind in self.kinds if kind in (ATTENTION, EXAMPLES)]


def write(
    request: FigureRequest, grid: str, home: Home, overrides: Sequence[str], folder: Path | None
) -> Iterator[str]:
    """Write the figures to a folder (default: the grid's); yield one line per file, and per figure without data."""
    from goalgrid.reports.tables import some_scores
    from goalgrid.results import figures

    request.check()
    recalled = recall(grid, home, overrides)
    folder = folder or home.grid(recalled.name).figures
    figures.check_folder(folder)
    with figures.drawn_for(figures.Sheet(request.columns, request.points)):
        for name, picture in _of_trial(GridState.of(recalled, home), request) if request.of_trial else ():
            yield f"written: {figures.save(picture, folder, name, request.format)}"
        kinds = [kind for kind in request.kinds if kind not in request.of_trial]
        if request.kinds and not kinds:
            return
        grid_state = GridState.of(recalled, home, request.only)
        scores = some_scores(grid_state, request.protocol, grid, overrides, "figures")
        studies, drawn = figures.Study.read(grid_state.cells, scores, home), set[str]()
        for drawing in figures.draw_all(studies, kinds, request.quantity, request.reference):
            drawn.add(drawing[0])
            yield from (f"written: {path}" for path in figures.write([drawing], folder, [request.format]))
        for kind in kinds or ([] if drawn else figures.FIGURES):
            if kind not in drawn:
                yield f"nothing to draw for {kind}: it needs {figures.FIGURES[kind].needs}"


def _of_trial(grid_state: GridState, request: FigureRequest) -> "Iterator[tuple[str, Figure]]":
    """Yield names and figures of the trial's examples and attention, if requested."""
    if EXAMPLES in request.kinds:
        yield f"{EXAMPLES}-{request.trial}", retrieved(grid_state, request.trial).draw()
    if ATTENTION in request.kinds:
        attended = attention_of(grid_state, request.trial, request.image, request.caption)
        yield f"{ATTENTION}-{attended.name}", attended.draw()
