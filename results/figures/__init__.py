"""Figures of a grid, registered in each file's `FIGURE_KINDS`; and of a single trial: attention, retrieval examples.

Only this folder and `objectives/diagrams.py` import Matplotlib.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from goalgrid.grid.catalog import members
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.store.output_files import write_output
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import FORMATS, Sheet, check_folder, drawing, drawn_for, encoded
from goalgrid.results.reference import curves

__all__ = ["FIGURES", "FORMATS", "Sheet", "Study", "check_folder", "draw_all", "drawn_for", "encoded", "save", "write"]

FIGURES: dict[str, FigureKind] = dict(
    sorted(
        (named for kinds in members(__name__, "FIGURE_KINDS", dict).values() for named in kinds.items()),
        key=lambda named: named[1].place,
    )
)
"""Kinds of figures by name, in the order of the report."""


def draw_all(
    studies: Sequence[Study], kinds: Sequence[str] = (), quantities: Sequence[str] = (), reference: str = ""
) -> Iterator[tuple[str, Study, Figure]]:
    """Draw figures of these kinds (default: all) for every block that has the data they need.

    Args:
        quantities: logged values that `training` and `steps` draw; if empty, their defaults.
        reference: name of a paper's curve that `training` also shows.

    Raises:
        UserError: a quantity is unknown, or no figure can show the reference.
    """
    logged = sorted({name for study in studies for history in study.histories.values() for name in history})
    for name in quantities:
        check_known("quantity", name, logged, where="in the histories of the finished trials")
    curve = curves.printed_curve(reference) if reference else None
    if curve and studies and not any(curve.of(study.part.cells) for study in studies):
        known = f"{' and '.join(curve.lines)} on {curve.dataset}"
        raise UserError(
            f"--reference {reference} only has curves of {known}: add one of these to the grid, or omit --reference."
        )
    if curve and quantities and curve.quantity not in quantities:
        raise UserError(f"--reference {reference} is a curve of {curve.quantity}: add --quantity {curve.quantity}.")
    options: dict[str, dict[str, Any]] = {
        "training": {"quantities": quantities, "reference": curve}, "steps": {"quantities": quantities}
    }  # fmt: skip
    for kind in kinds or FIGURES:
        gather = FIGURES[kind].gather
        for study in gather(studies) if gather and studies else studies:
            with drawing():
                figure = FIGURES[kind].draw(study, **options.get(kind, {}))
            if figure is not None:
                yield kind, study, figure


def write(drawings: Iterable[tuple[str, Study, Figure]], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the figures from `draw_all` to files such as `matrix-cnn-bow-on-shapes.pdf`; return the paths."""
    named = ((f"{kind}-{study.title}", figure) for kind, study, figure in drawings)
    return [save(figure, folder, name, ending) for name, figure in named for ending in formats]


def save(figure: Figure, folder: Path, name: str, ending: str) -> Path:
    """Write a figure to `NAME.png` and return the path; characters with a meaning in a shell become `-`."""
    path = folder / f"{re.sub(r'[^A-Za-z0-9._]+', '-', name)}.{ending}"
    write_output(path, encoded(figure, ending))
    return path
