"""How a model turns what it embedded into scores of images by texts: scorers of sets; the product needs no module."""

from collections.abc import Callable
from typing import Any

from goalgrid.retrieval.scorers.cross_attention import Bfan, Scan, SetScorer
from goalgrid.retrieval.scorers.mixture import Mixture
from goalgrid.retrieval.scorers.own_scorer import OwnScorer
from goalgrid.retrieval.scorers.similarity import Saf, Sgr

SCORERS: dict[str, Callable[[Any, int, int], SetScorer]] = {
    "scan": lambda settings, regions, dim: Scan(settings),
    "bfan": lambda settings, regions, dim: Bfan(settings),
    "sgr": Sgr,
    "saf": Saf,
    "mixture": lambda settings, regions, dim: Mixture(),
    "own": lambda settings, regions, dim: OwnScorer(settings, dim),
}
"""Each scorer of sets by the kind in `grid/settings/scorers.py`, for so many regions of `dim` values."""
