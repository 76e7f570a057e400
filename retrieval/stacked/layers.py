"""Layers of K models at once: weights stacked along a first axis, each product of matrices a batched one.

Values have that axis first too. What all models read is given without it to a layer that is `shared`. On a CPU no bit
of a model depends on who stands beside it: a batched product computes each matrix by itself.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def repeated(value: Tensor, count: int) -> Tensor:
    """`count` copies along a new first axis, each with the strides of `value`: a slice of it is as the one was."""
    stacked = value.new_empty(0).new_empty_strided((count, *value.shape), (value.numel(), *value.stride()))
    return stacked.copy_(value.detach())


def parameter(value: Tensor, count: int) -> nn.Parameter:
    """A parameter of `count` models, each starting as this one."""
    return nn.Parameter(repeated(value, count))


class Linear(nn.Module):
    """x W' + b for each model."""

    def __init__(self, one: nn.Linear, count: int, *, shared: bool) -> None:
        super().__init__()
        self.weight = parameter(one.weight, count)
        self.bias = None if one.bias is None else parameter(one.bias, count)
        self.shared = shared

    def forward(self, values: Float[Tensor, "*kb i"]) -> Float[Tensor, "k *b o"]:
        return linear(_of_all(values, len(self.weight)) if self.shared else values, self.weight, self.bias)


def linear(
    values: Float[Tensor, "k *b i"], weight: Float[Tensor, "k o i"], bias: Float[Tensor, "k o"] | None
) -> Float[Tensor, "k *b o"]:
    """x W' + b of each model."""
    rows = values.flatten(1, -2)
    if bias is None:
        return torch.bmm(rows, weight.mT).unflatten(1, values.shape[1:-1])
    return torch.baddbmm(bias[:, None], rows, weight.mT).unflatten(1, values.shape[1:-1])


def _of_all(values: Float[Tensor, "*b i"], count: int) -> Float[Tensor, "k *b i"]:
    return values.expand(count, *values.shape)


class Embedding(nn.Module):
    """Each model's own vectors of the same indices; index 0 is padding and never learns."""

    def __init__(self, one: nn.Embedding, count: int) -> None:
        super().__init__()
        assert one.padding_idx == 0
        self.weight = parameter(one.weight, count)

    def forward(self, ids: Int[Tensor, "b n"]) -> Float[Tensor, "k b n d"]:
        count, words, _ = self.weight.shape
        starts = torch.arange(0, count * words, words, device=ids.device)
        # The first model's padding stands for all: what it holds is never read.
        own = (ids + starts[:, None, None]).masked_fill(ids == 0, 0)
        return nn.functional.embedding(own, self.weight.flatten(0, 1), padding_idx=0)


class Dropout(nn.Module):
    """The same values left out of all models, which draw alike because they have one seed; drawn as by one of them."""

    def __init__(self, one: nn.Dropout) -> None:
        super().__init__()
        self.p = one.p

    def forward(self, values: Float[Tensor, "k *b"]) -> Float[Tensor, "k *b"]:
        if not (self.training and self.p):
            return values
        return values * nn.functional.dropout(torch.ones_like(values[0]), self.p)


class Conv(nn.Module):
    """A convolution without bias for each model, as one with a group for each of them."""

    def __init__(self, one: nn.Conv2d, count: int, *, shared: bool) -> None:
        super().__init__()
        assert one.bias is None
        self.weight = parameter(one.weight, count)
        self.stride, self.padding, self.shared = one.stride, one.padding, shared

    def forward(self, images: Float[Tensor, "*kb c h w"]) -> Float[Tensor, "k b o y x"]:
        if self.shared:
            wide = nn.functional.conv2d(images, self.weight.flatten(0, 1), None, self.stride, self.padding)
            return _apart(wide, len(self.weight))
        count = len(images)
        channels, weight = _together(images), self.weight.flatten(0, 1)
        return _apart(nn.functional.conv2d(channels, weight, None, self.stride, self.padding, groups=count), count)


class BatchNorm(nn.Module):
    """Batch norm for each model: weights and running statistics."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, one: nn.modules.batchnorm._BatchNorm, count: int) -> None:
        super().__init__()
        self.weight, self.bias = parameter(one.weight, count), parameter(one.bias, count)
        for name, value in one.named_buffers():
            self.register_buffer(name, repeated(value, count))
        assert one.momentum is not None
        self.momentum, self.eps = one.momentum, one.eps

    def normalized(self, values: Float[Tensor, "m c *hw"], model: int | slice) -> Float[Tensor, "m c *hw"]:
        """Over all axes but the second, which holds the channels of one model, or of several behind one another."""
        mean, var, weight, bias = (
            each[model].flatten() for each in (self.running_mean, self.running_var, self.weight, self.bias)
        )
        return nn.functional.batch_norm(values, mean, var, weight, bias, self.training, self.momentum, self.eps)


class ImageNorm(BatchNorm):
    """Batch norm of images for each model, as one over the channels of all."""

    def forward(self, images: Float[Tensor, "k b c h w"]) -> Float[Tensor, "k b c h w"]:
        self.num_batches_tracked += self.training
        return _apart(self.normalized(_together(images), slice(None)), len(images))


class VectorNorm(BatchNorm):
    """Batch norm of vectors for each model in turn: their channels do not stand side by side."""

    def forward(self, values: Float[Tensor, "k *b c"]) -> Float[Tensor, "k *b c"]:
        self.num_batches_tracked += self.training
        rows = values.flatten(1, -2).unbind()
        return torch.stack([self.normalized(own, k) for k, own in enumerate(rows)]).unflatten(1, values.shape[1:-1])


def _together(images: Float[Tensor, "k b c h w"]) -> Float[Tensor, "b kc h w"]:
    """The channels of all models behind one another: of what `_apart` gave, without a copy."""
    return images.transpose(0, 1).flatten(1, 2)


def _apart(channels: Float[Tensor, "b kc h w"], count: int) -> Float[Tensor, "k b c h w"]:
    return channels.unflatten(1, (count, -1)).transpose(0, 1)
