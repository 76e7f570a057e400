"""`goalgrid effects TABLE --reference`: a paper's table, analysed from its printed means and deviations."""

import json
from pathlib import Path

import pytest
from scipy import stats

from ...conftest import Goalgrid


def test_a_printed_table_is_analysed_by_block(goalgrid: Goalgrid, tmp_path: Path) -> None:
    shown = goalgrid("effects", "goal-table3-coco", "--reference", "--direction", "i2t", runs=tmp_path).stdout
    assert shown.count("15 cells x 3 seeds") == 2
    assert "residual, the spread of runs within cells" in shown
    words = ("effects", "goal-table3-coco", "--reference", "--direction", "i2t", "--json")
    first, tuned = json.loads(goalgrid(*words, runs=tmp_path).stdout)
    assert (first["best"], tuned["title"]) == ("sig-ms_con", "VSE++ (ResNet152, fine-tuned) on coco")
    found = next(each for each in first["differences"] if each["name"] == "sig-ms_con")
    assert found["mean"] == pytest.approx(35.6 - 33.9)
    assert found["p_t"] == pytest.approx(stats.ttest_ind_from_stats(35.6, 0.1, 3, 33.9, 0.9, 3, equal_var=False).pvalue)
    squares = sum(0.01 * s * s for s in (9, 4, 6, 2, 2, 3, 1, 4, 4, 5, 5, 4, 1, 4, 4)) * 2  # (n - 1) s^2 of each cell
    total = sum(effect["squares"] for effect in first["anova"]["effects"]) + squares
    assert first["anova"]["error"] == pytest.approx(squares / total)


def test_a_table_without_deviations_or_of_a_wrong_name_says_so(goalgrid: Goalgrid, tmp_path: Path) -> None:
    assert "prints no standard deviations" in goalgrid("effects", "selhn-table1", "--reference", runs=tmp_path).stderr
    wrong = goalgrid("effects", "goal-tabel3-coco", "--reference", runs=tmp_path)
    assert (wrong.returncode, "Did you mean 'goal-table3-coco'?" in wrong.stderr) == (2, True)
