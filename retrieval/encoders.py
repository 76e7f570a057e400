"""Image and text encoders: from pixels, features or word indices to one vector each, before normalisation."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from grid.settings import BiGruSettings, BowSettings, CnnSettings, GruSettings, LinearSettings
from retrieval.pooling import POOLING, Pooling


class Cnn(nn.Module):
    """Convolutions that halve the side and double the channels, pooled over the grid that is left, then linear."""

    def __init__(self, settings: CnnSettings, shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = shape[0]
        for layer in range(settings.layers):
            width = settings.channels * 2**layer
            blocks += [
                nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.body = nn.Sequential(*blocks).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.project = nn.Linear(channels, dim)
        self.pool = POOLING[settings.pooling]
        self.flip = settings.flip

    def forward(self, images: Tensor) -> Float[Tensor, "b d"]:
        """From uint8 pixels (b, 3, h, w)."""
        pixels = images.float() / 127.5 - 1
        if self.flip and self.training:
            mirrored = torch.rand(len(pixels), device=pixels.device) < 0.5
            pixels = torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)
        cells = self.body(pixels.contiguous(memory_format=torch.channels_last)).flatten(2).transpose(1, 2)
        return _projected(self.project, self.pool, cells)


class Linear(nn.Module):
    """One linear map on each feature vector, pooled over regions where there are any. VSE++ on precomputed features."""

    def __init__(self, settings: LinearSettings, shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.normalize = settings.normalize
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(shape[-1], dim)
        self.pool = POOLING[settings.pooling]

    def forward(self, features: Tensor) -> Float[Tensor, "b d"]:
        """From features (b, d) or (b, n, d) of any float type."""
        values = features.float()
        if self.normalize:
            values = nn.functional.normalize(values, dim=-1)
        values = self.dropout(values)
        return self.project(values) if values.ndim == 2 else _projected(self.project, self.pool, values)


class Bow(nn.Module):
    """Word embeddings, pooled, then linear: a caption is the set of its words."""

    def __init__(self, settings: BowSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(settings.word_dim, dim)
        self.pool = POOLING[settings.pooling]

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        return self.project(self.pool(self.dropout(self.embed(ids)), _present(ids, lengths)))


class Gru(nn.Module):
    """Last state of a one-layer GRU. VSE++ §3.2."""

    def __init__(self, settings: GruSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = nn.GRU(settings.word_dim, dim, batch_first=True)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        packed = pack_padded_sequence(
            self.dropout(self.embed(ids)), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1][0]


class BiGru(nn.Module):
    """States of a one-layer GRU in both directions, averaged over directions and pooled over words."""

    def __init__(self, settings: BiGruSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = nn.GRU(settings.word_dim, dim, batch_first=True, bidirectional=True)
        self.pool = POOLING[settings.pooling]

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        packed = pack_padded_sequence(
            self.dropout(self.embed(ids)), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=ids.shape[1])
        forward, backward = states.chunk(2, dim=-1)
        return self.pool((forward + backward) / 2, _present(ids, lengths))


def _projected(project: nn.Linear, pool: Pooling, values: Float[Tensor, "b n k"]) -> Float[Tensor, "b d"]:
    """Project every member and pool them; a mean is taken first, since it commutes with a linear map."""
    if pool is POOLING["mean"]:
        return project(values.mean(dim=1))
    return pool(project(values), torch.ones(values.shape[:2], dtype=torch.bool, device=values.device))


def _embedding(words: int, dim: int) -> nn.Embedding:
    """Word embeddings, uniform in ±0.1, as VSE++ starts them."""
    embedding = nn.Embedding(words, dim, padding_idx=0)
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    return embedding


def _present(ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Tensor:
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


IMAGE_ENCODERS: dict[str, Callable[[Any, tuple[int, ...], int], nn.Module]] = {"cnn": Cnn, "linear": Linear}
TEXT_ENCODERS: dict[str, Callable[[Any, int, int], nn.Module]] = {"bow": Bow, "gru": Gru, "bigru": BiGru}
