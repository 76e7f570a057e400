"""The papers' claims: each holds on values that bear it out, and fails on values that contradict it."""

import itertools
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.analysis.claims import (
    ABSENT,
    FAILS,
    HOLDS,
    UNTOLD,
    ClaimSource,
    Entry,
    JudgedClaim,
    document,
    judge,
    judged,
    line,
    measured,
    printed,
)
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference.claims import Claim, claims
from goalgrid.results.reference.reading import PAPERS
from goalgrid.results.statistics.significance import Sample, holm, kendall, kendall_p
from tests.cases import every

from ...conftest import Goalgrid

CLAIMS = {f"{paper} {claim.name}": claim for paper in PAPERS for claim in claims(paper).claims}
RNG = np.random.default_rng(5)


def replace_(claim: Claim, **fields: object) -> Claim:
    return claim.model_copy(update=fields)


@pytest.fixture(scope="module")
def by_print() -> list[JudgedClaim]:
    return judged(PAPERS)


def borne_out(claim: Claim) -> list[Entry]:
    """The printed cells with values of three runs that the claim is right about."""
    found = printed(claim)
    order = {name: 50.0 + place for place, name in enumerate(dict.fromkeys(entry.objective for entry in found))}

    def value(entry: Entry) -> float:
        if claim.kind == "same order":
            return order[entry.objective]
        better = any(fnmatchcase(entry.name, pattern) for pattern in claim.better)
        return 60.0 * claim.times + claim.lead(entry.metric) + 20.0 if better else 60.0

    return [replace(entry, sample=Sample(value(entry), 0.1, 3)) for entry in found]


@every("name", [name for name, claim in CLAIMS.items() if claim.tables and claim.kind != "alike"])
def test_a_claim_holds_where_it_is_right_and_fails_on_a_counter_example(name: str) -> None:
    claim, entries = CLAIMS[name], borne_out(CLAIMS[name])
    assert judge("", claim, entries).verdict == judge("", claim, entries).in_means == HOLDS
    first = entries[0]
    block = (first.recipe, first.block, first.metric)
    wrong = [
        replace(entry, sample=replace(entry.sample, mean=120 - entry.sample.mean))
        if claim.kind == "better" or (entry.recipe, entry.block, entry.metric) == block
        else entry
        for entry in entries
    ]
    assert judge("", claim, wrong).verdict == judge("", claim, wrong).in_means == FAILS
    if claim.kind == "better" and claim.quantifier == "every":
        compared = judge("", claim, entries).comparisons[0].better
        better = next(entry for entry in entries if entry.name == compared)
        one = [replace(entry, sample=Sample(40, 0.1, 3)) if entry is better else entry for entry in entries]
        assert judge("", claim, one).verdict == judge("", claim, one).in_means == FAILS
    if claim.kind == "better":
        unclear = [replace(entry, sample=replace(entry.sample, std=200.0)) for entry in entries]
    else:  # an order that has nothing in common with the others
        turned = {50.0 + place: 50.0 + 7 * place % 15 for place in range(15)}
        unclear = [
            replace(entry, sample=replace(entry.sample, mean=turned[entry.sample.mean]))
            if (entry.recipe, entry.block, entry.metric) == block
            else entry
            for entry in entries
        ]
    assert judge("", claim, unclear).verdict == UNTOLD
    assert judge("", claim, []).verdict == ABSENT


def cells(objective: str, means: dict[str, float], std: float = 0.1) -> list[Entry]:
    return [Entry("r", f"{objective}@{key}", "b", "rsum", Sample(mean, std, 3)) for key, mean in means.items()]


def test_a_lead_by_so_much_is_a_lead_by_more_than_the_printed_digits_hide() -> None:
    claim = replace_(CLAIMS["unified gain on CE"], better=["*:a@*"], than=["*:b@*"])
    for gain, verdict in ((17.5, HOLDS), (17.0, FAILS), (17.16, UNTOLD)):
        judged = judge("", claim, [*cells("a", {"": 60 + gain}, 0.01), *cells("b", {"": 60.0}, 0.01)])
        assert (judged.verdict, judged.comparisons[0].difference) == (verdict, pytest.approx(gain))


def test_cells_are_alike_where_the_difference_is_surely_within_the_bound() -> None:
    claim = CLAIMS["selhn insensitive to epsilon, within 5 points of RSUM"]
    claim = replace_(claim, better=["*:selhn@*"], than=["*:selhn@*"])
    for other, std, verdict in ((62.0, 0.1, HOLDS), (67.0, 0.1, FAILS), (62.0, 20.0, UNTOLD), (64.9, 0.5, UNTOLD)):
        judged = judge("", claim, cells("selhn", {"0.1": 60.0, "0.01": other}, std))
        assert (judged.verdict, len(judged.comparisons)) == (verdict, 1)


def test_the_two_one_sided_tests_are_scipys() -> None:
    one, other = RNG.normal(60, 1, 6), RNG.normal(60.5, 2, 5)
    entries = [
        Entry(f"r{name}", name, "b", "rsum", Sample.of(values.tolist()), tuple(range(len(values))))
        for name, values in (("a", one), ("b", other))
    ]
    claim = Claim(
        name="", sentence="", where="", kind="alike", by=3.0, better=["*:a"], than=["*:b"], same=(), tables=()
    )
    low = stats.ttest_ind(one + 3, other, equal_var=False, alternative="greater").pvalue
    high = stats.ttest_ind(one - 3, other, equal_var=False, alternative="less").pvalue
    assert judge("", claim, entries).comparisons[0].p == pytest.approx(max(low, high))


def test_cells_of_a_sweep_are_compared_across_its_values(tmp_path: Path) -> None:
    grid = load("selhn-figure6", ["datasets=shapes", "recipes=fc-bow", "seeds=[0]", "set={}"])
    swept = expand(grid)
    ids = [trial.id for cell in swept for trial in cell.trials]
    rows = {
        name: {"protocol": swept[0].trials[0].shared.dataset.protocol, "test_rsum": float(place), "other_metrics": None}
        for place, name in enumerate(ids)
    }
    entries = measured(CLAIMS["selhn better than epsilon = 0"], swept, Scores(rows))
    assert {entry.objective for entry in entries} == {
        f"{cell.objective}@{epsilon}" for cell in swept for epsilon in [dict(cell.swept)["objective.epsilon"]]
    }
    assert len({entry.block for entry in entries}) == 1


def test_the_sum_of_recalls_stands_for_an_rsum_that_is_not_printed(by_print: list[JudgedClaim]) -> None:
    gains = {each.claim.name: each.comparisons for each in by_print if each.claim.name in ("gain on MMT", "gain on CE")}
    assert {name: round(found[0].difference, 1) for name, found in gains.items()} == {
        "gain on MMT": 15.7,
        "gain on CE": 17.2,
    }


def test_printed_means_are_compared_by_welchs_test_and_holm(by_print: list[JudgedClaim]) -> None:
    found = next(each for each in by_print if each.claim.name == "pair weights")
    own = [each for each in found.comparisons if (each.better, each.metric) == ("vsepp-r152:sig-ms_con", "i2t_r1")]
    expected = stats.ttest_ind_from_stats(35.6, 0.1, 3, 33.9, 0.9, 3, equal_var=False).pvalue
    assert [each.p for each in own] == pytest.approx([expected])
    assert own[0].than == "vsepp-r152:con_con"
    ordered = sorted(found.comparisons, key=lambda each: each.p)
    largest = 0.0
    for place, each in enumerate(ordered):
        largest = max(largest, min(1.0, each.p * (len(ordered) - place)))
        assert each.holm == pytest.approx(largest)


def test_trials_of_one_recipe_are_compared_by_seed_and_others_are_not() -> None:
    one, other = RNG.normal(60, 3, 4), RNG.normal(50, 3, 5)
    entries = [
        Entry("vse-fc", "selhn", "b", "rsum", Sample.of(one.tolist()), (0, 1, 2, 3)),
        Entry("vse-fc", "triplet", "b", "rsum", Sample.of(other.tolist()), (4, 3, 2, 1, 0)),
        Entry("vse-fc", "con_con", "b", "rsum", Sample.of(one.tolist()), (0, 1, 2, 3)),
        Entry("vse-mlp", "con_con", "b", "rsum", Sample.of(other.tolist()), (0, 1, 2, 3, 4)),
    ]
    (paired,) = judge("", CLAIMS["selhn SelHN on VSE"], entries).comparisons
    assert paired.p == pytest.approx(stats.ttest_rel(one, other[:0:-1]).pvalue)
    (unpaired,) = judge("", CLAIMS["selhn more layers"], entries).comparisons
    assert unpaired.p == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_tau_and_its_p_are_scipys(cells: int, seed: int) -> None:
    x, y = np.random.default_rng(seed).permuted(np.tile(np.arange(cells), (2, 1)), axis=1)
    exact = stats.kendalltau(x, y, method="exact")
    assert (kendall(x, y), kendall_p(x, y)) == pytest.approx((exact.statistic, exact.pvalue))


def test_a_tie_counts_for_neither_order() -> None:
    x, y = RNG.integers(0, 3, 6), RNG.integers(0, 3, 6)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
    orders = [kendall(np.arange(6), order) for order in itertools.permutations(range(6))]
    excess = sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in itertools.combinations(range(6), 2)) / 15
    assert kendall_p(x, y) == pytest.approx(np.mean(np.abs(orders) >= abs(excess) - 1e-9))
    assert np.isnan([kendall([1, 1], [1, 2]), kendall_p([1, 1], [1, 2])]).all()


def test_orders_are_compared_by_means_and_tested_together() -> None:
    claim = CLAIMS["goal same pattern on every backbone"]
    means = {"a": [1, 2, 3, 4, 5, 6, 7], "b": [2, 1, 3, 4, 5, 7, 6], "c": [7, 1, 6, 2, 5, 3, 4]}
    entries = [
        Entry(recipe, f"cell {place}", "block", "i2t_r1", Sample.of([mean - 10.0, mean + 10.0]), (0, 1))
        for recipe, row in means.items()
        for place, mean in enumerate(row)
    ]
    found = judge("", claim, entries)
    expected = [stats.kendalltau(means[one], means[other]) for one, other in (("a", "b"), ("a", "c"), ("b", "c"))]
    assert [each.tau for each in found.agreements] == pytest.approx([each.statistic for each in expected])
    assert [each.p for each in found.agreements] == pytest.approx([each.pvalue for each in expected])
    assert [each.holm for each in found.agreements] == pytest.approx(holm([each.pvalue for each in expected]))
    assert found.verdicts == [HOLDS, UNTOLD, UNTOLD]
    (said,) = document([ClaimSource("mine", [found])], comparisons=True).sections[0].parts[1:2]
    assert "1 of 3 pairs of blocks significant, none reversed; lowest tau" in said
    swept = [replace(entry, recipe="a", block=f"tau={entry.recipe}") for entry in entries]
    assert judge("", claim, swept).verdict == ABSENT, "one backbone"


def test_a_pair_that_reads_no_swept_setting_is_one_comparison() -> None:
    cells = expand(
        load("flickr8k", ['objectives=["unified", "triplet-hn", "sig_nca"]', "sweep.objective.tau=[1, 2, 4]"])
    )
    rows = {
        trial.id: {"protocol": "flickr8k-1k", "test_rsum": 100 + place + trial.seed}
        for place, cell in enumerate(cells)
        for trial in cell.trials
    }
    claim = CLAIMS["unified against Triplet-HN"]
    assert len(judge("", claim, measured(claim, cells, Scores(rows))).comparisons) == 1


def test_what_rounding_leaves_of_equal_means_is_on_no_side() -> None:
    claim = replace_(CLAIMS["goal best combination"], better=("*:a",), than=("*:b",))
    a, b = (Entry("r", name, "", "i2t_r1", Sample.of(x), (0, 1)) for name, x in (("a", [0.1, 0.2]), ("b", [0.3, 0.0])))
    assert sum(x - y for x, y in zip(a.sample.values, b.sample.values, strict=True)) != 0
    (test,) = judge("", claim, [a, b]).comparisons
    assert test.lead == 0


def test_every_claim_on_printed_cells_is_judged(by_print: list[JudgedClaim]) -> None:
    assert all(each.comparisons or each.agreements or not each.claim.tables for each in by_print)


def test_ones_own_trials_stand_beside_the_printed_numbers(goalgrid: Goalgrid, trained: Home, tmp_path: Path) -> None:
    shown = goalgrid("claims", "demo", "--comparisons", runs=trained.path).stdout
    assert "demo: no such cells." in shown
    assert "frozen-bow" not in shown
    assert "cnn-bow:sig-ms_cir minus cnn-bow:con_con" in shown
    wrong = goalgrid("claims", "gaol", "demo", runs=trained.path)
    assert (wrong.returncode, "Did you mean 'goal'?" in wrong.stderr) == (2, True)
    assert "Did you mean 'unified'?" in goalgrid("claims", "unifid", runs=trained.path).stderr
    alone = goalgrid("claims", "demo", "--set", "objectives=con_con", runs=trained.path)
    assert (alone.returncode, len(alone.stderr.splitlines()), alone.stdout) == (2, 1, "")
    assert "has no two cells that a claim of goal, selhn, unified, 2ad compares" in alone.stderr
    assert goalgrid("claims", "goal", "demo", runs=tmp_path).returncode == 3


def test_cells_that_a_sentence_leaves_out_are_not_compared() -> None:
    """Unified §4.5 speaks of margins above 0, and of every gamma but 20."""

    def compared(name: str, other: str, swept: str) -> list[str]:
        cells = expand(load("flickr8k", [f'objectives=["unified", "{other}"]', "objective.gamma=60", f"sweep.{swept}"]))
        rows = {t.id: {"protocol": "flickr8k-1k", "test_rsum": 100.0} for cell in cells for t in cell.trials}
        claim = CLAIMS[f"unified {name}"]
        return [test.block for test in judge("", claim, measured(claim, cells, Scores(rows))).comparisons]

    assert compared("against VLC", "infonce", "objective.margin=[0.0, 0.2]") == [
        "flickr8k (flickr8k-1k), objective.margin = 0.2"
    ]
    of_gamma = compared("against Triplet-HN over gamma", "triplet-hn", "objective.gamma=[20.0, 60.0]")
    assert of_gamma == ["flickr8k (flickr8k-1k), objective.gamma = 60.0"]


def test_cells_with_two_values_of_what_the_paper_holds_equal_are_no_comparison() -> None:
    """Unified §4.5 compares the loss with VLC at one gamma; their defaults here are 60 and 50."""
    claim = CLAIMS["unified against VLC"]

    def judged(*overrides: str) -> JudgedClaim:
        cells = expand(load("flickr8k", ['objectives=["unified", "infonce"]', "seeds=[0, 1, 2]", *overrides]))
        rows = {
            trial.id: {"protocol": "flickr8k-1k", "test_rsum": 100 + 10 * (cell.objective == "unified") + trial.seed}
            for cell in cells
            for trial in cell.trials
        }
        return judge("", claim, measured(claim, cells, Scores(rows)))

    assert judged().verdict == ABSENT
    assert line("mine", judged()) == "mine: no such cells with the same gamma."
    assert [each.difference for each in judged("objective.gamma=60").comparisons] == [10]
