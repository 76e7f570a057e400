"""Networks that relate the members of sets and sequences: graph convolutions, self-attention, GRUs.

VSE+2AD compares poolings based on them with its own, but does not specify depth and heads; these are our choice.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import handle_torch_function, has_torch_function_unary

from goalgrid.retrieval.scorers.sets import sent


class Gcn(nn.Module):
    """Four graph convolutions of VSRN: x <- x + BN(W R g(x)), R = theta(x) phi(x)' / n, without a softmax.

    All maps are linear. Batch norm weights are initialised to 0, so that the network starts as the identity. Li et al.,
    ICCV 2019, §3.1, without the GRU over the members.
    """

    BLOCKS = 4

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([GraphConvolution(dim) for _ in range(self.BLOCKS)])

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        for block in self.blocks:
            values = block(values, present)
        return values


class GraphConvolution(nn.Module):
    """x + BN(W R g(x)), over the present members."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim, bias=False)  # a batch norm takes a bias out again
        self.norm = NormOfPresent(dim)
        nn.init.zeros_(self.norm.weight)

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        sizes = present.sum(dim=1)[:, None, None]
        relations = self.theta(values) @ self.phi(values).transpose(1, 2) / sizes
        read = relations @ (self.g(values) * present[..., None])
        further: Tensor = self.norm(self.out(read), present)
        return values + further


class NormOfPresent(nn.Module):
    """Batch norm per dimension, with mean and variance over the present members of all sets in the batch."""

    mean: Tensor
    var: Tensor
    MOMENTUM = 0.1
    EPS = 1e-5

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        values = values.to(self.weight.dtype)
        mean, var = self.mean, self.var
        if self.training:
            there = present[..., None].to(values.dtype)
            count = sum_of_batch(there.sum())
            mean = sum_of_batch((values * there).sum(dim=(0, 1))) / count
            var = sum_of_batch(((values - mean).square() * there).sum(dim=(0, 1))) / count
            self.mean.lerp_(mean.detach(), self.MOMENTUM)
            self.var.lerp_(var.detach() * count / (count - 1).clamp(min=1), self.MOMENTUM)
        return (values - mean) * (var + self.EPS).rsqrt() * self.weight + self.bias


def sum_of_batch(part: Tensor) -> Tensor:
    """Return the sum over the whole batch, given the sum over this process's part; a single process has it all.

    In a process group, a torch function mode overrides this function, as it overrides batch norms.
    """
    if has_torch_function_unary(part):
        total: Tensor = handle_torch_function(sum_of_batch, (part,), part)
        return total
    return part


class SelfAttention(nn.Module):
    """A pre-norm transformer layer over the set: 8 heads, feed-forward width 2 d, dropout 0.1, no positions.

    If 8 does not divide the width, the number of heads is their greatest common divisor.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        heads = math.gcd(dim, 8)
        self.layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.1, batch_first=True, norm_first=True)

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        read: Tensor = self.layer(values, src_key_padding_mask=~present)
        return read


class Seq2Seq(nn.Module):
    """The mean of the final states of two GRUs, which read the members in forward and in reverse order.

    It computes in float32 regardless of autocast, like `PaddedGru`. Present members are moved to the front on the
    device, and states after the last of them are ignored, so that the host need not wait for the sizes of the sets.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (nn.GRU(dim, dim) for _ in range(2))

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        places, rows = (torch.arange(size, device=values.device) for size in (values.shape[1], len(values)))
        order = (~present).int().argsort(dim=1, stable=True)
        last = present.sum(dim=1) - 1
        turned = order.gather(1, (last[:, None] - places).clamp(min=0))
        with torch.autocast(values.device.type, enabled=False):
            values = values.to(next(self.forwards.parameters()).dtype)
            pairs = ((self.forwards, order), (self.backwards, turned))
            ends = [gru(values[rows, way.T])[0][last, rows] for gru, way in pairs]
        return (ends[0] + ends[1]) / 2


def start_as_bert(network: nn.Module) -> None:
    """Initialise all weights as in BERT: normal with standard deviation 0.02; biases and padding embeddings 0."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])


class PaddedGru(nn.GRU):
    """A one-layer GRU, uni- or bidirectional, that ignores padding.

    It computes in float32 regardless of autocast, which would run cuDNN's recurrent layers in float16, where gradients
    vanish without loss scaling. Lengths stay in host memory, so that the host need not wait for the device.
    """

    def __init__(self, width: int, hidden: int, *, bidirectional: bool = False) -> None:
        super().__init__(width, hidden, batch_first=True, bidirectional=bidirectional)

    def last(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b h"]:
        """Return the hidden state of the forward direction after the last element of each sequence."""
        return self._read(values, lengths)[1][0]

    def states(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n h"]:
        """Return the hidden state after each element, both directions concatenated along h; 0 at padding."""
        read, _, places = self._read(values, lengths)
        states = read.new_zeros(values.shape[0] * values.shape[1], read.shape[1])
        return states.index_copy_(0, places, read).unflatten(0, values.shape[:2])

    def _read(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states after all elements, the final states, and the indices of the elements in the batch.

        Elements are gathered in a single operation; torch's own functions copy them one time step at a time, and in the
        backward pass the whole batch as often.
        """
        sizes, order = lengths.cpu().sort(descending=True)
        there = torch.arange(int(sizes[0]))[:, None] < sizes
        step, row = there.nonzero(as_tuple=True)
        places = sent(order[row] * values.shape[1] + step, values.device)
        with torch.autocast(values.device.type, enabled=False):
            members = values.to(next(self.parameters()).dtype).flatten(0, 1).index_select(0, places)
            read, last = self(PackedSequence(members, there.sum(dim=1), sent(order, values.device)))
        return read.data, last, places
