"""VSRN: regions that reason over their graph, and a caption written from them in training. Li et al., ICCV 2019."""

from typing import TYPE_CHECKING

from goalgrid.grid.settings.parts import Part, register
from goalgrid.grid.settings.scorers import ProductSettings
from goalgrid.grid.settings.text_encoders import WordSettings
from goalgrid.retrieval.parts.vsrn.settings import CaptioningSettings, RegionGraphSettings

if TYPE_CHECKING:
    from goalgrid.grid.settings.model import ModelSettings


def _fits(model: "ModelSettings") -> str:
    """What of a model the captioner cannot read."""
    needed = {
        "image.encoder = region-graph": isinstance(model.image, RegionGraphSettings),
        "text.encoder = gru": isinstance(model.text, WordSettings),
        "text.boundaries = true": model.text.boundaries,
        "scorer.kind = product": isinstance(model.scorer, ProductSettings),
    }
    lacking = [f"model.{setting}" for setting, present in needed.items() if not present]
    return f"fusion {model.fusion.kind} needs {' and '.join(lacking)}" if lacking else ""


register(
    Part(
        "captioning",
        needs="the captions of a whole batch in one network",
        without="set model.fusion.kind = none",
        excludes=frozenset({"twins", "replicas"}),
        settings=(RegionGraphSettings, CaptioningSettings),
        of=lambda model: f"fusion {model.fusion.kind}" if isinstance(model.fusion, CaptioningSettings) else "",
        fits=_fits,
        network=f"{__name__}.network.Vsrn",
    )
)
