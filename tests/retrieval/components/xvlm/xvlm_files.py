"""Checkpoint files with the names and shapes that X-VLM's code gives them, in the size of a test."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

DEPTHS, HEADS, WIDTH, DIM = (1, 1, 2, 1), (1, 2, 4, 8), 8, 6
TEXT, HIDDEN, LAYERS = 12, 20, 12
"""Widths of the text layers, and how many there are: the last six attend to an image."""


def linear(name: str, given: int, width: int, bias: bool = True) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width, given)
    if bias:
        yield f"{name}.bias", (width,)


def norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def vision(window: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "vision_encoder.patch_embed.proj.weight", (WIDTH, 3, 4, 4)
    yield "vision_encoder.patch_embed.proj.bias", (WIDTH,)
    yield from norm("vision_encoder.patch_embed.norm", WIDTH)
    for stage, (depth, heads) in enumerate(zip(DEPTHS, HEADS, strict=True)):
        width, grid = WIDTH * 2**stage, window * 2 ** (3 - stage)
        for block in range(depth):
            name = f"vision_encoder.layers.{stage}.blocks.{block}"
            yield from norm(f"{name}.norm1", width)
            yield f"{name}.attn.relative_position_bias_table", ((2 * window - 1) ** 2, heads)
            yield f"{name}.attn.relative_position_index", (window**2, window**2)
            yield from linear(f"{name}.attn.qkv", width, 3 * width)
            yield from linear(f"{name}.attn.proj", width, width)
            yield from norm(f"{name}.norm2", width)
            yield from linear(f"{name}.mlp.fc1", width, 4 * width)
            yield from linear(f"{name}.mlp.fc2", 4 * width, width)
            if block % 2 and grid > window:
                yield f"{name}.attn_mask", ((grid // window) ** 2, window**2, window**2)
        if stage < 3:
            yield from linear(f"vision_encoder.layers.{stage}.downsample.reduction", 4 * width, 2 * width, bias=False)
            yield from norm(f"vision_encoder.layers.{stage}.downsample.norm", 4 * width)
    yield from norm("vision_encoder.norm", 8 * WIDTH)


def text(prefix: str, words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{prefix}embeddings.position_ids", (1, 512)
    for name, rows in {"word": words, "position": 512, "token_type": 2}.items():
        yield f"{prefix}embeddings.{name}_embeddings.weight", (rows, TEXT)
    yield from norm(f"{prefix}embeddings.LayerNorm", TEXT)
    for layer in range(LAYERS):
        name = f"{prefix}encoder.layer.{layer}"
        contexts = {"attention": TEXT} | ({"crossattention": 8 * WIDTH} if layer >= 6 else {})
        for attention, context in contexts.items():
            for part, given in {"query": TEXT, "key": context, "value": context}.items():
                yield from linear(f"{name}.{attention}.self.{part}", given, TEXT)
            yield from linear(f"{name}.{attention}.output.dense", TEXT, TEXT)
            yield from norm(f"{name}.{attention}.output.LayerNorm", TEXT)
        yield from linear(f"{name}.intermediate.dense", TEXT, HIDDEN)
        yield from linear(f"{name}.output.dense", HIDDEN, TEXT)
        yield from norm(f"{name}.output.LayerNorm", TEXT)


def heads(pretrained: bool, words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from linear("vision_proj", 8 * WIDTH, DIM)
    yield from linear("text_proj", TEXT, DIM)
    yield "temp", ()
    yield from linear("itm_head.0", TEXT, 2 * TEXT)
    yield from norm("itm_head.1", 2 * TEXT)
    yield from linear("itm_head.3", 2 * TEXT, 2)
    if pretrained:
        yield from linear("bbox_head.0", TEXT, 2 * TEXT)
        yield from norm("bbox_head.1", 2 * TEXT)
        yield from linear("bbox_head.3", 2 * TEXT, 4)
        yield "text_encoder.cls.predictions.bias", (words,)
        yield from linear("text_encoder.cls.predictions.transform.dense", TEXT, TEXT)
        yield from norm("text_encoder.cls.predictions.transform.LayerNorm", TEXT)
        yield from linear("text_encoder.cls.predictions.decoder", TEXT, words)


def tensors(*, pretrained: bool, words: int, window: int) -> dict[str, Tensor]:
    """The state dict of a model that was pre-trained, or fine-tuned for retrieval."""
    prefix = "text_encoder.bert." if pretrained else "text_encoder."
    shapes = dict([*vision(window), *text(prefix, words), *heads(pretrained, words)])
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def save(path: Path, weights: Mapping[str, Tensor]) -> Path:
    """Write them as the authors' code does: beside the configuration of the training."""
    torch.save({"model": dict(weights), "config": {"image_res": 384, "betas": [0.9, 0.98], "use_swin": True}}, path)
    return path
