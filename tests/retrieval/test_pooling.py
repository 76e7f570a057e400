"""Poolings: each equals its literal version, member by member, and padding never counts."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from retrieval.encoders.pooling import POOLING, AdPool, Gpo, Pooling, positions
from retrieval.encoders.recurrent import PaddedGru

DIM, K = 6, 2
OF_SETS = [name for name in POOLING if name != "none"]
"""All that make one vector of a set."""


def pooling(name: str) -> Pooling:
    """The pooling with weights that are not all alike, in float64."""
    torch.manual_seed(0)
    made = POOLING[name](DIM, K)  # type: ignore[index]
    return made.double() if isinstance(made, nn.Module) else made


def test_a_gru_computes_in_float32_under_autocast() -> None:
    """cuDNN's would run in float16, whose gradients vanish without a scale on the loss."""
    gru, lengths = PaddedGru(4, 3, bidirectional=True), torch.tensor([2, 5, 1])
    values = torch.randn(3, 5, 4)
    expected = gru.states(values, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert gru.states(values.bfloat16(), lengths).dtype == torch.float32
        torch.testing.assert_close(gru.states(values, lengths), expected, atol=0, rtol=0)
        torch.testing.assert_close(gru.last(values, lengths)[1], expected[1, 4, :3], atol=0, rtol=0)


def literal(name: str, made: Pooling, members: Tensor) -> Tensor:
    """One set (n, d), one dimension at a time."""
    n, d = members.shape
    columns = [members[:, j].tolist() for j in range(d)]
    if name == "mean":
        return torch.tensor([sum(column) / n for column in columns])
    if name == "max":
        return torch.tensor([max(column) for column in columns])
    if name == "kmax":
        return torch.tensor([sum(sorted(column)[-K:]) / min(K, n) for column in columns])
    soft = [
        sum(x * math.exp(x) for x in column) / sum(math.exp(x) for x in column)
        for column in columns
    ]  # fmt: skip
    if name == "softmax":
        return torch.tensor(soft)
    ordered = torch.tensor([sorted(column, reverse=True) for column in columns], dtype=torch.float64).T
    if name == "gpo":
        assert isinstance(made, Gpo)
        states = made.gru(positions(n, made.WIDTH).double()[None])[0][0]
        theta = [float(made.score((state[: made.WIDTH] + state[made.WIDTH :]) / 2)) / 0.1 for state in states]
        total = sum(math.exp(t) for t in theta)
        return torch.stack([ordered[m] * math.exp(theta[m]) / total for m in range(n)]).sum(0)
    assert isinstance(made, AdPool), f"no literal version of pooling {name!r}: write its sum over members above"
    scores = torch.stack([made.weigh(ordered[m]) for m in range(n)])
    scores = scores.clamp(min=0) if name == "adpool-released" else scores
    token = (ordered * scores.exp() / scores.exp().sum(0)).sum(0)
    parts = [token, torch.tensor(soft, dtype=torch.float64)]
    weights = [math.exp(float(made.balance(part))) for part in parts]
    return (weights[0] * parts[0] + weights[1] * parts[1]) / sum(weights)


@pytest.mark.parametrize("name", OF_SETS)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_it_equals_the_literal_sum_over_members(name: str, seed: int, sizes: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(sizes), 7, DIM, generator=generator, dtype=torch.float64)
    present = torch.stack([torch.randperm(7, generator=generator) < size for size in sizes])
    made = pooling(name)
    with torch.no_grad():
        ours = made(values, present)
        for row, one in enumerate(ours):
            torch.testing.assert_close(one, literal(name, made, values[row][present[row]]).double())


@pytest.mark.parametrize("name", OF_SETS)
def test_what_is_not_present_has_no_part_and_no_gradient(name: str) -> None:
    values = torch.randn(3, 5, DIM, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).bool()
    pooling(name)(values, present).square().sum().backward()
    assert values.grad is not None
    assert values.grad[~present].eq(0).all()
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("name", OF_SETS)
def test_the_order_of_members_does_not_matter(name: str) -> None:
    values, present = torch.randn(2, 5, DIM, dtype=torch.float64), torch.ones(2, 5, dtype=torch.bool)
    made = pooling(name)
    torch.testing.assert_close(made(values, present), made(values[:, [3, 0, 4, 1, 2]], present))


def test_gpo_weights_depend_on_the_size_alone_and_sum_to_one() -> None:
    gpo = Gpo()
    weights = gpo.weights(6)[[0, 2, 5]]
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    assert weights[0].tolist() == [1, 0, 0, 0, 0, 0]
    torch.testing.assert_close(weights[1, :3], gpo.weights(3)[2])
