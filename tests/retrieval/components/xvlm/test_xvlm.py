"""X-VLM's networks: equal to those of `transformers` where it has them, and to a literal version where it has not."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.components.xvlm.fusion import FusionEncoder
from goalgrid.retrieval.components.xvlm.network import Xvlm

transformers = pytest.importorskip("transformers")

DEPTHS, HEADS = [2, 2, 3, 1], [1, 2, 4, 8]
IMAGE = {"encoder": "swin", "size": 64, "width": 8, "depths": DEPTHS, "heads": HEADS, "window": 2}
TEXT = {"encoder": "bert-layers", "pieces": "random", "layers": 2, "width": 12, "heads": 3, "hidden": 20}
MODEL = {"image": IMAGE, "text": TEXT, "dim": 6, "fusion": {"kind": "x-vlm", "weights": "random", "layers": 2}}
WORDS = 30


@pytest.fixture(scope="module")
def model() -> Xvlm:
    """X-VLM in the size of a test, in evaluation, with weights large enough that every part counts."""
    made = Xvlm(ModelSettings.model_validate(MODEL), (3, 64, 64), WORDS, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return made.eval()


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return torch.randint(0, 256, (3, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def captions() -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, WORDS, (3, 7), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([7, 4, 2])
    return ids * (torch.arange(7) < lengths[:, None]), lengths


@torch.no_grad()
def test_swin_equals_that_of_transformers(model: Xvlm, pixels: Tensor) -> None:
    config = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=8, depths=DEPTHS, num_heads=HEADS, window_size=2
    )
    theirs, ours = transformers.SwinModel(config).eval(), model.image.backbone.state_dict()
    for name, weight in theirs.named_parameters():
        weight.copy_(swin_weight(name, ours))
    images = (pixels.float() - model.image.mean) / model.image.deviation
    expected, tokens = theirs(images), model.image.tokens(pixels)
    torch.testing.assert_close(tokens[:, 1:], expected.last_hidden_state, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tokens[:, 0], expected.pooler_output, rtol=1e-5, atol=1e-5)


def swin_weight(name: str, ours: dict[str, Tensor]) -> Tensor:
    """What `transformers` calls so, among the weights of ours."""
    for place, part in enumerate(("q_proj", "k_proj", "v_proj")):
        if part in name:
            prefix, _, kind = name.partition(f"attention.{part}")
            return renamed(f"{prefix}attn.qkv{kind}", ours).chunk(3)[place]
    return renamed(name, ours)


def renamed(name: str, ours: dict[str, Tensor]) -> Tensor:
    for theirs, own in {
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "embeddings.norm": "patch_embed.norm",
        "encoder.layers": "layers",
        "attention.o_proj": "attn.proj",
        "attention.relative_position_bias.": "attn.",
        "layernorm_before": "norm1",
        "layernorm_after": "norm2",
        "layernorm.": "norm.",
    }.items():
        name = name.replace(theirs, own)
    return ours[name]


@torch.no_grad()
def test_the_text_layers_equal_bert(model: Xvlm, captions: tuple[Tensor, Tensor]) -> None:
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20, "num_hidden_layers": 2}
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=WORDS, **sizes), add_pooling_layer=False).eval()
    ours = {
        name.replace("layers.", "encoder.layer."): value for name, value in model.text.backbone.state_dict().items()
    }
    assert not bert.load_state_dict(ours, strict=True).missing_keys
    ids, lengths = captions
    present = torch.arange(7) < lengths[:, None]
    expected = bert(input_ids=ids, attention_mask=present.long()).last_hidden_state
    torch.testing.assert_close(model.text.states(ids, lengths)[present], expected[present], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_fusion_equals_the_literal_version(model: Xvlm, pixels: Tensor, captions: tuple[Tensor, Tensor]) -> None:
    tokens, states = model.image.tokens(pixels), model.text.states(*captions)
    assert model.fusion is not None
    found = model.fusion(states, captions[1], tokens)
    for row, length in enumerate(captions[1].tolist()):
        torch.testing.assert_close(
            found[row], literal(model.fusion, states[row, :length], tokens[row]), rtol=1e-5, atol=1e-5
        )


def literal(fusion: FusionEncoder, states: Tensor, tokens: Tensor) -> Tensor:
    """Logits of one pair: a caption's states without padding, and an image's tokens."""
    for layer in fusion.layers:
        part: Any = layer
        for attention, context in ((part.attention, None), (part.crossattention, tokens)):
            states = attended(attention, states, states if context is None else context)
        inner = part.intermediate["dense"](states)
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        states = part.output["LayerNorm"](part.output["dense"](inner) + states)
    return fusion.head(states[0])


def attended(attention: Any, states: Tensor, context: Tensor) -> Tensor:
    rows, width = [], states.shape[1] // attention.heads
    query, key, value = (attention.self[name] for name in ("query", "key", "value"))
    for state in states:
        parts = []
        for head in range(attention.heads):
            own = slice(head * width, (head + 1) * width)
            scores = torch.stack([query(state)[own] @ key(token)[own] / math.sqrt(width) for token in context])
            shares = scores.softmax(0)
            parts.append(sum(share * value(token)[own] for share, token in zip(shares, context, strict=True)))
        rows.append(torch.cat(parts))
    return attention.output["LayerNorm"](attention.output["dense"](torch.stack(rows)) + states)


def test_every_weight_learns_and_a_path_is_dropped_for_some_images(
    pixels: Tensor, captions: tuple[Tensor, Tensor]
) -> None:
    content = {**MODEL, "image": {**IMAGE, "drop_path": 0.9}, "text": {**TEXT, "dropout": 0.0}}
    made = Xvlm(ModelSettings.model_validate(content), (3, 64, 64), WORDS, seed=0).train()
    block: Any = made.image.backbone.layers[-1]["blocks"][0]
    torch.manual_seed(0)
    branch = block.drop_path(torch.ones(1000, 1, 1))
    assert branch.unique().tolist() == [0.0, pytest.approx(10.0)]
    assert 60 < int((branch > 0).sum()) < 140
    for part in made.modules():
        if type(part).__name__ == "DropPath":
            setattr(part, "share", 0.0)  # noqa: B010
    assert made.fusion is not None
    tokens, states = made.image.tokens(pixels), made.text.states(*captions)
    joint = made.image.project(tokens[:, 0]).square().sum() + made.text.project(states[:, 0]).square().sum()
    (joint + nn.functional.cross_entropy(made.fusion(states, captions[1], tokens), torch.tensor([0, 1, 1]))).backward()
    assert [name for name, weight in made.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("image", {"heads": [1, 2, 4]}, "heads has 3 stages, but depths has 4"),
        ("image", {"heads": [3, 2, 4, 8]}, "in stage 1, the width 8 is not divisible by 3 heads"),
        ("image", {"size": 72}, "size = 72: stage 2 has windows of 2 x 8 pixels; use a multiple of 64"),
        ("text", {"heads": 5}, "the width 12 is not divisible by 5 heads"),
        ("text", {"encoder": "gru"}, "set model.text.encoder = bert-layers, now gru"),
    ],
)
def test_sizes_that_do_not_fit_are_one_message(part: str, values: dict[str, Any], said: str) -> None:
    own = {"encoder": "gru"} if "encoder" in values else {**MODEL[part], **values}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=said):
        ModelSettings.model_validate({**MODEL, part: own})
