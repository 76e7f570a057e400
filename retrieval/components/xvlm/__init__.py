"""X-VLM: a fusion encoder that looks at an image and a caption together. Zeng et al., ICML 2022."""

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
                f"fusion {model.fusion.kind} goes on from X-VLM's encoders: set model.{name}.encoder = {needed}, "
                f"now {encoder}"
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
            "matching": Logged("mean loss of the second stage on pairs of the batch and drawn negatives"),
            "grad_norm_fusion": Logged("mean norm of the gradient of the second stage"),
        },
        network=f"{__name__}.network.Xvlm",
    )
)
