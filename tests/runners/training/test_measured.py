"""Where triplets lie, and the means of the weights that they get, against loops over anchors."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from goalgrid.objectives import build
from goalgrid.runners.training.measured import BINS, of_batches, weights_over_plane


def pairs_of(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(count)
    image, noise = (torch.randn(count, 6, generator=generator, dtype=torch.float64) for _ in "xy")
    return [(normalize(image), normalize(image + noise))]


@pytest.mark.parametrize("name", ["sig_cir", "sig-ms_nca", "unified"])
def test_means_and_density_equal_loops_over_the_anchors(name: str) -> None:
    batches = pairs_of(7) + pairs_of(5)
    objective = build(name)
    means, counts = of_batches(objective, batches)
    expected = [[0] * BINS for _ in range(BINS)]
    triplets, pushes = [], []
    for image, text in batches:
        sim = image @ text.T
        pushes.append(sim.exp().mean().item())
        for scores in (sim, sim.T):
            for row in range(len(scores)):
                s_pos, s_neg = (
                    scores[row, row].item(),
                    max(scores[row, c].item() for c in range(len(scores)) if c != row),
                )
                triplets.append((s_pos, s_neg))
                expected[int((s_pos + 1) * 20)][int((s_neg + 1) * 20)] += 1
    assert counts.tolist() == expected
    assert means["val_uniform"] == pytest.approx(math.log(sum(pushes) / 2))
    gap = torch.cat([image for image, _ in batches]).mean(0) - torch.cat([text for _, text in batches]).mean(0)
    assert means["val_gap"] == pytest.approx(gap.norm().item())
    if name == "unified":
        assert means.keys() == {"val_uniform", "val_gap"}
    if name == "sig_cir":
        w_tri = [1 / (1 + math.exp(-10 * (neg**2 - pos * (2 - pos)))) for pos, neg in triplets]
        w_pos = [1 / (1 + math.exp(2 * (pos - 0.5))) for pos, _ in triplets]
        assert means["val_w_tri"] == pytest.approx(sum(w_tri) / len(w_tri))
        assert means["val_w_pos"] == pytest.approx(sum(w_pos) / len(w_pos))
    if name == "sig-ms_nca":
        assert means.keys() >= {"val_m_pos", "val_m_neg", "val_w_neg"}


@pytest.mark.parametrize("name", ["sig_cir", "con_con", "unified", "adopt"])
def test_the_plane_holds_the_weight_of_each_bins_middle(name: str) -> None:
    plane = weights_over_plane(build(name))
    row, column = 25, 30
    pos, neg = ((place + 0.5) / 20 - 1 for place in (row, column))
    expected = {
        "sig_cir": 1 / (1 + math.exp(-10 * (neg**2 - pos * (2 - pos)))),
        "con_con": 1.0,
        "unified": 1 / (1 + math.exp(-60 * (neg - pos + 0.2))),
        "adopt": 20.0,
    }
    assert plane[row, column].item() == pytest.approx(expected[name])
