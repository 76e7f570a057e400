"""CE and MMT on MSR-VTT: video retrieval from features of experts. Liu et al., BMVC 2019; Gabeur et al., ECCV 2020."""

from typing import TYPE_CHECKING

from goalgrid.grid.settings.components import Component, register
from goalgrid.retrieval.components.video import settings

if TYPE_CHECKING:
    from goalgrid.grid.settings.model import ModelSettings


SETTINGS = (settings.VideoSettings, settings.ExpertTextSettings, settings.MixtureSettings)
"""Settings classes of the video encoders, the text encoder and the scorer."""


def _fits(model: "ModelSettings") -> str:
    if not all(isinstance(chosen, SETTINGS) for chosen in (model.image, model.text, model.scorer)):
        return "image.encoder = ce or mmt, text.encoder = gated and scorer.kind = mixture must be used together"
    count = getattr(model.text, "experts", 0)
    if len(model.image.reads) != count:
        return f"text.experts = {count}, but image.experts has {len(model.image.reads)}"
    return ""


register(
    Component(
        "video",
        needs="features of videos",
        without="choose a recipe that reads images",
        settings=(settings.CeSettings, settings.MmtSettings, settings.ExpertTextSettings, settings.MixtureSettings),
        of=lambda model: (
            "videos" if any(isinstance(chosen, SETTINGS) for chosen in (model.image, model.text, model.scorer)) else ""
        ),
        fits=_fits,
        data=f"{__name__}.data.VIDEOS",
    )
)
