"""How figures look: nothing stands outside the picture."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from goalgrid.grid.errors import UserError
from goalgrid.results import figures
from goalgrid.results.figures import Sheet, Study, drawn_for, style
from goalgrid.results.figures.style import COLUMNS, WIDTH, legend_below
from tests.tex import lacking


def drawn(study: Study) -> Figure:
    ((_, _, figure),) = figures.draw_all([study], ["matrix"])
    return figure


@pytest.mark.parametrize("columns", [1, 2])
def test_a_figure_is_as_wide_as_its_columns_in_the_papers_font_size(study: Study, columns: int) -> None:
    with drawn_for(Sheet(columns, points=7)):
        figure = drawn(study)
        figures.encoded(figure, "svg")
    assert figure.get_figwidth() == COLUMNS[columns]
    axes = [part for part in figure.axes if part.get_title()]
    assert len({part.get_subplotspec().colspan.start for part in axes}) == columns  # type: ignore[union-attr]
    values = [text.get_fontsize() for text in figure.findobj(Text) if "±" in text.get_text()]  # type: ignore[attr-defined]
    assert set(values) == {7}
    assert not figure.get_suptitle(), "the paper's caption says it"
    assert drawn(study).get_figwidth() == WIDTH


def test_pgf_is_tex_or_names_the_program_that_it_lacks(study: Study, tmp_path: Path) -> None:
    figure = drawn(study)
    if lacks := lacking("amsmath,underscore,pgf"):
        named = "not found" if "without" in lacks else "pdflatex"
        with pytest.raises(
            UserError, match=f"--format pgf cannot contain photographs, and needs pdflatex .*: .*{named}"
        ):
            figures.save(figure, tmp_path, "matrix", "pgf")
    else:
        assert "\\begin{pgfpicture}" in figures.save(figure, tmp_path, "matrix", "pgf").read_text()


def test_pgf_names_the_package_that_pdflatex_lacks_in_one_line(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := lacking("amsmath"):
        pytest.skip(why)
    monkeypatch.setitem(style._RC, "pgf.preamble", r"\usepackage{no-such-package}")
    with pytest.raises(UserError, match=r"LaTeX Error: File `[\w-]+\.sty' not found\.$") as told:
        figures.save(drawn(study), tmp_path, "matrix", "pgf")
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("swept", ["", ", objective.tau = 10, train.lr = 0.0032", ", objective.tau = 10" * 8])
def test_title_note_and_axes_stand_apart(study: Study, swept: str) -> None:
    part = replace(study.part, title=study.title + swept)
    ((_, _, figure),) = figures.draw_all([replace(study, part=part)], ["geometry"])
    figure.draw_without_rendering()
    title, note = figure.texts
    title.set_text(title.get_text().rstrip())  # without the line that it keeps free for the note
    above, beside = title.get_window_extent(), note.get_window_extent()
    assert not above.overlaps(beside)
    assert 0 <= above.x0 < above.x1 <= figure.bbox.width
    assert all(axes.get_tightbbox().y1 <= min(above.y0, beside.y0) for axes in figure.axes)


def test_a_long_name_leaves_the_figure_its_room(study: Study) -> None:
    named = {"con_con": "con_con", "a_very_" + "long_" * 10 + "name": "sig-ms_cir"}
    cells = {name: study.part.cells[cell] for name, cell in named.items()}
    part = replace(study.part, cells=cells, places={name: (name,) for name in cells})
    ((_, _, figure),) = figures.draw_all([replace(study, part=part)], ["effects"])
    figure.draw_without_rendering()
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == ["con_con", "a_very_lon…_long_name"]
    assert all(axes.get_window_extent().height > 0.25 * figure.bbox.height for axes in figure.axes)


def test_a_legend_has_as_many_columns_as_the_figure_has_room_for() -> None:
    for label, columns in (("con_con", 3), ("frozen-bow lin-ms_nca, 0.172 M weights", 2), ("long " * 30, 1)):
        figure = Figure(figsize=(WIDTH, 3), layout="constrained")
        lines = [line for n in range(15) for line in figure.subplots().plot([n])]
        legend_below(figure, lines, [label] * 15, most=3)
        (legend,) = figure.legends
        assert legend._ncols == columns  # type: ignore[attr-defined]
        assert legend.get_window_extent().width <= figure.bbox.width


def test_a_name_that_is_wider_than_one_column_of_a_paper_is_shortened_in_its_legend() -> None:
    for name in ("a_very_" + "long_" * 10 + "name!", "W" * 62):
        with drawn_for(Sheet(1)):
            figure = Figure(figsize=(COLUMNS[1], 3), layout="constrained")
            legend_below(figure, [*figure.subplots().plot([1]), Line2D([], [])], [name, "con_con"], most=3)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        long, short = (text.get_text() for text in legend.get_texts())
        assert (long[:6], "…" in long, long[-4:], short) == (name[:6], True, name[-4:], "con_con")


def test_effects_of_one_seed_have_no_interval_and_say_so(study: Study) -> None:
    seed = next(iter(study.part.cells.values())).trials[0].seed
    few = {
        name: replace(cell, trials=tuple(t for t in cell.trials if t.seed == seed))
        for name, cell in study.part.cells.items()
    }
    for cells, note in ((study.part.cells, "95 % t interval"), (few, "one seed, so no interval")):
        ((_, _, figure),) = figures.draw_all([replace(study, part=replace(study.part, cells=cells))], ["effects"])
        assert note in figure.texts[0].get_text() + figure.texts[-1].get_text()


def test_a_long_legend_in_one_column_of_a_paper_leaves_the_axes_their_height() -> None:
    heights = []
    for count in (2, 18):
        with drawn_for(Sheet(1)):
            figure = Figure(figsize=(COLUMNS[1], 3), layout="constrained")
            lines = figure.subplots().plot([range(count)])
            legend_below(figure, lines, [f"sig-ms_cir, lr = {n}" for n in range(count)], most=3)
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
    assert heights[0] == pytest.approx(heights[1], rel=0.1)
