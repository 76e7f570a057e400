"""Poolings: each equals its literal version, member by member, and padding never counts."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.retrieval.encoders.pooling import POOLING, AdaPool, AdPool, Gpo, Lip, MeanOf, Pooling, positions, soft_max
from goalgrid.retrieval.encoders.reasoning import Gcn, NormOfPresent, PaddedGru, SelfAttention, Seq2Seq

DIM, K = 6, 2
OF_SETS = [name for name in POOLING if name != "none"]
"""All that make one vector of a set."""


def pooling(name: str, **settings: object) -> Pooling:
    """The evaluated pooling with weights that are not all alike, in float64."""
    torch.manual_seed(0)
    made = POOLING[name](DIM, PoolingSettings.model_validate({"pooling": name, "pool_k": K, **settings}))
    if not isinstance(made, nn.Module):
        return made
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    for part in made.modules():
        if isinstance(part, NormOfPresent):
            part.mean.normal_()
            part.var.uniform_(0.5, 2)
    return made.double().eval()


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
    if name in ("first", "last"):
        return members[0 if name == "first" else n - 1]
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
    if isinstance(made, Lip):
        logits = members @ made.weigh.weight.T
        normal = (logits - logits.mean(0)) / (logits.var(0, correction=0) + 1e-5).sqrt()
        gain = (12 * torch.sigmoid(normal * made.scale + made.shift)).exp()
        return (gain * members).sum(0) / gain.sum(0)
    if isinstance(made, AdaPool):
        near = torch.tensor([[2 * abs(x * sum(column) / n) / (x**2 + (sum(column) / n) ** 2) for x in column]
                             for column in columns]).T.exp()  # fmt: skip
        share = min(max(float(made.balance), 0.0), 1.0)
        return share * (near * members).sum(0) / near.sum(0) + (1 - share) * torch.tensor(soft)
    if isinstance(made, Seq2Seq):
        return (made.forwards(members)[1][0] + made.backwards(members.flip(0))[1][0]) / 2
    if isinstance(made, MeanOf):
        return LITERAL[type(made.network)](made.network, members).mean(0)
    assert isinstance(made, AdPool), f"no literal version of pooling {name!r}: write its sum over members above"
    scores = torch.stack([made.weigh(ordered[m]) for m in range(n)])
    scores = scores.clamp(min=0) if name == "adpool-released" else scores
    token = (ordered * scores.exp() / scores.exp().sum(0)).sum(0)
    parts = [token, torch.tensor(soft, dtype=torch.float64)]
    assert made.balance is not None
    weights = [math.exp(float(made.balance(part))) for part in parts]
    return (weights[0] * parts[0] + weights[1] * parts[1]) / sum(weights)


def literal_gcn(network: Gcn, members: Tensor) -> Tensor:
    """Each member reads each, one after the other; the batch norm is torch's."""
    for block in network.blocks:
        n, norm = len(members), block.norm
        read = torch.stack([
            sum((block.theta(x) @ block.phi(other) / n * block.g(other) for other in members), torch.zeros(DIM))
            for x in members
        ])  # fmt: skip
        out = nn.functional.batch_norm(block.out(read), norm.mean, norm.var, norm.weight, norm.bias, False)
        members = members + out
    return members


def literal_attention(network: SelfAttention, members: Tensor) -> Tensor:
    """Two heads, for six values: each takes three of them."""
    layer = network.layer
    normal = layer.norm1(members)
    query, key, value = (normal @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, 1)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        weights = (query[:, part] @ key[:, part].T / 3**0.5).exp()
        heads.append(weights @ value[:, part] / weights.sum(1, keepdim=True))
    members = members + layer.self_attn.out_proj(torch.cat(heads, 1))
    return members + layer.linear2(layer.linear1(layer.norm2(members)).relu())


def test_a_graph_convolution_has_no_weight_that_its_batch_norm_takes_out_again() -> None:
    maps, norm = 4 * DIM * DIM, 2 * DIM
    assert sum(weight.numel() for weight in Gcn(DIM).parameters()) == Gcn.BLOCKS * (maps + 3 * DIM + norm)


LITERAL = {Gcn: literal_gcn, SelfAttention: literal_attention}


@pytest.mark.parametrize("name", OF_SETS)
@settings(max_examples=10)
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


@pytest.mark.parametrize("name", [name for name in OF_SETS if name not in ("seq2seq", "first", "last")])
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


def test_a_fixed_balance_weighs_the_two_levels_of_adpool_and_a_random_balance_stays_as_drawn() -> None:
    values, present = torch.randn(2, 5, DIM, dtype=torch.float64), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    token = pooling("adpool", pool_balance=1.0)(values, present)
    for share in (0.0, 0.25, 0.75):
        found = pooling("adpool", pool_balance=share)(values, present)
        torch.testing.assert_close(found, share * token + (1 - share) * soft_max(values, present))
    drawn = [AdPool(DIM, "random", per_dimension=False) for _ in range(2)]
    assert 0 < drawn[0].share != drawn[1].share
    assert drawn[0].state_dict()["share"] == drawn[0].share


def test_lip_and_gcn_start_as_the_mean() -> None:
    values, present = torch.randn(2, 5, DIM), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    for name in ("lip", "gcn"):
        made = POOLING[name](DIM, PoolingSettings(pooling=name))
        torch.testing.assert_close(made(values, present), POOLING["mean"](DIM, PoolingSettings())(values, present))


def test_graph_convolutions_learn_with_the_batch_norm_of_the_present_members() -> None:
    """As torch's batch norm of all of them in one; more padding changes neither the vectors nor what is remembered."""
    norm, theirs = NormOfPresent(DIM).double(), nn.BatchNorm1d(DIM).double()
    values, present = (
        torch.randn(3, 5, DIM, dtype=torch.float64),
        torch.tensor([[1] * 5, [1, 0, 1, 0, 0], [0, 1] + [0] * 3]),
    )
    present = present.bool()
    found = norm(values, present)
    torch.testing.assert_close(found[present], theirs(values[present]))
    torch.testing.assert_close((norm.mean, norm.var), (theirs.running_mean, theirs.running_var))
    short, long = (pooling("gcn") for _ in range(2))
    for made in (short, long):
        assert isinstance(made, nn.Module)
        made.train()
    padded = nn.functional.pad(values, (0, 0, 0, 2), value=9.0), nn.functional.pad(present, (0, 2))
    torch.testing.assert_close(short(values, present), long(*padded))
    torch.testing.assert_close(short.state_dict(), long.state_dict())  # type: ignore[attr-defined]
