"""The figure of a search."""

from dataclasses import replace
from pathlib import Path

from goalgrid.grid.chosen import Chosen, Tried
from goalgrid.results.figures import FIGURES, Study, draw_all, write


def test_every_point_of_a_search_is_drawn_and_the_chosen_one_has_a_ring(study: Study, tmp_path: Path) -> None:
    points = [(1e-4, True, 40.0), (1e-2, False, 50.0), (1e-3, True, 45.0)]
    tried = tuple(Tried(str(lr), (("train.lr", lr), ("a.flag", flag)), value) for lr, flag, value in points)
    other = tuple(replace(one, point=one.point[:1]) for one in tried)
    names = list(study.part.cells)
    choices = dict(zip(names, (Chosen("val_rsum", 3, 3, tried), Chosen("val_rsum", 3, 3, other)), strict=False))
    cells = {
        name: replace(cell, choices=(choices[name],) if name in choices else ())
        for name, cell in study.part.cells.items()
    }
    assert FIGURES["search"].draw(study) is None
    chosen = replace(study, part=replace(study.part, cells=cells))
    drawn = FIGURES["search"].draw(chosen)
    assert drawn
    _, every, ring = drawn.axes[0].lines
    assert list(every.get_xdata()) == [1e-4, 1e-2, 1e-3]
    assert list(every.get_ydata()) == [40.0, 50.0, 45.0]
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([1e-2], [50.0])
    assert drawn.axes[0].get_xscale() == "log"
    assert drawn.axes[1].get_xscale() == "linear"
    if len(names) > 1:
        assert [text.get_text() for text in drawn.axes[3].texts] == ["not read"]
    (path,) = write(draw_all([chosen], ["search"]), tmp_path, ["png"])
    assert path.exists()
