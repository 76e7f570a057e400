"""Evaluation protocols: the required number of test images, and whether metrics are averaged over folds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Protocol:
    """How test metrics are computed, with a description for table captions."""

    images: int | None = None
    """Required number of test images; None: any number."""
    fold: int | None = None
    """Images per contiguous fold, over which metrics are averaged; None: the whole test split at once."""
    description: str = "the whole test split"
    known_as: str = ""
    """The title of data set and test split in papers."""


PROTOCOLS = {
    "f30k-1k": Protocol(1000, description="Karpathy's 1,000 test images", known_as="Flickr30K 1K"),
    "coco-5k": Protocol(5000, description="Karpathy's 5,000 test images", known_as="MS-COCO 5K"),
    "coco-5x1k": Protocol(5000, 1000, "mean of five folds of 1,000 images", known_as="MS-COCO 5-fold 1K"),
    "flickr8k-1k": Protocol(1000, description="the official 1,000 test images", known_as="Flickr8K 1K"),
    "msr-vtt-full": Protocol(2990, description="the 2,990 test videos, all their captions", known_as="MSR-VTT"),
    "msr-vtt-1k-a": Protocol(1000, description="JSFusion's 1,000 test videos, a caption each", known_as="MSR-VTT 1k-A"),
    "shapes-500": Protocol(500, description="500 rendered scenes", known_as="Shapes"),
}

ECCV = "eccv"
"""COCO's 5,000 test images with human relevance judgements; see `retrieval.eccv`."""
JUDGED = ("eccv_map_at_r", "eccv_rprecision", "eccv_r1", "cxc_r1", "cxc_r5", "cxc_r10")
"""The metrics of `ECCV`, each in both directions."""


def protocol(name: str) -> Protocol:
    """Return the protocol of this name; for unknown names (a user's own data), the whole test split."""
    return PROTOCOLS.get(name) or Protocol()


def shown(name: str) -> str:
    """Return the name for table captions, with folds spelled out.

    >>> shown("coco-5k"), shown("coco-5x1k")
    ('coco-5k', 'coco-5x1k (mean of five folds of 1,000 images)')
    """
    known = protocol(name)
    return f"{name} ({known.description})" if known.fold else name
