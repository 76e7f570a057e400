"""What `effects` and the report say: columns and sentences that the seeds at hand allow."""

import pytest

from goalgrid.results.analysis.block_analysis import Analysis, BaselineDifference
from goalgrid.results.analysis.documents import NONE, Sheet
from goalgrid.results.analysis.effects_text import document
from goalgrid.results.statistics.significance import Interval, smallest_p

CELLS = ("con_con", "con_nca", "con_cir", "sig_con")


def analysis(seeds: int) -> Analysis:
    """Three cells better than the baseline in every seed, so that no flip of signs is as far from 0."""
    least = smallest_p(seeds)
    differences = tuple(
        BaselineDifference(name, 2.0, 0.5, Interval(1.0, 3.0), 0.01, least, 0.03, min(1.0, 3 * least), 9)
        for name in CELLS[1:]
    )
    return Analysis(
        "fc-bow on shapes", "i2t_r1", "shapes-500", CELLS, tuple(range(seeds)), (40.0, 42.0, 42.0, 42.0),
        anova=None, best="con_nca", like_best=(), baseline="con_con", differences=differences, queries=None, notes=(),
    )  # fmt: skip


def sheet(found: Analysis) -> Sheet:
    return next(part for part in document([found], []).sections[0].parts if isinstance(part, Sheet))


@pytest.mark.parametrize(
    ("seeds", "flips"), [(3, ()), (5, ()), (6, ("p (flips)",)), (7, ("p (flips)", "Holm")), (9, ("p (flips)", "Holm"))]
)
def test_the_sign_flip_test_is_shown_where_it_can_reach_5_percent(seeds: int, flips: tuple[str, ...]) -> None:
    found = sheet(analysis(seeds))
    assert found.head == ("cell", "mean", "difference", "95 % interval", "p (t)", "Holm", *flips, "seeds for 0.5")
    assert {len(row) for row in found.rows} == {len(found.head)}
    assert found.rows[0][-1] == "9"


def test_columns_without_a_number_are_not_shown() -> None:
    found = Sheet.telling("", ("cell", "p", "mean", "difference"), (("a", NONE, "1.0", ""), ("", NONE, "2.0", "+1.0")))
    assert found == Sheet("", ("cell", "mean", "difference"), (("a", "1.0", ""), ("", "2.0", "+1.0")))
