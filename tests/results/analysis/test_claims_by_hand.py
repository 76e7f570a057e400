"""Every verdict on a paper's sentence, recomputed from the transcribed tables by the arithmetic that it names.

The numbers are those of tests/results/reference/printed; nothing here reads the reference files or claims' patterns.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import combinations, product, zip_longest
from typing import NamedTuple

import pytest
from scipy import stats

from goalgrid.results.analysis.claims import JudgedClaim, judged
from goalgrid.results.reference.reading import PAPERS
from tests.cases import every
from tests.results.reference.printed_grids import transcribed

NAN = Decimal("nan")
ALL = range(7)
RSUM = 6


def number(text: str) -> Decimal:
    return NAN if text == "-" else Decimal(text.partition(" ±")[0].rstrip("×"))


def rows(table: str) -> dict[str, list[Decimal]]:
    """The numbers of a row by its words; before `+ SelHN`, which continues a model, those of the row above."""
    found, above = dict[str, list[Decimal]](), ""
    for line in transcribed(table).lines:
        words = " ".join(filter(None, [line.title, *line.words]))
        label = f"{above} {words}" if words.startswith("+") else words
        above = above if words.startswith("+") else words
        found[label] = [number(text) for text in line.numbers]
    return found


def leads(
    table: str, better: str, than: str, columns: Iterable[int], by: tuple[str, ...] = (), times: str = "1"
) -> list[Decimal]:
    """Better - times x than - by, and half a printed digit where the sentence names by how much."""
    mine, theirs = rows(table)[better], rows(table)[than]
    found = [
        mine[column] - Decimal(times) * theirs[column] - (Decimal(amount) - Decimal("0.05") if amount else 0)
        for column, amount in zip_longest(columns, by)
    ]
    return [lead for lead in found if not lead.is_nan()]


def joined(table: str, better: list[str], than: list[str], columns: Iterable[int]) -> list[Decimal]:
    return [lead for one, other in product(better, than) for lead in leads(table, one, other, columns)]


def others(table: str, but: str) -> list[str]:
    return [label for label in rows(table) if label != but]


FC, MLP, RVSE = "VSE (FC)", "VSE (MLP)", "RVSE (MLP)"
TRIPLET, HN, SELHN = "L_Triplet", "L_T-HN", "L_T-SelHN"
OLD = ["VSE++(R152, FT) [7] × -", "VSE∞ (BUTD) [2] × -", "VSE∞ (WSL) [2] × -"]
OURS = ["VSE++(R152, FT) ours × -", "VSE∞ (BUTD) ours × -", "VSE∞ (WSL) ours × -"]
BIGRU, BERT = "Text Encoder: BiGRU", "Text Encoder: BERT"
COCO, FLICKR = 6, 13
"""The two RSUM of VSE+2AD Table 1."""

UNTESTED: dict[str, Callable[[], list[Decimal]]] = {
    "goal gain on VSE++ on MS-COCO": lambda: leads("goal-table6", OURS[0], OLD[0], (0, 3), ("3.0", "0.7")),
    "goal gain on VSE∞ (BUTD) on MS-COCO": lambda: leads("goal-table6", OURS[1], OLD[1], (0, 3), ("4.9", "2.0")),
    "goal gain on VSE∞ (WSL) on MS-COCO": lambda: leads("goal-table6", OURS[2], OLD[2], (0, 3), ("5.5", "2.1")),
    "goal gain on VSE++ on Flickr30K": lambda: leads("goal-table6", OURS[0], OLD[0], (6, 9), ("4.1", "2.8")),
    "goal gain on VSE∞ (BUTD) on Flickr30K": lambda: leads("goal-table6", OURS[1], OLD[1], (6, 9), ("0.6", "2.6")),
    "goal gain on VSE∞ (WSL) on Flickr30K": lambda: leads("goal-table6", OURS[2], OLD[2], (6, 9), ("2.2", "2.5")),
    "selhn SelHN on VSE": lambda: [
        lead
        for model in (FC, MLP)
        for lead in joined("selhn-table1", [f"{model} {SELHN}"], [f"{model} {TRIPLET}", f"{model} {HN}"], (RSUM,))
    ],
    "selhn more layers": lambda: [
        leads("selhn-table1", f"{FC} {loss}", f"{MLP} {loss}", (RSUM,))[0] for loss in (TRIPLET, HN, SELHN)
    ],
    "selhn best model": lambda: joined(
        "selhn-table1", [f"{RVSE} {SELHN}"], others("selhn-table1", f"{RVSE} {SELHN}"), (RSUM,)
    ),
    "selhn SelHN on models of attention": lambda: [
        *leads("selhn-table2", "BFAN(MM'19) [22] + SelHN", "BFAN(MM'19) [22]", (RSUM,)),
        *leads("selhn-table2", "SGRAF(AAAI'21) [8] + SelHN", "SGRAF(AAAI'21) [8]", (RSUM,)),
        *leads("selhn-table8", "BFAN(MM'19) [22] + L_T-SelHN", "BFAN(MM'19) [22]", (RSUM,)),
        *leads("selhn-table8", "SGRAF(AAAI'21) [8] + L_T-SelHN", "SGRAF(AAAI'21) [8]", (RSUM,)),
        *leads("selhn-table9", "BFAN(MM'19) [22] + L_T-SelHN", "BFAN(MM'19) [22]", (RSUM,)),
    ],
    "selhn gain on SCAN": lambda: leads(
        "selhn-table2", "SCAN(ECCV'18) [17] + SelHN", "SCAN(ECCV'18) [17]", (RSUM,), ("21.2",)
    ),
    "selhn gain on BFAN": lambda: leads(
        "selhn-table2", "BFAN(MM'19) [22] + SelHN", "BFAN(MM'19) [22]", (RSUM,), ("18.7",)
    ),
    "selhn gain on SGRAF": lambda: leads(
        "selhn-table2", "SGRAF(AAAI'21) [8] + SelHN", "SGRAF(AAAI'21) [8]", (RSUM,), ("7.5",)
    ),
    "selhn SelHN against other remedies": lambda: [
        lead for half in (range(7), range(7, 14)) for lead in joined("selhn-table3", [SELHN], ["SHN", "SCT"], half)
    ],
    "selhn RVSE++ is best": lambda: [
        lead
        for table in ("selhn-table5", "selhn-table6", "selhn-table11")
        for lead in joined(table, ["RVSE++"], others(table, "RVSE++"), ALL)
    ],
    "selhn RVSE++ on Flickr30K": lambda: joined("selhn-table5", ["RVSE++"], others("selhn-table5", "RVSE++"), ALL),
    "selhn gain over NAAF on Flickr30K": lambda: leads(
        "selhn-table5", "RVSE++", "NAAF(CVPR'22) [43]", (RSUM,), ("11.0",)
    ),
    "selhn gain over NAAF on MS-COCO 1K": lambda: leads(
        "selhn-table6", "RVSE++", "NAAF(CVPR'22) [43]", (RSUM,), ("5.2",)
    ),
    "selhn gain over NAAF on MS-COCO 5K": lambda: leads(
        "selhn-table11", "RVSE++", "NAAF(CVPR'22) [43]", (RSUM,), ("12.5",)
    ),
    "unified against Triplet-HN": lambda: [
        *leads("unified-table1", "VSE++ (BUTD) + L_Unified", "VSE++ (BUTD)", (RSUM, 13)),
        *leads("unified-table1", "BFAN* + L_Unified", "BFAN* [27]", (RSUM, 13)),
        *leads("unified-table1", "SGRAF* + L_Unified", "SGRAF* [11]", (RSUM, 13)),
        *leads("unified-table6", "VSE++ (BUTD) + L_Unified", "VSE++ (BUTD)", (RSUM,)),
        *leads("unified-table6", "BFAN* + L_Unified", "BFAN* [27]", (RSUM,)),
    ],
    "unified gain on SGRAF on Flickr30K": lambda: leads(
        "unified-table1", "SGRAF* + L_Unified", "SGRAF* [11]", (RSUM,), ("7.0",)
    ),
    "unified gain on SGRAF on MS-COCO 1K": lambda: leads(
        "unified-table1", "SGRAF* + L_Unified", "SGRAF* [11]", (13,), ("3.1",)
    ),
    "unified gain on SGRAF on MS-COCO 5K": lambda: leads(
        "unified-table6", "SGRAF* + L_Unified", "SGRAF* [11]", (0, 3), ("1.4", "1.3")
    ),
    "unified against other losses": lambda: [
        *joined("unified-table3", ["SCAN T2I + L_Unified"], ["SCAN T2I AVG", "SCAN T2I AVG + RSP"], range(4)),
        *joined(
            "unified-table3",
            ["BFAN* + L_Unified"],
            ["BFAN*", "BFAN* + SSP", "BFAN* + AOQ", "BFAN* + Meta-SPN"],
            range(4),
        ),
        *joined("unified-table3", ["SGRAF* + L_Unified"], ["SGRAF*", "SGRAF* + NCR"], range(4)),
    ],
    "unified gain over VLC on Flickr30K": lambda: leads(
        "unified-table2", "CLIP + L_Unified", "CLIP + L_VLC", (RSUM,), ("7.8",)
    ),
    "unified gain over VLC on MS-COCO": lambda: leads(
        "unified-table2", "CLIP + L_Unified", "CLIP + L_VLC", (13,), ("4.0",)
    ),
    "unified gain on MMT": lambda: [
        sum(rows("unified-table4")["MMT + L_Unified 1k-A"]) - sum(rows("unified-table4")["MMT 1k-A"])
        - Decimal("15.7") + Decimal("0.05")
    ],
    "unified gain on CE": lambda: [
        sum(rows("unified-table4")["CE + L_Unified Full"]) - sum(rows("unified-table4")["CE Full"])
        - Decimal("17.2") + Decimal("0.05")
    ],
    "2ad each part helps": lambda: joined("2ad-table3", ["VSE+2AD"], others("2ad-table3", "VSE+2AD"), (RSUM,)),
    "2ad taking ADOPT out is worst": lambda: joined(
        "2ad-table3", ["−tok ADPOOL", "−emb ADPOOL", "−ADPOOL"], ["−ADOPT"], (RSUM,)
    ),
    "2ad ADOPT against Triplet-HN": lambda: leads("2ad-table3", "VSE+2AD", "−ADOPT", (RSUM,)),
    "2ad ADPOOL against other poolings": lambda: joined("2ad-table4", ["ADPOOL"], others("2ad-table4", "ADPOOL"), (4,)),
    "2ad learnt balance": lambda: joined(
        "2ad-tableC2", ["ADPOOL ADPOOL"], others("2ad-tableC2", "ADPOOL ADPOOL"), (4,)
    ),
    "2ad two visual encoders with BiGRU": lambda: leads(
        "2ad-table1", f"{BIGRU} RG VSE+2AD", f"{BIGRU} R VSE+2AD", (COCO, FLICKR)
    ),
    "2ad two visual encoders with BERT": lambda: leads(
        "2ad-table1", f"{BERT} RG VSE+2AD", f"{BERT} R VSE+2AD", (COCO, FLICKR)
    ),
    "2ad all visual encoders with BiGRU": lambda: joined(
        "2ad-table1", [f"{BIGRU} RGP VSE+2AD"], [f"{BIGRU} RG VSE+2AD", f"{BIGRU} R VSE+2AD"], (COCO, FLICKR)
    ),
    "2ad all visual encoders with BERT": lambda: joined(
        "2ad-table1", [f"{BERT} RGP VSE+2AD"], [f"{BERT} RG VSE+2AD", f"{BERT} R VSE+2AD"], (COCO, FLICKR)
    ),
    "2ad against VSE∞ with BiGRU": lambda: leads(
        "2ad-table1", f"{BIGRU} R VSE+2AD", f"{BIGRU} R VSE∞", (COCO, FLICKR)
    ),
    "2ad against VSE∞ with BERT": lambda: leads("2ad-table1", f"{BERT} R VSE+2AD", f"{BERT} R VSE∞", (COCO, FLICKR)),
    "2ad relative gain over VSE∞ on MS-COCO": lambda: leads(
        "2ad-table1", f"{BIGRU} R VSE+2AD", f"{BIGRU} R VSE∞", (COCO,), times="1.0135"
    ),
    "2ad relative gain over VSE∞ on Flickr30K": lambda: leads(
        "2ad-table1", f"{BIGRU} R VSE+2AD", f"{BIGRU} R VSE∞", (FLICKR,), times="1.0095"
    ),
    "2ad an order of magnitude faster": lambda: [
        leads("2ad-table2", "VSE+2AD", other, (5,), times="10")[0] for other in ("UNITER", "OSCAR", "ALIGN")
    ],
}  # fmt: skip
"""By how much printed numbers without a spread bear a sentence out, one comparison each."""
FAILING = {"2ad an order of magnitude faster": (2, 3)}
"""The sentences that the means contradict, with how many comparisons bear them out."""
MOST = {"selhn SelHN against other remedies", "selhn RVSE++ is best", "unified against other losses"}
"""The sentences that say `most`."""
UNPRINTED = {
    "selhn better than epsilon = 0", "selhn insensitive to epsilon, within 5 points of RSUM", "unified against VLC",
    "unified best margin", "unified against Triplet-HN over gamma", "2ad faster than a pre-trained model",
}  # fmt: skip
"""Those about figures, and about a model that no table prints."""


@pytest.fixture(scope="module")
def verdicts() -> dict[str, JudgedClaim]:
    return {f"{paper} {one.claim.name}": one for paper in PAPERS for one in judged([paper])}


def test_every_sentence_is_recomputed_here(verdicts: dict[str, JudgedClaim]) -> None:
    assert {*UNTESTED, *TESTED, *UNPRINTED, SAME_ORDER, ALIKE} == verdicts.keys()
    assert all(verdicts[name].verdict == "no such cells" for name in UNPRINTED)


@every("name", list(UNTESTED))
def test_a_sentence_on_numbers_without_a_spread(name: str, verdicts: dict[str, JudgedClaim]) -> None:
    amounts, verdict = UNTESTED[name](), verdicts[name]
    right, many = sum(amount > 0 for amount in amounts), len(amounts)
    found = sorted(round(comparison.lead, 6) for comparison in verdict.comparisons)
    assert found == pytest.approx(sorted(map(float, amounts)), abs=1e-6)
    holds = 2 * right > many if name in MOST else right == many
    assert (verdict.verdict, verdict.in_means) == ("cannot be told", "holds" if holds else "fails")
    assert holds == (name not in FAILING)
    assert name not in FAILING or FAILING[name] == (right, many)


class Cell(NamedTuple):
    """A cell of GOAL's matrix by one metric."""

    recipe: str
    pair: str
    triplet: str
    metric: str
    mean: float
    std: float


def matrix(table: str, frozen: str, tuned: str) -> Iterator[Cell]:
    for place, line in enumerate(transcribed(table).lines):
        for column, text in enumerate(line.numbers):
            mean, std = map(float, text.split(" ± "))
            triplet, metric = ("con", "nca", "cir")[column % 3], ("i2t", "t2i")[column // 3]
            yield Cell((frozen, tuned)[place // 5], line.words[0].removeprefix("P^"), triplet, metric, mean, std)


VSEPP = [*matrix("goal-table3-coco", "r152", "r152-ft"), *matrix("goal-table4-coco", "vit", "vit-ft")]
INFINITY = list(matrix("goal-table5-coco", "butd", "wsl"))
TUNED = [cell for cell in VSEPP if cell.recipe.endswith("-ft")]
KNOWN = [("con", "nca"), ("lin", "cir"), ("sig", "con"), ("sig-ms", "con")]
"""The losses of GOAL Table 1 but the triplet loss."""


def pairs(cells: list[Cell], rule: Callable[[Cell, Cell], bool]) -> list[tuple[Cell, Cell]]:
    """Better and worse of one recipe and metric."""
    same = ((a, b) for a, b in product(cells, cells) if (a.recipe, a.metric) == (b.recipe, b.metric))
    return [(a, b) for a, b in same if rule(a, b)]


TESTED: dict[str, list[tuple[Cell, Cell]]] = {
    "goal pair weights": pairs(VSEPP, lambda a, b: a.triplet == b.triplet and a.pair != "con" == b.pair),
    "goal triplet weights": pairs(TUNED, lambda a, b: a.pair == b.pair and a.triplet != "con" == b.triplet),
    "goal known losses": pairs(VSEPP, lambda a, b: a[1:3] in KNOWN and b[1:3] == ("con", "con")),
    "goal best known loss": pairs(
        TUNED, lambda a, b: a[1:3] == ("sig-ms", "con") and b[1:3] in [("con", "con"), *KNOWN[:3]]
    ),
    "goal MS loss is sub-optimal": pairs(
        TUNED, lambda a, b: a.pair == b.pair == "sig-ms" and a.triplet != "con" == b.triplet
    ),
    "goal pair weights of VSE∞": pairs(INFINITY, lambda a, b: a.triplet == b.triplet and a.pair != "con" == b.pair),
    "goal best combination": pairs(
        [*VSEPP, *INFINITY], lambda a, b: a[1:3] == ("sig-ms", "cir") != b[1:3]
    ),
}  # fmt: skip
SAME_ORDER = "goal same pattern on every backbone"
ALIKE = "goal the gradient of the triplet loss, within a point of Recall@1"


def holm_by_hand(p: list[float]) -> list[float]:
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = largest
    return adjusted


def decide(amounts: list[float], p: list[float], *, most: bool) -> tuple[str, str, int, int]:
    """By tests, by the means, and how many comparisons hold and are reversed at 5 %."""
    signs = [(amount > 0, adjusted < 0.05) for amount, adjusted in zip(amounts, holm_by_hand(p), strict=True)]
    hold, turned, right = signs.count((True, True)), signs.count((False, True)), sum(sign for sign, _ in signs)
    many = len(signs)
    if most:
        tested = "holds" if 2 * hold > many else "fails" if 2 * turned > many else "cannot be told"
    else:
        tested = "fails" if turned else "holds" if hold == many else "cannot be told"
    return tested, "holds" if (2 * right > many if most else right == many) else "fails", hold, turned


@every("name", list(TESTED))
def test_a_sentence_on_means_of_three_runs(name: str, verdicts: dict[str, JudgedClaim]) -> None:
    """By Welch's test, with a printed ±0.0 as ±0.05, and Holm's correction."""
    amounts = [round(a.mean - b.mean, 6) for a, b in TESTED[name]]
    p = [
        stats.ttest_ind_from_stats(a.mean, max(a.std, 0.05), 3, b.mean, max(b.std, 0.05), 3, equal_var=False).pvalue
        for a, b in TESTED[name]
    ]
    verdict = verdicts[name]
    assert sorted(c.difference for c in verdict.comparisons) == pytest.approx(sorted(amounts))
    found = (verdict.verdict, verdict.in_means, verdict.verdicts.count("holds"), verdict.verdicts.count("fails"))
    assert found == decide(amounts, p, most=name == "goal best combination")


def test_results_of_the_gradient_are_within_a_point(verdicts: dict[str, JudgedClaim]) -> None:
    table = rows("goal-table2-coco")
    models = ("VSE++(R152,FT)", "VSE∞ (BUTD)", "VSE∞ (WSL)")
    apart = [abs(table[f"{model} ours"][c] - table[model][c]) for model in models for c in (0, 1)]
    assert max(apart) == Decimal("0.7") < 1
    assert (verdicts[ALIKE].verdict, verdicts[ALIKE].in_means) == ("cannot be told", "holds")
    found = sorted(comparison.lead for comparison in verdicts[ALIKE].comparisons)
    assert found == pytest.approx(sorted(float(1 - gap) for gap in apart))


def test_orders_of_two_backbones(verdicts: dict[str, JudgedClaim]) -> None:
    """Kendall's tau-b, and the share of the 15! orders that agree with another as much or as little."""
    counts = [1]
    for size in range(2, 16):  # orders of so many by their number of inversions
        counts = [sum(counts[max(0, n - size + 1) : n + 1]) for n in range(len(counts) + size - 1)]
    assert sum(counts) == math.factorial(15)
    taus, p = list[float](), list[float]()
    for metric in ("i2t", "t2i"):
        by_recipe = dict[str, list[float]]()
        for cell in [*VSEPP, *INFINITY]:
            if cell.metric == metric:
                by_recipe.setdefault(cell.recipe, []).append(cell.mean)
        for x, y in combinations(by_recipe.values(), 2):
            places = list(combinations(range(15), 2))
            excess = sum(((x[i] > x[j]) - (x[i] < x[j])) * ((y[i] > y[j]) - (y[i] < y[j])) for i, j in places)
            extreme = sum(count for n, count in enumerate(counts) if abs(105 - 2 * n) >= abs(excess))
            taus.append(stats.kendalltau(x, y).statistic)
            p.append(extreme / math.factorial(15))
    found = verdicts[SAME_ORDER]
    assert sorted(agreement.tau for agreement in found.agreements) == pytest.approx(sorted(taus))
    told = (found.verdict, found.in_means, found.verdicts.count("holds"), found.verdicts.count("fails"))
    assert told == decide(taus, p, most=False) == ("cannot be told", "holds", 21, 0)
