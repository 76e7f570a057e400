"""Figures of a grid, a file a kind; the folder is the list. Only this folder draws, so only it imports Matplotlib."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from grid.errors import UserError, unknown
from grid.listed import members
from grid.store.files import written_aside
from results.figures import steps, training
from results.figures.of_trial import AttentionMap, RetrievalExamples
from results.figures.study import FigureKind, Study
from results.figures.style import FORMATS, drawing, encoded
from results.reference import curves

__all__ = ["FIGURES", "FORMATS", "Study", "drawn", "encoded", "write", "write_attention", "write_examples"]

FIGURES = dict(sorted(members(__name__, "FIGURE_KIND", FigureKind).items(), key=lambda item: item[1].place))
"""Kinds of figures by name, in the order of a report."""


def drawn(
    studies: Sequence[Study], kinds: Sequence[str] = (), quantities: Sequence[str] = (), reference: str = ""
) -> Iterator[tuple[str, Study, Figure]]:
    """Draw these kinds, or all kinds, of every block that has something to draw.

    Args:
        quantities: logged values that `training` and `steps` draw; none: their own choice.
        reference: the paper's curve that `training` shows too.

    Raises:
        UserError: no trial logged a quantity, or no paper printed such a curve.
    """
    logged = sorted({name for study in studies for history in study.histories.values() for name in history})
    if wrong := [name for name in quantities if name not in logged]:
        raise UserError(unknown("quantity", wrong[0], logged, where="in the histories of the finished trials"))
    if reference and reference not in curves.names():
        raise UserError(unknown("reference curve", reference, curves.names()))
    curve = curves.printed_curve(reference) if reference else None
    chosen: dict[str, Callable[[Study], Figure | None]] = {
        "training": partial(training.draw, quantities=quantities, reference=curve),
        "steps": partial(steps.draw, quantities=quantities),
    }
    for kind in kinds or FIGURES:
        for study in FIGURES[kind].gather(studies) if studies else ():
            with drawing():
                figure = chosen.get(kind, FIGURES[kind].draw)(study)
            if figure is not None:
                yield kind, study, figure


def write(
    studies: Sequence[Study],
    folder: Path,
    *,
    kinds: Sequence[str] = (),
    formats: Sequence[str],
    quantities: Sequence[str] = (),
    reference: str = "",
) -> list[Path]:
    """Draw into files, `matrix-cnn-bow-on-shapes.pdf`, as `drawn` does; the paths written.

    Raises:
        UserError: as `drawn`, or the disk is full or read-only.
    """
    return [
        _write(figure, folder, f"{kind}-{study.title}", ending)
        for kind, study, figure in drawn(studies, kinds, quantities, reference)
        for ending in formats
    ]


def write_attention(own: AttentionMap, folder: Path, ending: str) -> Path:
    """Draw into a file, `attention-TRIAL-IMAGE-CAPTION.png`, the caption cut to its first letters; returns its path.

    Raises:
        UserError: the disk is full or read-only.
    """
    return _write(own.draw(), folder, f"attention-{own.trial}-{Path(own.image).stem}-{own.caption[:40]}", ending)


def write_examples(own: RetrievalExamples, folder: Path, ending: str) -> Path:
    """Draw into a file, `examples-TRIAL.png`; returns its path.

    Raises:
        UserError: the disk is full or read-only.
    """
    return _write(own.draw(), folder, f"examples-{own.trial}", ending)


def _write(figure: Figure, folder: Path, name: str, ending: str) -> Path:
    path = folder / f"{re.sub(r'[^A-Za-z0-9._]+', '-', name)}.{ending}"
    with written_aside(path) as aside:
        aside.write_bytes(encoded(figure, ending))
    return path
