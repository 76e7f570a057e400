"""CE and MMT on MSR-VTT: retrieval of videos, of which experts made features. Liu et al., Gabeur et al."""

from typing import TYPE_CHECKING

from goalgrid.grid.settings.components import Component, register
from goalgrid.retrieval.components.video import settings

if TYPE_CHECKING:
    from goalgrid.grid.settings.model import ModelSettings


SETTINGS = (settings.VideoSettings, settings.ExpertTextSettings, settings.MixtureSettings)
"""Of its image encoders, its text encoder and its scorer."""


def _fits(model: "ModelSettings") -> str:
    if not all(isinstance(chosen, SETTINGS) for chosen in (model.image, model.text, model.scorer)):
        return "image.encoder = ce or mmt, text.encoder = gated and scorer.kind = mixture go together"
    count = getattr(model.text, "experts", 0)
    if len(model.image.reads) != count:
        return f"text.experts = {count}, and image.experts names {len(model.image.reads)}"
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
