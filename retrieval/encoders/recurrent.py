"""A GRU over padded sequences of any length."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from goalgrid.retrieval.pinned import sent


class PaddedGru(nn.GRU):
    """One layer, read in one direction or in both; padding is never read.

    It computes in float32 whatever autocast says: autocast would run cuDNN's recurrent layers in float16, whose
    gradients vanish without a scale on the loss. Lengths stay in host memory, so that nothing waits for the device.
    """

    def __init__(self, width: int, hidden: int, *, bidirectional: bool = False) -> None:
        super().__init__(width, hidden, batch_first=True, bidirectional=bidirectional)

    def last(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b h"]:
        """State of the first direction after the last member of each sequence."""
        return self._read(values, lengths)[1][0]

    def states(self, values: Float[Tensor, "b n k"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n h"]:
        """State after each member, of both directions one after the other along h; 0 at padding."""
        read, _ = self._read(values, lengths)
        longest_first = PackedSequence(read.data, read.batch_sizes)
        states, _ = pad_packed_sequence(longest_first, batch_first=True, total_length=values.shape[1])
        assert read.unsorted_indices is not None
        return states.index_select(0, read.unsorted_indices)

    def _read(self, values: Tensor, lengths: Tensor) -> tuple[PackedSequence, Tensor]:
        sizes, in_host = lengths.cpu().sort(descending=True)
        order = sent(in_host, values.device)
        with torch.autocast(values.device.type, enabled=False):
            longest_first = values.to(next(self.parameters()).dtype).index_select(0, order)
            packed = pack_padded_sequence(longest_first, sizes, batch_first=True)
            read, last = self(PackedSequence(packed.data, packed.batch_sizes, order))
        return read, last
