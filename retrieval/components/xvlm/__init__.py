"""X-VLM: two encoders and a cross-modal (fusion) encoder. Zeng et al., ICML 2022."""

from typing import TYPE_CHECKING

from goalgrid.grid.settings.components import Component, Logged, register
from goalgrid.retrieval.components.xvlm.settings import BertLayersSettings, SwinSettings, XvlmFusionSettings

if TYPE_CHECKING:
    from goalgrid.grid.settings.model import ModelSettings


def _fits(model: "ModelSettings") -> str:
    for name, needed in (("image", "swin"), ("text", "bert-layers")):
        encoder = getattr(model, name).encoder
        if encoder != needed:
            return (
                f"fusion {model.fusion.kind} needs X-VLM's encoders: set model.{name}.encoder = {needed}, now {encoder}"
            )
    return ""


register(
    Component(
        "fusion",
        needs="negatives of a whole batch in one network",
        without="choose a recipe without fusion",
        excludes=frozenset({"twins", "replicas"}),
        settings=(SwinSettings, BertLayersSettings, XvlmFusionSettings),
        of=lambda model: f"fusion {model.fusion.kind}" if isinstance(model.fusion, XvlmFusionSettings) else "",
        fits=_fits,
        logged={
            "matching": Logged("mean matching loss of the fusion encoder on the batch's pairs and sampled negatives"),
            "grad_norm_fusion": Logged("mean gradient norm of the fusion encoder"),
        },
        network=f"{__name__}.network.Xvlm",
    )
)
