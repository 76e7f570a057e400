"""The 15 cells of GOAL against loops over anchors, and what all of them have in common."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from goalgrid.grid.objectives import resolve
from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.objectives.parameters import VARIANTS
from goalgrid.objectives import build, mining
from goalgrid.objectives.triplets import BatchPairs
from tests.cases import every
from tests.objectives import literal


def unit(*shape: int, seed: int = 0) -> Tensor:
    return normalize(torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=-1)


def batch(size: int, *, mix: float = 0.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs of unit vectors; `mix` of a text is its image."""
    image, other = unit(size, 4, seed=seed), unit(size, 4, seed=seed + 1)
    return image, normalize(mix * image + (1 - mix) * other, dim=-1)


def gradient(objective: torch.nn.Module, sim: Tensor, *context: Tensor) -> Tensor:
    sim = sim.clone().requires_grad_()
    objective.from_similarity(sim, *context).backward()
    assert sim.grad is not None
    return sim.grad


def ties(size: int) -> Tensor:
    """Similarities of a coarse scale, so that negatives tie with one another, with positives and with thresholds."""
    return torch.randint(-2, 5, (size, size), generator=torch.Generator().manual_seed(3)).double() * 0.25


SIMILARITIES = {
    "random": unit(9, 4) @ unit(9, 4, seed=1).T,
    "trained": torch.eye(7, dtype=torch.float64) * 0.8 + 0.1 * unit(7, 7),
    "empty sets": torch.eye(6, dtype=torch.float64) * 1.9 - 0.95,
    "collapsed": torch.full((5, 5), 0.95, dtype=torch.float64),
    "ties": ties(8),
    "two pairs": unit(2, 4) @ unit(2, 4, seed=1).T,
    "scores over 1": 2 * unit(6, 4) @ unit(6, 4, seed=1).T,
    "under -1": -1.5 - unit(5, 5).abs(),
}
WRITTEN = [f"{pair}_{triplet}" for pair in literal.P for triplet in literal.T]
"""The cells whose weights have a literal version."""
CELLS = list(itertools.product(WRITTEN, VARIANTS))


def test_every_weight_has_a_literal_version() -> None:
    lacking = [*(PAIR_WEIGHTS.keys() - literal.P.keys()), *(TRIPLET_WEIGHTS.keys() - literal.T.keys())]
    assert not lacking, (
        f"no literal version of {lacking}: write the weight of one triplet in Python numbers in "
        "tests/objectives/literal.py, and add its line to P or T there"
    )


@every("case", SIMILARITIES)
@every(("name", "variant"), CELLS)
def test_gradient_equals_the_literal_loops(name: str, variant: str, case: str) -> None:
    sim = SIMILARITIES[case]
    overrides = {"eps": 0.25} if case == "ties" and "-ms" in name else {}
    expected = literal.goal_gradient(name, sim.tolist(), resolve(name, variant=variant, **overrides))
    torch.testing.assert_close(
        gradient(build(name, variant=variant, **overrides), sim), expected, rtol=1e-9, atol=1e-12
    )


@every(("name", "variant"), CELLS)
@every("mining", [{"mining": "all"}, {"k": 3}, {"k": 100}])
def test_gradient_equals_the_literal_loops_on_several_negatives(name: str, variant: str, mining: dict) -> None:
    sim = SIMILARITIES["random"]
    expected = literal.goal_gradient(name, sim.tolist(), resolve(name, variant=variant, **mining))
    torch.testing.assert_close(gradient(build(name, variant=variant, **mining), sim), expected, rtol=1e-8, atol=1e-10)


@every("name", WRITTEN)
@every("mining", [{}, {"mining": "all"}])
def test_captions_of_the_same_image_can_be_no_negatives(name: str, mining: dict) -> None:
    ids = [4, 4, 1, 2, 1, 4, 0]
    sim = unit(7, 3) @ unit(7, 3, seed=1).T
    expected = literal.goal_gradient(name, sim.tolist(), resolve(name, **mining), same=lambda r, c: ids[r] == ids[c])
    objective = build(name, ignore_same_image=True, **mining)
    torch.testing.assert_close(gradient(objective, sim, torch.tensor(ids)), expected)


@every("name", WRITTEN)
def test_a_batch_of_one_image_learns_nothing(name: str) -> None:
    objective = build(name, variant="released", ignore_same_image=True)
    assert gradient(objective, SIMILARITIES["random"], torch.zeros(9, dtype=torch.long)).abs().max() == 0


@every(("name", "variant"), CELLS)
@every("edge", [1, 3])
@every("masked", [False, True])
def test_tiles_equal_the_whole_matrix(name: str, variant: str, edge: int, masked: bool, monkeypatch) -> None:
    image, text, owners = unit(8, 5), unit(8, 5, seed=1), torch.tensor([0, 0, 1, 2, 3, 4, 0, 4])
    objective = build(name, variant=variant, ignore_same_image=masked)
    whole = embedding_gradients(objective, image, text, owners)
    monkeypatch.setitem(mining.WHOLE, "cpu", 0)
    monkeypatch.setitem(mining.TILE, "cpu", edge)
    for tiled, expected in zip(embedding_gradients(objective, image, text, owners), whole, strict=True):
        torch.testing.assert_close(tiled, expected, rtol=1e-10, atol=1e-12)


@every(("name", "variant"), CELLS)
def test_tiles_equal_the_whole_matrix_where_similarities_tie(name: str, variant: str, monkeypatch) -> None:
    """Unit vectors of halves have similarities of halves, which tie in all tiles and are exact on any processor."""
    image, text = torch.randint(0, 2, (2, 9, 4), generator=torch.Generator().manual_seed(1)).double() - 0.5
    objective = build(name, variant=variant)
    whole = embedding_gradients(objective, image, text)
    monkeypatch.setitem(mining.WHOLE, "cpu", 0)
    monkeypatch.setitem(mining.TILE, "cpu", 2)
    for tiled, expected in zip(embedding_gradients(objective, image, text), whole, strict=True):
        torch.testing.assert_close(tiled, expected, rtol=1e-10, atol=1e-12)


@every(("name", "variant"), CELLS)
@every("ties", [False, True])
def test_the_passes_of_large_batches_equal_those_of_small_ones(
    name: str, variant: str, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectorised maxima and gradients in pieces, on batches that are small enough to have neither."""
    image, text = unit(9, 5), unit(9, 5, seed=1)
    if ties:
        image[3], text[5], text[6] = image[1], text[2], text[2]
    objective = build(name, variant=variant, ignore_same_image=True)
    owners = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7])
    expected = embedding_gradients(objective, image, text, owners)
    monkeypatch.setattr(mining, "VECTORISED", 0)
    monkeypatch.setattr(mining, "PIECE", 2)
    for ours, plain in zip(embedding_gradients(objective, image, text, owners), expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


def test_only_a_cpu_adds_gradients_in_pieces() -> None:
    """A GPU would start three kernels a piece. Tensors without data run its branch: their device is no CPU."""

    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += not func.is_view
            return func(*args, **(kwargs or {}))

    found = {}
    for device in ("cpu", "meta"):
        total, scale = torch.zeros(4 * mining.PIECE, 2, device=device), torch.ones(4 * mining.PIECE, 1, device=device)
        with Counting() as counting:
            mining._add_scaled(total, scale, total)
        found[device] = counting.count
    assert found == {"cpu": 8, "meta": 2}


@every("hidden", [False, True])
def test_the_first_of_tied_maxima_counts_either_way(hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = torch.tensor([[0.1, 0.7, 0.7], [0.2, 0.2, 0.2], [0.9, 0.7, -0.3]])
    if hidden:
        sim.fill_diagonal_(-torch.inf)
    for dim in (0, 1):
        monkeypatch.setattr(mining, "VECTORISED", 1000)
        plain = mining.hardest(sim, dim)
        monkeypatch.setattr(mining, "VECTORISED", 0)
        ours = mining.hardest(sim, dim)
        assert ours[0].equal(plain[0])
        assert ours[1].equal(plain[1])


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**20),
    size=st.integers(2, 8),
    rate=st.sampled_from([20.0, 30.0, 50.0, 100.0, 200.0]),
    masked=st.booleans(),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mining", [{}, {"k": 2}, {"mining": "all"}])
@pytest.mark.parametrize("variant", VARIANTS)
def test_steep_relative_weights_do_not_cancel(
    variant: str, mining: dict, dtype: torch.dtype, seed: int, size: int, rate: float, masked: bool
) -> None:
    """P+ and P- to the rounding of the similarities, which alpha and beta multiply, on positives from -1 to 1.

    T is 1, so the gradient holds sums of P+ on the diagonal and of P- beside it.
    """
    generator = torch.Generator().manual_seed(seed)
    sim = (2 * torch.rand(size, size, dtype=torch.float64, generator=generator) - 1).to(dtype)
    ids = torch.randint(size, (size,), generator=generator)
    values = {"alpha": rate, "beta": rate, "margin": None, "variant": variant, **mining}
    same = (lambda r, c: ids[r] == ids[c]) if masked else literal.equal
    expected = literal.goal_gradient("sig-ms_con", sim.tolist(), resolve("sig-ms_con", **values), same)
    found = gradient(build("sig-ms_con", ignore_same_image=masked, **values), sim, ids).double()
    largest = 1e-2 / torch.finfo(dtype).tiny
    held = expected.abs() < largest
    precision = 4 * rate * torch.finfo(dtype).eps
    torch.testing.assert_close(found[held], expected[held], rtol=precision, atol=1 / largest)
    assert (found[~held].abs() >= largest / 2).all()


def test_tiles_of_steep_relative_negatives_are_merged_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    image, text = unit(9, 2), unit(9, 2, seed=1)
    relative = build("sig-ms_con", alpha=200, beta=200).relative
    whole = mining.mine_embeddings(image, text, BatchPairs(9), relative)[1]
    monkeypatch.setitem(mining.WHOLE, "cpu", 0)
    monkeypatch.setitem(mining.TILE, "cpu", 2)
    tiled = mining.mine_embeddings(image, text, BatchPairs(9), relative)[1]
    torch.testing.assert_close(tiled.mean(relative), whole.mean(relative), rtol=1e-10, atol=0)
    assert (whole.mean(relative) < 1e-20).any()


def test_a_weight_beyond_all_numbers_leaves_out_a_triplet_that_does_not_count() -> None:
    sim = torch.full((3, 3), -1.0).fill_diagonal_(-0.3)
    assert gradient(build("sig-ms_con", variant="released", margin=0.2, alpha=200.0), sim).eq(0).all()


def embedding_gradients(
    objective: torch.nn.Module, image: Tensor, text: Tensor, *context: Tensor
) -> tuple[Tensor, ...]:
    image, text = image.clone().requires_grad_(), text.clone().requires_grad_()
    return torch.autograd.grad(objective(image, text, *context), (image, text))


@every("name", WRITTEN)
@every("mining", [{}, {"k": 2}])
def test_embeddings_receive_the_gradient_of_their_similarities(name: str, mining: dict) -> None:
    image, text = batch(7)
    objective = build(name, **mining)
    of_sim = gradient(objective, image @ text.T)
    for found, expected in zip(
        embedding_gradients(objective, image, text), (of_sim @ text, of_sim.T @ image), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_con_con_is_autograd_of_triplet_hn() -> None:
    image, text = batch(9, mix=0.3)
    for found, expected in zip(
        embedding_gradients(build("con_con"), image, text),
        embedding_gradients(build("triplet-hn"), image, text),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_con_con_on_all_negatives_is_the_sum_triplet() -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(gradient(build("con_con", mining="all"), sim), gradient(build("triplet"), sim))


@every("tau", [1.0, 10.0, 30.0])
def test_con_nca_is_autograd_of_nt_xent_on_the_hardest_up_to_tau(tau: float) -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(
        tau * gradient(build("con_nca", tau=tau), sim), gradient(build("nt-xent-hn", tau=tau), sim)
    )


def test_sig_con_without_margin_is_binomial_deviance() -> None:
    sim = SIMILARITIES["random"]
    torch.testing.assert_close(gradient(build("sig_con", margin=None), sim), gradient(build("binomial"), sim))


def test_lin_cir_is_circle_loss_up_to_its_scale() -> None:
    sim = SIMILARITIES["trained"].abs()
    cell = gradient(build("lin_cir", tau=16, offset=1), sim)
    loss = gradient(build("circle", gamma=16, margin=0, mining="hardest", reduction="sum"), sim)
    torch.testing.assert_close(16 * cell, loss)


@every("margin", [0.0, 0.4])
def test_lin_cir_integrates_to_circle_loss_whose_weights_are_not_held_constant(margin: float) -> None:
    tau, sim = 10.0, SIMILARITIES["random"].clone().requires_grad_()
    hardest = sim.masked_fill(torch.eye(len(sim), dtype=torch.bool), -torch.inf)
    loss = sum(
        torch.nn.functional.softplus(tau * ((1 - sim.diagonal()) ** 2 + s_neg**2 - 2 * margin**2)).sum() / (2 * tau)
        for s_neg in (hardest.amax(1), hardest.amax(0))
    )
    (expected,) = torch.autograd.grad(loss, sim)
    found = gradient(build("lin_cir", tau=tau, offset=1 - 2 * margin**2), sim.detach())
    torch.testing.assert_close(found, expected)


def test_sig_ms_con_without_margin_is_multi_similarity_with_goals_sets() -> None:
    """MS's loss with the pair's own similarity as the reference, GOAL's sets, means for sums: Eq. (12) is its gradient.

    1/beta log(m + exp(-beta (s - lam))) + s has the derivative 1 - e / (m + e) = m / (m + e) with e the exponential;
    GOAL leaves out the factor m, which is 1 in MS, where the pair itself is in its set.
    """
    sim, v = SIMILARITIES["random"], resolve("sig-ms_con", margin=None)
    expected = torch.zeros_like(sim)
    positives = sim.diagonal().tolist()
    for anchor, positive, negatives in literal.anchors_of(sim.tolist()):
        values = [sim[index].item() for index in negatives]
        chosen = values.index(max(values))
        others_pos, others_neg = literal.relative_sets(anchor, max(values), values, chosen, positives, v)
        pos = sim[positive].clone().requires_grad_()
        neg = torch.tensor(values[chosen], dtype=torch.float64, requires_grad=True)
        m_pos = torch.stack([torch.exp(v["alpha"] * (pos - r)) for r in others_pos]).mean().detach()
        m_neg = torch.stack([torch.exp(-v["beta"] * (neg - r)) for r in others_neg]).mean().detach()
        pull = torch.log(1 + m_pos * torch.exp(-v["alpha"] * (pos - v["lam"]))) / (v["alpha"] * m_pos)
        push = torch.log(1 + m_neg * torch.exp(v["beta"] * (neg - v["lam"]))) / (v["beta"] * m_neg)
        (pull + push).backward()
        expected[positive] += pos.grad
        expected[negatives[chosen]] += neg.grad
    torch.testing.assert_close(gradient(build("sig-ms_con", margin=None), sim), expected)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_neutral_set_gives_the_weights_without_it(name: str) -> None:
    pair, triplet = name.split("_")
    if not pair.endswith("-ms"):
        pytest.skip("has no relative sets")
    sim = SIMILARITIES["empty sets"]
    torch.testing.assert_close(gradient(build(name), sim), gradient(build(f"{pair[:-3]}_{triplet}"), sim))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**20), size=st.integers(2, 9), dtype=st.sampled_from([torch.float16, torch.bfloat16]))
@pytest.mark.parametrize("name", ["sig-ms_con", "lin-ms_cir", "con_nca"])
def test_half_precision_stays_finite_and_near(name: str, seed: int, size: int, dtype: torch.dtype) -> None:
    image, text = (e.to(dtype) for e in batch(size, mix=(seed % 11) / 10, seed=seed))
    found = embedding_gradients(build(name, variant="released"), image, text)
    expected = embedding_gradients(build(name, variant="released"), image.float(), text.float())
    for half, single in zip(found, expected, strict=True):
        assert half.dtype == dtype
        assert half.isfinite().all()
        torch.testing.assert_close(half, single.to(dtype))
