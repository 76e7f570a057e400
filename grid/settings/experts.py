"""What a model reads of a video: the vectors that experts, e.g. for faces or for speech, made of it."""

from typing import Literal, NamedTuple


class ExpertRead(NamedTuple):
    """What is read of an expert. The parts of all experts, one after another, make the one vector of a video.

    Args:
        width: values of a vector of the expert.
        whole: a vector of the whole video, which comes first: the mean or the largest values of all its vectors.
        tokens: how many of its vectors are read after that.
        sampled: if the expert has more vectors, random vectors are read; otherwise the first.
    """

    name: str
    width: int
    whole: Literal["mean", "max", "none"]
    tokens: int = 0
    sampled: bool = False

    @property
    def rows(self) -> int:
        """Vectors of a video."""
        return self.tokens + (self.whole != "none")

    @property
    def values(self) -> int:
        """Values of a video: its vectors, a time for each, and how many tokens it has; -1: the expert saw nothing."""
        return self.rows * (self.width + 1) + 1
