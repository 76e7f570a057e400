"""The losses of the other papers against loops over anchors, and the limits in which they become one another."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from goalgrid import objectives
from goalgrid.grid.objectives import FAMILIES, LOSSES, resolve
from goalgrid.grid.objectives.parameters import VARIANTS
from goalgrid.objectives import build, mining
from goalgrid.objectives.assisted import pair_losses
from tests.cases import every
from tests.objectives import literal
from tests.objectives.test_goal import SIMILARITIES, gradient, unit

CASES = ["random", "trained", "two pairs", "scores over 1", "empty sets"]


def both(equation, sim: Tensor, values: dict, **context) -> tuple[Tensor, Tensor]:
    sim = sim.clone().requires_grad_()
    loss = literal.loss(equation, sim, values, **context)
    return loss.detach(), torch.autograd.grad(loss, sim)[0]


@every("case", CASES)
@every("variant", VARIANTS)
@every("name", literal.LOSSES)
def test_value_and_gradient_equal_the_literal_loops(name: str, variant: str, case: str) -> None:
    sim = SIMILARITIES[case]
    value, expected = both(literal.LOSSES[name], sim, resolve(name, variant=variant))
    objective = build(name, variant=variant)
    torch.testing.assert_close(objective.from_similarity(sim), value)
    torch.testing.assert_close(gradient(objective, sim), expected)


STEEP = {"gamma": 200.0, "tau": 200.0, "alpha": 200.0, "beta": 200.0, "temperature": 0.005}


@every("variant", VARIANTS)
@every("name", [name for name in [*literal.LOSSES, "adopt"] if STEEP.keys() & resolve(name).keys()])
def test_steep_losses_neither_overflow_nor_cancel(name: str, variant: str) -> None:
    """float32 beside float64; exponents of 400 overflow the literal versions."""
    objective = build(name, variant=variant, **{key: STEEP[key] for key in STEEP.keys() & resolve(name).keys()})
    for seed in range(4):
        sim = 2 * torch.rand(6, 6, generator=torch.Generator().manual_seed(seed)) - 1
        expected = gradient(objective, sim.double())
        assert expected.isfinite().all()
        largest = float(expected.abs().max())
        torch.testing.assert_close(gradient(objective, sim).double(), expected, rtol=2e-4, atol=1e-6 * largest)


@every("name", literal.LOSSES)
def test_other_numbers_than_the_defaults_equal_the_literal_loops(name: str) -> None:
    """A coefficient of 0 hides its term."""
    changed = {key: 1.1 * value + 0.05 for key, value in resolve(name).items() if isinstance(value, float)}
    value, expected = both(literal.LOSSES[name], SIMILARITIES["random"], resolve(name, **changed))
    objective = build(name, **changed)
    torch.testing.assert_close(objective.from_similarity(SIMILARITIES["random"]), value)
    torch.testing.assert_close(gradient(objective, SIMILARITIES["random"]), expected)


@every("name", literal.LOSSES)
def test_same_images_equal_the_literal_loops(name: str) -> None:
    ids = [4, 4, 1, 2, 1, 4, 0]
    sim = unit(7, 3) @ unit(7, 3, seed=1).T
    value, expected = both(literal.LOSSES[name], sim, resolve(name), same=lambda r, c: ids[r] == ids[c])
    objective = build(name, ignore_same_image=True)
    torch.testing.assert_close(objective.from_similarity(sim, torch.tensor(ids)), value)
    torch.testing.assert_close(gradient(objective, sim, torch.tensor(ids)), expected)


@every("ids", [[4, 4, 1, 2, 1, 4, 0], [1, 1, 1, 1, 1, 1, 2]])
@every("variant", VARIANTS)
@every("name", ["triplet-hn", "ssp", "rsp"])
def test_each_of_all_negatives_makes_a_triplet_and_those_of_the_same_image_make_none(
    name: str, variant: str, ids: list[int]
) -> None:
    def every(pos: Tensor, negs: list[Tensor], values: dict) -> Tensor:
        return sum(literal.LOSSES[name](pos, [neg], values) for neg in negs)

    sim = unit(7, 3) @ unit(7, 3, seed=1).T
    value, expected = both(every, sim, resolve(name, variant=variant), same=lambda r, c: ids[r] == ids[c])
    objective = build(name, variant=variant, mining="all", ignore_same_image=True)
    torch.testing.assert_close(objective.from_similarity(sim, torch.tensor(ids)), value)
    torch.testing.assert_close(gradient(objective, sim, torch.tensor(ids)), expected)


@every("epsilon", [0.01, 0.3, 3.0])
@every("variant", VARIANTS)
def test_selhn_averages_where_the_hardest_is_as_near_as_the_positive(epsilon: float, variant: str) -> None:
    sim = SIMILARITIES["random"]
    values = resolve("selhn", variant=variant, epsilon=epsilon)
    objective = build("selhn", variant=variant, epsilon=epsilon)
    torch.testing.assert_close(gradient(objective, sim), both(literal.selhn, sim, values)[1])


@every("case", ["random", "trained", "two pairs"])
@every("variant", VARIANTS)
def test_adopt_equals_the_literal_loops_and_reports_k(variant: str, case: str) -> None:
    sim = SIMILARITIES[case].clone().requires_grad_()
    value, k = literal.adopt(sim, resolve("adopt", variant=variant))
    objective = build("adopt", variant=variant)
    torch.testing.assert_close(gradient(objective, sim.detach()), torch.autograd.grad(value, sim)[0])
    torch.testing.assert_close(objective.from_similarity(sim.detach()), value.detach())
    assert objective.report["k"] == k


@every("case", ["random", "trained", "two pairs", "empty sets"])
@every("name", ["selhn", "shn", "sct"])
def test_the_branch_of_every_anchor_is_reported(name: str, case: str) -> None:
    sim, other = SIMILARITIES[case], 0
    for s in (sim, sim.T):
        for row in range(len(s)):
            pos, negatives = s[row, row].item(), [s[row, c].item() for c in range(len(s)) if c != row]
            other += {
                "selhn": abs(max(negatives) - pos) <= resolve("selhn")["epsilon"],
                "shn": not any(neg < pos for neg in negatives),
                "sct": max(negatives) >= pos,
            }[name]
    objective = build(name)
    objective.from_similarity(sim)
    assert objective.report["branch"].item() == pytest.approx(other / (2 * len(sim)))


@every(("align", "uniform", "k"), [(0.0, 1.0, 70), (0.99, math.exp(-0.99), 13), (0.3, 0.95, 32), (0.5, 0.9, 7)])
def test_adopt_as_released_counts_as_its_code_does(align: float, uniform: float, k: int) -> None:
    """What losses.py gives in a batch of 128, with its scale of 1.25 and all other similarities alike."""
    others = -math.log((128 * uniform - 1) / 127)
    sim = torch.full((128, 128), others, dtype=torch.float64).fill_diagonal_(align)
    objective = build("adopt", variant="released")
    objective.from_similarity(sim)
    assert objective.report["k"] == k


def test_adopt_has_the_published_constants() -> None:
    """VSE+2AD appendix B and its losses.py."""
    of_a_batch = {"ignore_same_image": False}
    assert resolve("adopt", variant="released") == of_a_batch | {
        "temperature": 0.05, "margin": 0.2, "positive": True, "count": "released", "scale": 1.25, "reduction": "average"
    }  # fmt: skip
    assert resolve("adopt") == of_a_batch | {
        "temperature": 0.05, "margin": 0.0, "positive": False, "count": "paper", "scale": 1.25, "reduction": "mean"
    }  # fmt: skip


@every("mining", ["hardest", "all"])
@every("name", ["triplet-hn", "ssp", "rsp"])
def test_an_anchor_without_negatives_costs_nothing(name: str, mining: str) -> None:
    objective = build(name, mining=mining, ignore_same_image=True)
    assert objective.from_similarity(SIMILARITIES["random"], torch.zeros(9, dtype=torch.long)) == 0


def test_adopt_uses_fewer_negatives_as_the_model_matures() -> None:
    chance, trained = torch.zeros(64, 64), torch.eye(64) * 0.9
    for variant in VARIANTS:
        objective = build("adopt", variant=variant)
        k = []
        for sim in (chance, trained):
            objective.from_similarity(sim)
            k.append(objective.report["k"].item())
        assert k[0] > k[1]


@every(("name", "given"), [
    ("ncr", {}),
    ("ncr", {"variant": "released", "margins": "anchor"}),
    ("unified-adaptive", {}),
    ("unified-adaptive", {"variant": "released"}),
])  # fmt: skip
def test_a_doubtful_pair_has_a_smaller_margin_and_may_teach_nothing(name: str, given: dict) -> None:
    sim, values = SIMILARITIES["random"], resolve(name, **given, reduction="sum")
    clean = torch.linspace(0, 1, len(sim), dtype=torch.float64)
    margins = [0.2 * (10**y - 1) / 9 for y in clean.tolist()]
    expected = torch.zeros((), dtype=torch.float64)
    for pair, positive, negatives in literal.anchors_of(sim.tolist()):
        equation = literal.triplet_hn if name == "ncr" else literal.unified
        if clean[pair] >= values.get("threshold", 0.0):
            expected += equation(sim[positive], [sim[n] for n in negatives], {**values, "margin": margins[pair]})
    found = build(name, **given, reduction="sum").from_similarity(sim, extra={"clean": clean[:, None]})
    torch.testing.assert_close(found, expected)


def released_ncr(sim: Tensor, clean: Tensor, negatives: str) -> Tensor:
    """The hinges of NCR's code, whose (B, 1) margins stand in the rows of the matrix of scores, in both directions."""
    pairs, total = range(len(sim)), sim.new_zeros(())
    margins = [0.2 * (10**y - 1) / 9 for y in clean.tolist()]
    for anchor in pairs:
        if clean[anchor] < 0.5:
            continue
        others = [other for other in pairs if other != anchor]
        i2t = [(margins[anchor] + sim[anchor, other] - sim[anchor, anchor]).clamp(min=0) for other in others]
        t2i = [(margins[other] + sim[other, anchor] - sim[anchor, anchor]).clamp(min=0) for other in others]
        for costs in (torch.stack(i2t), torch.stack(t2i)):
            total = total + (costs.max() if negatives == "hardest" else costs.sum())
    return total


@every("negatives", ["hardest", "all"])
def test_released_ncr_has_the_margin_of_the_negatives_row_and_mines_by_it(
    negatives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, text = unit(8, 5), unit(8, 5, seed=1)
    clean = torch.tensor([0.1, 0.9, 0.6, 1.0, 0.3, 0.7, 0.95, 0.5], dtype=torch.float64)
    objective = build("ncr", variant="released", mining=negatives)

    def measured(loss: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in (image, text)]
        value = loss(*leaves)
        return [value.detach(), *torch.autograd.grad(value, leaves)]

    expected = measured(lambda image, text: released_ncr(image @ text.T, clean, negatives))
    extra = {"clean": clean[:, None]}
    assert not torch.allclose(expected[0], build("ncr", margins="anchor").from_similarity(image @ text.T, extra=extra))

    def check() -> None:
        for found in (
            measured(lambda image, text: objective(image, text, extra=extra)),
            measured(lambda image, text: objective.from_similarity(image @ text.T, extra=extra)),
        ):
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs)

    check()
    s_neg = objective.report["s_neg"]
    sim = (image @ text.T).detach()
    if negatives == "hardest":  # scored again, as a scorer of sets does; and mined in tiles
        again = measured(
            lambda image, text: objective.from_similarity(
                sim, extra=extra, rescore=lambda rows, columns: (image[rows] * text[columns]).sum(1)
            )
        )
        for ours, theirs in zip(again, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        monkeypatch.setitem(mining.WHOLE, "cpu", 0)
        monkeypatch.setitem(mining.TILE, "cpu", 3)
        check()
        rows = sim + 0.2 * (10 ** clean[:, None] - 1) / 9
        rows.fill_diagonal_(-torch.inf)
        mined = torch.cat([sim.gather(1, rows.argmax(1, keepdim=True))[:, 0], sim.gather(0, rows.argmax(0)[None])[0]])
        torch.testing.assert_close(s_neg, mined.mean())  # what is reported is a similarity, without its margin


def test_pairs_that_nobody_doubts_yet_have_the_whole_margin_in_released_ncr() -> None:
    sim = SIMILARITIES["random"]
    released, plain = build("ncr", variant="released"), build("triplet-hn")
    torch.testing.assert_close(released.from_similarity(sim), plain.from_similarity(sim))
    certain = {"clean": torch.ones(len(sim), 1, dtype=torch.float64)}
    torch.testing.assert_close(released.from_similarity(sim, extra=certain), plain.from_similarity(sim))


@every("variant", VARIANTS)
def test_offline_negatives_equal_the_literal_sum_of_aoq(variant: str) -> None:
    sim, b = SIMILARITIES["random"], len(SIMILARITIES["random"])
    offline = torch.linspace(-0.9, 1.2, 4 * b, dtype=sim.dtype).view(2, b, 2)

    def literal_loss(sim: Tensor, offline: Tensor) -> Tensor:
        total = sim.new_zeros(())
        for direction, scores in enumerate((sim, sim.T)):
            for i in range(b):
                positive, own, other = scores[i, i], offline[direction, i, 0], offline[direction, i, 1]
                online = max(scores[i, j] for j in range(b) if j != i)
                weight = 1.5 - (own - online) / 0.3
                if variant == "paper":
                    weight = weight.detach().clamp(min=0)
                total = total + weight * (0.2 + online - positive).clamp(min=0)
                total = total + (own - positive).clamp(min=0) + (other - positive).clamp(min=0)
        return total

    def measured(loss) -> list[Tensor]:
        leaves = [given.clone().requires_grad_() for given in (sim, offline)]
        value = loss(*leaves)
        return [value.detach(), *torch.autograd.grad(value, leaves)]

    objective = build("aoq", variant=variant)
    found = measured(lambda sim, offline: objective.from_similarity(sim, extra={"offline": offline}))
    for ours, theirs in zip(found, measured(literal_loss), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(objective.from_similarity(sim), build("triplet-hn").from_similarity(sim))


def test_the_loss_of_a_pair_is_the_mean_hinge_over_its_negatives() -> None:
    sim, pairs = SIMILARITIES["random"], range(len(SIMILARITIES["random"]))
    found = []
    for i in pairs:
        others = [j for j in pairs if j != i]
        i2t = sum(max(0.0, float(sim[i, j] - sim[i, i]) + 0.2) for j in others)
        t2i = sum(max(0.0, float(sim[j, i] - sim[i, i]) + 0.2) for j in others)
        found.append((i2t + t2i) / len(others))
    assert pair_losses(sim, margin=0.2).tolist() == pytest.approx(found)


@every(("name", "plain"), [("ncr", "triplet-hn"), ("unified-adaptive", "unified")])
def test_pairs_that_are_all_clean_have_the_plain_margin(name: str, plain: str) -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(build(name).from_similarity(sim), build(plain).from_similarity(sim))
    certain = {"clean": torch.ones(len(sim), 1, dtype=torch.float64)}
    torch.testing.assert_close(build(name).from_similarity(sim, extra=certain), build(plain).from_similarity(sim))


def test_unified_becomes_triplet_hn_as_gamma_grows() -> None:
    sim = SIMILARITIES["random"]
    limit = build("triplet-hn").from_similarity(sim)
    gaps = [(build("unified", gamma=gamma).from_similarity(sim) - limit).abs() for gamma in (10, 100, 1000, 1e5)]
    assert gaps == sorted(gaps, reverse=True)
    torch.testing.assert_close(build("unified", gamma=1e5).from_similarity(sim), limit, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient(build("unified", gamma=1e5), sim), gradient(build("triplet-hn"), sim))


@every("gamma", [1.0, 50.0])
def test_unified_without_margin_is_vlc_over_gamma(gamma: float) -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(
        gamma * build("unified", gamma=gamma, margin=0).from_similarity(sim),
        build("infonce", gamma=gamma).from_similarity(sim),
    )


def test_unified_weighted_by_one_is_unified() -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(
        build("unified-weighted", weights="con").from_similarity(sim), build("unified").from_similarity(sim)
    )


def test_infonce_as_released_is_the_cross_entropy_of_clip() -> None:
    sim = SIMILARITIES["random"]
    labels = torch.arange(len(sim))
    expected = sum(torch.nn.functional.cross_entropy(s / 0.07, labels) for s in (sim, sim.T)) / 2
    torch.testing.assert_close(build("infonce", variant="released").from_similarity(sim), expected)


def test_itc_takes_all_texts_of_an_image_for_positives() -> None:
    """The label is shared among them, as X-VLM's is."""
    sim = SIMILARITIES["random"]
    owners = torch.arange(len(sim)) % 4
    expected = torch.zeros((), dtype=torch.float64)
    for matrix in (sim, sim.T):
        for row, scores in enumerate(matrix / 0.07):
            own = [column for column in range(len(sim)) if owners[column] == owners[row]]
            for column in own:
                expected -= (scores[column] - scores.logsumexp(0)) / len(own) / len(sim) / 2
    torch.testing.assert_close(build("itc").from_similarity(sim, owners), expected)


def test_selhn_without_slack_is_triplet_hn() -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(gradient(build("selhn", epsilon=0), sim), gradient(build("triplet-hn"), sim))


def test_rsp_of_constant_weight_is_triplet_hn() -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(gradient(build("rsp", c1=0), sim), gradient(build("triplet-hn"), sim))


@every("name", ["infonce", "unified", "adopt", "circle", "multi-similarity"])
def test_large_scales_do_not_overflow(name: str) -> None:
    scale = {"adopt": "temperature", "multi-similarity": "beta"}.get(name, "gamma")
    sim = SIMILARITIES["scores over 1"].float()
    found = gradient(build(name, **{scale: 1e-4 if name == "adopt" else 1e4}), sim)
    assert found.isfinite().all()
    assert found.abs().max() > 0


def test_every_loss_has_a_literal_version() -> None:
    lacking = LOSSES.keys() - literal.LOSSES.keys() - {"adopt", "ncr", "unified-adaptive"}
    assert not lacking, (
        f"no literal version of {sorted(lacking)}: write the equation for one anchor, with Python loops over `negs`, "
        "in tests/objectives/literal.py, and add its line to LOSSES there"
    )


@every("name", LOSSES)
def test_a_loss_stands_in_the_file_of_its_family(name: str) -> None:
    assert FAMILIES[objectives.LOSSES[name].__module__.removeprefix("goalgrid.objectives.")] == LOSSES[name].family
