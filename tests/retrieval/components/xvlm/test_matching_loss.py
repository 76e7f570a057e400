"""Image-text matching: the loss equals loops over pairs, and negatives are drawn as X-VLM draws them."""

import math

import pytest
import torch
from torch import Tensor

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.components.xvlm.fusion import FusionEncoder, matching_loss, negatives
from goalgrid.retrieval.components.xvlm.network import Xvlm
from tests.retrieval.components.xvlm.test_xvlm import MODEL, WORDS

OWNERS = torch.tensor([3, 0, 3, 1, 2])
TEMPERATURE = torch.tensor(0.07)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def fusion() -> FusionEncoder:
    made = Xvlm(ModelSettings.model_validate(MODEL), (3, 64, 64), WORDS, seed=0).eval().fusion
    assert made is not None
    return made


def parts(owners: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, lengths, tokens and similarities of so many pairs."""
    count = len(owners)
    lengths = torch.arange(count) % 3 + 2
    return random(count, 4, 12), lengths, random(count, 5, 64, seed=1), random(count, count, seed=2) * 0.1


@pytest.mark.parametrize("owners", [OWNERS, torch.zeros(3, dtype=torch.int64)], ids=["several", "one image"])
def test_the_loss_equals_the_literal_loops(owners: Tensor, fusion: FusionEncoder) -> None:
    states, lengths, tokens, sim = parts(owners)
    torch.manual_seed(5)
    image_of, text_of = negatives(sim.T, owners, TEMPERATURE), negatives(sim, owners, TEMPERATURE)
    triples = [(pair, pair, 1) for pair in range(len(owners))]
    if len(owners.unique()) > 1:
        triples += [(pair, int(image_of[pair]), 0) for pair in range(len(owners))]
        triples += [(int(text_of[pair]), pair, 0) for pair in range(len(owners))]
    losses = []
    for caption, image, together in triples:
        logits = fusion(states[[caption]], lengths[[caption]], tokens[[image]])[0]
        losses.append(logits.exp().sum().log() - logits[together])
    torch.manual_seed(5)
    found = matching_loss(fusion, states, lengths, tokens, sim, owners, TEMPERATURE)
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_negatives_are_drawn_at_the_first_temperature_of_x_vlm(fusion: FusionEncoder) -> None:
    assert fusion.temperature.item() == pytest.approx(0.07, rel=1e-6)


def test_negatives_are_drawn_by_their_similarity_and_never_of_the_same_image() -> None:
    sim = random(5, 5, seed=2) * 0.1
    torch.manual_seed(0)
    drawn = torch.stack([negatives(sim, OWNERS, TEMPERATURE) for _ in range(4000)])
    for row in range(5):
        weights = [
            0.0
            if OWNERS[row] == OWNERS[column]
            else float((sim[row, column] / 0.07).exp() / (sim[row] / 0.07).exp().sum()) + 1e-5
            for column in range(5)
        ]
        for column in range(5):
            expected = weights[column] / sum(weights)
            assert float((drawn[:, row] == column).float().mean()) == pytest.approx(
                expected, abs=0.03 if expected else 0
            )


def test_a_pair_of_no_similarity_is_drawn_as_one_in_a_hundred_thousand_would_be() -> None:
    """Beside the pair itself the shares are 0.00003 and 0: with X-VLM's 1e-5 added, 4 to 1."""
    sim = torch.tensor([[0.0, 0.07 * math.log(3e-5), -3.0]]).expand(3, 3).clone()
    torch.manual_seed(0)
    drawn = torch.stack([negatives(sim, torch.arange(3), TEMPERATURE)[0] for _ in range(2000)])
    assert float((drawn == 1).float().mean()) == pytest.approx(0.8, abs=0.04)
