"""How a model turns what it embedded into scores of images by texts: scorers of sets; the product needs no module."""

from collections.abc import Callable
from typing import Any

from goalgrid.grid.settings import parts
from goalgrid.grid.settings.scorers import ScorerSettings
from goalgrid.retrieval.scorers.cross_attention import Bfan, Scan, SetScorer
from goalgrid.retrieval.scorers.own_scorer import OwnScorer
from goalgrid.retrieval.scorers.similarity import Saf, Sgr

SCORERS: dict[str, Callable[[Any, int, int], SetScorer]] = {
    "scan": lambda settings, regions, dim: Scan(settings),
    "bfan": lambda settings, regions, dim: Bfan(settings),
    "sgr": Sgr,
    "saf": Saf,
    "own": lambda settings, regions, dim: OwnScorer(settings, dim),
}
"""Each scorer of sets by the kind in `grid/settings/scorers.py`, for so many regions of `dim` values."""


def scorer(settings: ScorerSettings, regions: int, dim: int) -> SetScorer:
    """The scorer of these settings, for so many regions of `dim` values."""
    if settings.network:
        return parts.loaded(settings.network)(settings, regions, dim)
    given: Any = settings
    return SCORERS[given.kind](settings, regions, dim)
