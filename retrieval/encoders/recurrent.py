"""A GRU over padded sequences of any length."""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class PaddedGru(nn.GRU):
    """One layer, read in one direction or in both; padding is never read."""

    def __init__(self, width: int, hidden: int, *, bidirectional: bool = False) -> None:
        super().__init__(width, hidden, batch_first=True, bidirectional=bidirectional)

    def last(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b h"]:
        """State of the first direction after the last member of each sequence."""
        return self(self._packed(values, lengths))[1][0]

    def states(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n h"]:
        """State after each member, of both directions one after the other along h; 0 at padding."""
        states, _ = self(self._packed(values, lengths))
        return pad_packed_sequence(states, batch_first=True, total_length=values.shape[1])[0]

    def _packed(self, values: Tensor, lengths: Tensor) -> PackedSequence:
        return pack_padded_sequence(values, lengths.cpu(), batch_first=True, enforce_sorted=False)
