"""GRUs of K models at once: one batched product a time step, over the sequences that are still being read.

Neither `torch.func.vmap` nor fusing libraries batch a recurrent layer. Here sequences stand by time, the longest first,
as in a `PackedSequence`, so that a time step is a slice; inputs go through one product for all steps, and the way back
is written by hand: per step it has one product too, everything else is computed for all steps at once.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from retrieval import recurrent
from retrieval.stacked.layers import linear, parameter

VECTOR = 64
"""Elements that a CPU's loop takes at a time, at most."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the members of padded sequences (b, n) stand once they are packed: by time, the longest sequence first.

    Args:
        taken: place in the flattened (b, n) of each packed member.
        steps: each time step's slice of the packed members.
        last: packed place of each sequence's last member.
        mirrored: packed place of the member as far from the end as this one is from the start.
    """

    taken: Int[Tensor, " p"]
    steps: tuple[slice, ...]
    last: Int[Tensor, " b"]
    mirrored: Int[Tensor, " p"]

    @classmethod
    def of(cls, lengths: Int[Tensor, " b"], n: int, device: torch.device) -> "Packing":
        """Sort sequences of these lengths, each at least 1; places are on the device, which lengths need not be on."""
        host = lengths.cpu()
        ordered, order = host.sort(descending=True, stable=True)
        alive = torch.arange(int(ordered[0]))[:, None] < ordered
        time, row = alive.nonzero(as_tuple=True)
        sizes = alive.sum(1)
        starts = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        last = torch.empty_like(order)
        last[order] = starts[ordered - 1] + torch.arange(len(order))
        mirrored = starts[ordered[row] - 1 - time] + row
        steps = tuple(slice(*ends) for ends in pairwise(accumulate(sizes.tolist(), initial=0)))
        taken, last, mirrored = (
            places.to(device, non_blocking=True) for places in (order[row] * n + time, last, mirrored)
        )
        return cls(taken, steps, last, mirrored)

    def pack(self, values: Float[Tensor, "k b n d"]) -> Float[Tensor, "k p d"]:
        return values.flatten(1, 2).index_select(1, self.taken)

    def pad(self, packed: Float[Tensor, "k p d"], b: int, n: int) -> Float[Tensor, "k b n d"]:
        """Each member where it stood; 0 at padding."""
        padded = packed.new_zeros(len(packed), b * n, packed.shape[-1])
        return padded.index_copy(1, self.taken, packed).unflatten(1, (b, n))


class Gru(nn.Module):
    """`retrieval.recurrent.Gru` for each model, with the same names of weights."""

    def __init__(self, one: recurrent.Gru, count: int, *, shared: bool) -> None:
        super().__init__()
        for name, value in one.named_parameters():
            setattr(self, name, parameter(value, count))
        self.bidirectional, self.shared = one.bidirectional, shared

    def last(self, values: Float[Tensor, "*k b n d"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "k b h"]:
        """State of the first direction after the last member of each sequence."""
        packing = Packing.of(lengths, values.shape[-2], values.device)
        return self._read(packing, self._packed(packing, values), "").index_select(1, packing.last)

    def states(self, values: Float[Tensor, "*k b n d"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "k b n h"]:
        """State after each member, of both directions one after the other along h; 0 at padding."""
        b, n = values.shape[-3:-1]
        packing = Packing.of(lengths, n, values.device)
        packed = self._packed(packing, values)
        states = self._read(packing, packed, "")
        if self.bidirectional:
            backward = self._read(packing, packed.index_select(1, packing.mirrored), "_reverse")
            states = torch.cat([states, backward.index_select(1, packing.mirrored)], dim=-1)
        return packing.pad(states, b, n)

    def _packed(self, packing: Packing, values: Tensor) -> Float[Tensor, "k p d"]:
        count = len(self.get_parameter("weight_ih_l0"))
        return packing.pack(values.expand(count, *values.shape) if self.shared else values)

    def _read(self, packing: Packing, values: Float[Tensor, "k p d"], direction: str) -> Float[Tensor, "k p h"]:
        weight_ih, weight_hh, bias_ih, bias_hh = (
            self.get_parameter(f"{name}_l0{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        read = Recurrence.apply if torch.is_grad_enabled() else _read
        return read(linear(values, weight_ih, bias_ih), weight_hh, bias_hh, packing.steps)


class Recurrence(torch.autograd.Function):
    """States of K GRUs from what their inputs contribute to the gates (g = 3 h), in packed order, from a state of 0.

    r = s(i_r + h_r), z = s(i_z + h_z), c = tanh(i_c + r h_c), state = (before - c) z + c, with h = before W' + b: the
    equations and the order of operations of torch.nn.GRU.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Float[Tensor, "k p g"],
        weight: Float[Tensor, "k g h"],
        bias: Float[Tensor, "k g"],
        steps: tuple[slice, ...],
    ) -> Float[Tensor, "k p h"]:
        kept = tuple(list[Tensor]() for _ in range(4))
        states = _read(inputs, weight, bias, steps, kept)
        ctx.save_for_backward(weight, *(torch.cat(parts, dim=1) for parts in kept))
        ctx.steps = steps
        return states

    @staticmethod
    def backward(ctx: Any, of_states: Float[Tensor, "k p h"]) -> Any:
        weight, before, gate, lead, candidate = ctx.saved_tensors
        r, z = gate.chunk(2, dim=-1)
        # What a gradient of a state is multiplied by on its way to each gate, for all steps at once.
        to_candidate = (1 - z) * (1 - candidate.square())
        to_z = (before - candidate) * z * (1 - z)
        to_r = to_candidate * lead * r * (1 - r)
        factors = torch.cat([to_r, to_z, to_candidate * r], dim=-1).unflatten(-1, (3, -1))
        of_leads = torch.empty_like(factors)
        of_candidate = torch.empty_like(to_candidate)
        carried: Tensor | None = None
        for step in reversed(ctx.steps):
            total = of_states[:, step]
            if carried is not None:
                total = total.clone()
                total[:, : carried.shape[1]] += carried
            here = of_leads[:, step]
            torch.mul(total[..., None, :], factors[:, step], out=here)
            torch.mul(total, to_candidate[:, step], out=of_candidate[:, step])
            if step.start:
                carried = torch.baddbmm(total * z[:, step], here.flatten(-2), weight)
        of_state = of_leads.flatten(-2)
        of_inputs = torch.cat([of_state[..., : 2 * weight.shape[-1]], of_candidate], dim=-1)
        return of_inputs, torch.bmm(of_state.mT, before), of_state.sum(1), None


def _read(
    inputs: Float[Tensor, "k p g"],
    weight: Float[Tensor, "k g h"],
    bias: Float[Tensor, "k g"],
    steps: tuple[slice, ...],
    kept: tuple[list[Tensor], ...] = (),
) -> Float[Tensor, "k p h"]:
    """The states of `Recurrence`.

    Args:
        kept: takes of each step what the way back needs: state before, gates, lead h_c and candidate c.
    """
    hidden = weight.shape[-1]
    of_state = bias[:, None].expand(-1, steps[0].stop, -1)
    before = inputs.new_zeros(len(inputs), steps[0].stop, hidden)
    states: list[Tensor] = []
    for step in steps:
        if states:
            before = states[-1][:, : step.stop - step.start]
            of_state = torch.baddbmm(bias[:, None], before, weight.mT)
        of_input = inputs[:, step]
        gate = _sigmoid_of_sum(of_state[..., : 2 * hidden], of_input[..., : 2 * hidden])
        lead = of_state[..., 2 * hidden :]
        candidate = (lead * gate[..., :hidden]).add_(of_input[..., 2 * hidden :]).tanh_()
        states.append((before - candidate).mul_(gate[..., hidden:]).add_(candidate))
        for parts, part in zip(kept, (before, gate, lead, candidate), strict=False):
            parts.append(part)
    return torch.cat(states, dim=1)


def _sigmoid_of_sum(a: Tensor, b: Tensor) -> Tensor:
    """s(a + b), every element by the same instructions: the last of an array, which fill no vector, take others."""
    room = a.new_zeros(a.numel() + VECTOR)
    result = torch.add(a, b, out=room[: a.numel()].view(a.shape))
    room.sigmoid_()
    return result
