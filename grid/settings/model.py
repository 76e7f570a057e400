"""Settings of a model: its two encoders, the dimension of the joint space, its scorer and its fusion encoder."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import components
from goalgrid.grid.settings.base import IdentityDefault, Settings, Unit
from goalgrid.grid.settings.image_encoders import MLP_HEADS, ImageEncoderSettings, ImageSettings
from goalgrid.grid.settings.pretrained_networks import Pretrained, PretrainedFile
from goalgrid.grid.settings.scorers import (
    AnyFusion,
    AnyScorer,
    FusionSettings,
    NoFusionSettings,
    ProductSettings,
    ScorerSettings,
    SgrafSettings,
)
from goalgrid.grid.settings.text_encoders import TextEncoderSettings, TextSettings
from goalgrid.grid.settings.user_modules import UserModuleSettings

if not TYPE_CHECKING:  # what components bring is known when the program runs
    ImageSettings = components.choices(ImageSettings, ImageEncoderSettings)
    TextSettings = components.choices(TextSettings, TextEncoderSettings)
    AnyScorer = components.choices(AnyScorer, ScorerSettings)
    AnyFusion = components.choices(AnyFusion, FusionSettings)


class ModelSettings(Settings):
    """Settings of two encoders into a joint space of unit vectors, and of the scorer of their embeddings."""

    image: ImageSettings
    text: TextSettings
    dim: Annotated[int, Field(ge=2), Unit("values")] = Field(
        1024, description="dimension of the joint space of images and captions"
    )
    scorer: Annotated[AnyScorer, IdentityDefault(ProductSettings())] = Field(
        ProductSettings(), description="computes image-text scores from the encoder outputs"
    )
    fusion: Annotated[AnyFusion, IdentityDefault(NoFusionSettings())] = Field(
        NoFusionSettings(), description="cross-modal (fusion) encoder, in addition to the two encoders"
    )
    networks: Annotated[Literal["single", "twins"], IdentityDefault("single")] = Field(
        "single",
        description="twins: two networks trained on the same batches by co-teaching, as in NCR; their scores are "
        "averaged",
    )

    @property
    def of_sets(self) -> bool:
        """Whether the scorer reads a set of vectors for each image and caption."""
        return not isinstance(self.scorer, ProductSettings)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise a UserError if images of this shape are single vectors, but the scorer or image encoder needs sets."""
        image: Any = self.image
        if (self.of_sets or image.of_regions) and len(shape) == 1 and not image.reads:
            reader = f"scorer {self.scorer.kind!r}" if self.of_sets else f"image encoder {image.encoder!r}"
            raise UserError(
                f"{reader} reads several vectors per image, e.g. (36, 2048) of BUTD; these features have one of "
                f"{shape[0]:,} values. Use region features, or another recipe."
            )

    @property
    def rerank_k(self) -> int:
        """Number of top results per query that a second stage reranks in the test; 0 without a second stage."""
        return self.fusion.rerank_k

    @property
    def whole_file(self) -> PretrainedFile | None:
        """The checkpoint that initialises the whole model; None if its parts are initialised separately."""
        return self.fusion.file

    @property
    def pretrained(self) -> list[Pretrained]:
        """All pretrained weights of the model: of its encoders, a separate tokenizer, and a whole-model checkpoint."""
        encoders = [part for part in (self.image, self.text) if isinstance(part, Pretrained)]
        others = [self.whole_file, None if isinstance(self.text, Pretrained) else self.text.tokenizer]
        return encoders + [part for part in others if part is not None]

    @property
    def libraries(self) -> frozenset[str]:
        """The packages that it loads in addition to torch and NumPy: Pillow for pictures, transformers for networks."""
        by_name = any(not (network.of_file or network.built_here) for network in self.pretrained)
        return frozenset(["transformers"] * by_name + ["pillow"] * (self.image.view is not None))

    @model_validator(mode="after")
    def _fits_its_components(self) -> Self:
        if self.networks != "single" and self.networks not in components.registered():
            raise ValueError(f"networks = {self.networks}: {components.missing(self.networks)}")
        for component in components.of_model(self).values():
            if problem := component.fits(self):
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _encoders_fit_the_scorer(self) -> Self:
        if self.image.reads:  # its component has checked this
            return self
        for name, part in (("image", self.image), ("text", self.text)):
            if self.of_sets and isinstance(part, UserModuleSettings):
                raise ValueError(
                    f"scorer {self.scorer.kind} reads sets of vectors, but your own {name} encoder {part.name!r} "
                    "gives a single vector: set model.scorer.kind = product"
                )
            if self.of_sets and part.encoder in ("bow", "gru"):
                raise ValueError(f"scorer {self.scorer.kind} reads one state per word: set model.text.encoder = bigru")
            sets = getattr(part, "pooling", None) == "none"
            if sets and not self.of_sets:
                raise ValueError(f"{name}.pooling = none needs a scorer that reads sets, e.g. scan")
            if self.of_sets and not sets:
                raise ValueError(f"scorer {self.scorer.kind} reads sets of vectors: set model.{name}.pooling = none")
            several = "grid" if name == "image" else "states"
            if sets and getattr(part, "output", several) != several:
                raise ValueError(
                    f"scorer {self.scorer.kind} reads sets of vectors: set model.{name}.output = {several}"
                )
        if isinstance(self.scorer, SgrafSettings) and getattr(self.image, "drop", 0.0) > 0:
            raise ValueError(f"scorer {self.scorer.kind} needs all regions of an image: set model.image.drop = 0")
        return self

    @model_validator(mode="before")
    @classmethod
    def _hidden_is_half_of_dim(cls, content: Any) -> Any:
        """Set the hidden size to half of `dim` by default, as in the code of VSE-infinity and SelHN."""
        image = content.get("image") if isinstance(content, dict) else None
        if not isinstance(image, dict) or image.get("head", image.get("encoder")) not in MLP_HEADS:
            return content
        dim = content.get("dim", cls.model_fields["dim"].default)
        return {**content, "image": {"hidden": dim // 2, **image}} if isinstance(dim, int) else content
