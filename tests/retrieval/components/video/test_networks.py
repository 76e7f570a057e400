"""CE, MMT and their mixture equal the loops of their code, and give a video the same vectors in any batch."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goalgrid.retrieval.components.video.networks import (
    CollaborativeExperts,
    ExpertTexts,
    Mixture,
    MultiModalTransformer,
    NetVlad,
)
from goalgrid.retrieval.components.video.settings import CeSettings, ExpertTextSettings, MixtureSettings, MmtSettings
from goalgrid.retrieval.scorers.sets import TokenSets
from tests.retrieval.components.video import literal

DIM, VIDEOS = 6, 5
CE = CeSettings(encoder="ce", experts={"b": 4, "a": 3, "c": 5}, tokens={"a": 4}, clusters={"a": 2})
MMT = MmtSettings(encoder="mmt", experts={"b": 4, "a": 3, "c": 5}, tokens=4, layers=2, heads=2, feed_forward=9)
MIXTURE = Mixture(MixtureSettings(kind="mixture"), 0, DIM)
Drawn = dict[str, list[tuple[Tensor, Tensor]]]


def drawn() -> Drawn:
    """By expert, vectors and times of every video; a and c saw nothing in some."""
    generator = torch.Generator().manual_seed(0)
    found: Drawn = {}
    for name, width in sorted(CE.experts.items()):
        counts = [0 if name != "b" and (video + width) % 3 == 0 else 1 + video % 4 for video in range(VIDEOS)]
        found[name] = [
            (torch.randn(count, width, generator=generator), torch.arange(count) * 9.5 - float(video == 1))
            for video, count in enumerate(counts)
        ]
    return found


def packed(settings: CeSettings | MmtSettings, given: Drawn) -> Tensor:
    """The same as a model reads it."""
    rows = []
    for video in range(VIDEOS):
        parts = []
        for read in settings.reads:
            vectors, times = given[read.name][video]
            block, seconds = torch.zeros(read.rows, read.width), torch.full((read.rows,), -1.0)
            begin = int(read.whole != "none")
            if len(vectors) and begin:
                block[0] = vectors.mean(0) if read.whole == "mean" else vectors.amax(0)
            if read.tokens:
                block[begin : begin + len(vectors)], seconds[begin : begin + len(vectors)] = vectors, times
            count = min(len(vectors), read.tokens) if len(vectors) else -1
            parts.append(torch.cat([block.flatten(), seconds, torch.tensor([float(count)])]))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def stirred(module: nn.Module) -> Any:
    """The network with weights and statistics that are nowhere 0 or 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for value in [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]:
            value.copy_(torch.rand_like(value) * 0.8 + (0.1 if value.ndim == 1 else -0.4))
    return module


@pytest.mark.parametrize("training", [True, False])
def test_net_vlad_equals_the_loop(training: bool) -> None:
    pool = stirred(NetVlad(3, 1, 4)).train(training)
    other, tokens = copy.deepcopy(pool), torch.randn(2, 5, 4)
    torch.testing.assert_close(pool(tokens), literal.net_vlad(other, tokens))
    torch.testing.assert_close(pool.state_dict(), other.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_collaborative_experts_equal_the_loop(training: bool) -> None:
    """Values, gradients, and the running statistics of the batch norm that is called pair by pair."""
    given, network = drawn(), stirred(CollaborativeExperts(CE, (1,), DIM, {})).train(training)
    other = copy.deepcopy(network)
    ours = network(packed(CE, given))
    experts, there = {}, {}
    for place, read in enumerate(CE.reads):
        vectors = [vectors for vectors, _ in given[read.name]]
        filled = torch.stack([nn.functional.pad(part, (0, 0, 0, 4 - len(part))) for part in vectors])
        whole = torch.stack([part.mean(0) if len(part) else torch.zeros(read.width) for part in vectors])
        found = literal.net_vlad(other.pools[read.name], filled) if read.tokens else whole
        experts[read.name] = nn.functional.normalize(other.project[place](found), dim=1)
        there[read.name] = torch.tensor([float(len(part) > 0) for part in vectors])
    theirs = literal.collaborative_gating(other, experts, there)
    torch.testing.assert_close(ours.vectors, theirs)
    assert ours.whole is not None
    torch.testing.assert_close(ours.whole, torch.stack([there[name] for name in sorted(there)], dim=1))
    weight = torch.linspace(-1, 1, theirs.numel()).view_as(theirs)
    for scores in (ours.vectors, theirs):
        (weight * scores).sum().backward()
    for (name, one), two in zip(network.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, msg=name, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(network.named_buffers()), dict(other.named_buffers()))


def test_the_multi_modal_transformer_equals_the_layers_of_bert() -> None:
    given, network = drawn(), stirred(MultiModalTransformer(MMT, (1,), DIM, {})).eval()
    torch.testing.assert_close(
        network(packed(MMT, given)).vectors, literal.mmt(network, given, 2), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", [CollaborativeExperts, MultiModalTransformer], ids=["ce", "mmt"])
def test_a_video_has_the_same_vectors_in_any_batch(kind: Any) -> None:
    settings = CE if kind is CollaborativeExperts else MMT
    network, videos = stirred(kind(settings, (1,), DIM, {})).eval(), packed(settings, drawn())
    whole = network(videos)
    for row in range(VIDEOS):
        torch.testing.assert_close(network(videos[row : row + 1]).vectors, whole[row : row + 1].vectors)


@pytest.mark.parametrize("clusters", [0, 3])
def test_a_caption_has_the_same_vectors_beside_any_other(clusters: int) -> None:
    """NetVLAD counts the zeros that fill a caption up: as many in any batch. Its shares add up to 1."""
    bert = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    told = {"weights": "random", "architecture": bert, "frozen": True, "experts": 3, "clusters": clusters, "tokens": 6}
    texts = stirred(ExpertTexts(ExpertTextSettings.model_validate({"encoder": "gated", **told}), 8, DIM, {})).eval()
    states, lengths = torch.randn(4, 9, 8), torch.tensor([3, 9, 6, 1])
    whole = texts(states, lengths)
    torch.testing.assert_close(whole.whole.sum(1), torch.ones(4))
    for row, length in enumerate(lengths.tolist()):
        alone = texts(states[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(alone.vectors, whole.vectors[row : row + 1])
        torch.testing.assert_close(alone.whole, whole.whole[row : row + 1])
    if clusters:
        filled = states * (torch.arange(9) < lengths[:, None])[..., None]
        caption = literal.net_vlad(texts.pool, filled[:, :6])
        torch.testing.assert_close(texts.units[1](caption), whole.vectors[:, 1])


def test_the_mixture_equals_the_loop_over_pairs() -> None:
    generator = torch.Generator().manual_seed(1)
    videos, captions = (torch.randn(count, 3, DIM, generator=generator, requires_grad=True) for count in (4, 5))
    there = torch.tensor([[1.0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]])
    weights = torch.rand(5, 3, generator=generator).softmax(1).requires_grad_()
    images, texts = (
        TokenSets(part, torch.full((len(part),), 3), own) for part, own in ((videos, there), (captions, weights))
    )
    ours, theirs = MIXTURE(images, texts), literal.mixture(videos, there, captions, weights)
    torch.testing.assert_close(ours, theirs)
    direction = torch.linspace(-1, 1, theirs.numel()).view_as(theirs)
    parts = (videos, captions, weights)
    for one, two in zip(*(torch.autograd.grad((direction * s).sum(), parts) for s in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, two)


def test_a_video_in_which_no_expert_saw_anything_scores_0() -> None:
    images = TokenSets(torch.ones(1, 2, 3), torch.tensor([2]), torch.zeros(1, 2))
    assert MIXTURE(images, TokenSets(torch.ones(1, 2, 3), torch.tensor([2]), torch.full((1, 2), 0.5))).tolist() == [
        [0.0]
    ]


def test_numbers_of_experts_that_differ_are_one_message() -> None:
    from goalgrid.grid.settings.model import ModelSettings

    text = {"encoder": "gated", "weights": "random", "architecture": {"model_type": "bert"}, "experts": 2}
    video = CE.model_dump()
    with pytest.raises(ValueError, match=r"text.experts = 2, but image.experts has 3"):
        ModelSettings.model_validate({"image": video, "text": text, "scorer": {"kind": "mixture"}})
    with pytest.raises(ValueError, match="must be used together"):
        ModelSettings.model_validate({"image": video, "text": {"encoder": "gru"}})
    with pytest.raises(ValueError, match="unknown expert 'aa'"):
        CeSettings.model_validate({**video, "tokens": {"aa": 3}, "clusters": {"aa": 2}})
