"""What `effects` and the report say: columns and sentences that the seeds at hand allow."""

import pytest

from goalgrid.results.analysis.block_analysis import Analysis, BaselineDifference
from goalgrid.results.analysis.documents import NONE, Sheet
from goalgrid.results.analysis.effects_text import document
from goalgrid.results.statistics.significance import Interval

CELLS = ("con_con", "con_nca", "con_cir", "sig_con")


def analysis(*, paired: bool) -> Analysis:
    differences = tuple(BaselineDifference(name, 2.0, 0.5, Interval(1.0, 3.0), 0.01, 0.03, 9) for name in CELLS[1:])
    return Analysis(
        "fc-bow on shapes", "i2t_r1", "shapes-500", CELLS, (0, 1, 2), (40.0, 42.0, 42.0, 42.0), anova=None,
        best="con_nca", like_best=(), baseline="con_con", differences=differences, queries=None, notes=(),
        paired=paired,
    )  # fmt: skip


@pytest.mark.parametrize(("paired", "last"), [(True, ("seeds for 0.5",)), (False, ())])
def test_only_what_pairs_by_seed_says_how_many_seeds_are_needed(paired: bool, last: tuple[str, ...]) -> None:
    found = document([analysis(paired=paired)], []).sections[0].parts[-1]
    assert isinstance(found, Sheet)
    assert found.head == ("cell", "mean", "difference", "95 % interval", "p (t)", "Holm", *last)
    assert found.rows[0][-1] == ("9" if paired else "0.030")
    assert (", seed by seed" in found.title) == paired


def test_columns_without_a_number_are_not_shown() -> None:
    found = Sheet.telling("", ("cell", "p", "mean", "difference"), (("a", NONE, "1.0", ""), ("", NONE, "2.0", "+1.0")))
    assert found == Sheet("", ("cell", "mean", "difference"), (("a", "1.0", ""), ("", "2.0", "+1.0")))
