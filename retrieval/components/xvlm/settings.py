"""Settings of X-VLM: its two encoders and its cross-modal (fusion) encoder."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Dropout, Unit
from goalgrid.grid.settings.image_encoders import AUGMENTED, FRAMED, IMAGE_ENCODER, ImageEncoderSettings
from goalgrid.grid.settings.image_views import Augmentation, Framing, Resampling, View
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained, PretrainedFile, WeightsName
from goalgrid.grid.settings.scorers import FUSION, FusionSettings
from goalgrid.grid.settings.text_encoders import TEXT_ENCODER, TextEncoderSettings

SWIN_PATCH = 4
"""Side length of Swin's patches, in pixels."""


class SwinSettings(ImageEncoderSettings):
    """X-VLM's trainable Swin on raw images, with a linear layer; its weights come from `model.fusion.weights`."""

    network: ClassVar[str] = "goalgrid.retrieval.components.xvlm.swin:SwinEncoder"
    frozen: ClassVar[bool] = False
    encoder: Literal["swin"] = Field(description=IMAGE_ENCODER)
    width: Annotated[PositiveInt, Unit("values")] = Field(
        128, description="width of the first stage; it doubles at each further stage"
    )
    depths: tuple[PositiveInt, ...] = Field((2, 2, 18, 2), min_length=1, description="number of blocks in each stage")
    heads: tuple[PositiveInt, ...] = Field((4, 8, 16, 32), description="attention heads in each stage")
    window: Annotated[PositiveInt, Unit("patches")] = Field(12, description="side length of the attention windows")
    drop_path: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="drop-path rate of the last block in training; it decreases linearly to 0 at the first block"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(384, description="side length of the square input images")
    framing: Framing = Field("square", description=FRAMED)
    augmentation: Augmentation = Field("resized-crop", description=AUGMENTED)
    flip: StrictBool = Field(True, description="mirror half of the training images")
    statistics: Literal["imagenet", "clip", "half"] = Field(
        "clip", description="mean and standard deviation used to normalise pixels; half: 0.5 and 0.5"
    )

    @property
    def view(self) -> View:
        return View(self.size, self.framing, self.augmentation, self.flip, Resampling.BICUBIC)

    @property
    def last_width(self) -> int:
        return int(self.width * 2 ** (len(self.depths) - 1))

    @model_validator(mode="after")
    def _stages_fit(self) -> "SwinSettings":
        if len(self.heads) != len(self.depths):
            raise ValueError(f"heads has {len(self.heads)} stages, but depths has {len(self.depths)}")
        for stage, heads in enumerate(self.heads):
            width, pixels = self.width * 2**stage, SWIN_PATCH * 2**stage
            if width % heads:
                raise ValueError(f"heads: in stage {stage + 1}, the width {width} is not divisible by {heads} heads")
            if self.size % (pixels * min(self.window, self.size // pixels or self.window)):
                raise ValueError(
                    f"size = {self.size}: stage {stage + 1} has windows of {self.window} x {pixels} pixels; "
                    f"use a multiple of {SWIN_PATCH * 2 ** (len(self.depths) - 1) * self.window} pixels"
                )
        return self


class BertLayersSettings(TextEncoderSettings):
    """X-VLM's trainable BERT layers and a linear layer on the first token; weights come from `model.fusion.weights`."""

    network: ClassVar[str] = "goalgrid.retrieval.components.xvlm.bert_layers:BertEncoder"
    boundaries: ClassVar[bool] = True
    frozen: ClassVar[bool] = False
    encoder: Literal["bert-layers"] = Field(description=TEXT_ENCODER)
    pieces: WeightsName = Field(
        "google-bert/bert-base-uncased",
        description="the tokenizer's name on the model hub (local path: --weights); random: use words as tokens",
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="number of layers in the text encoder")
    width: Annotated[PositiveInt, Unit("values")] = Field(768, description="hidden size")
    heads: Annotated[PositiveInt, Unit("heads")] = Field(12, description="attention heads per layer")
    hidden: Annotated[PositiveInt, Unit("values")] = Field(3072, description="hidden width of the MLP in each layer")
    dropout: Dropout = Field(0.1, description="share of the values set to zero in training")

    @property
    def tokenizer(self) -> Pretrained | None:
        return None if self.pieces == RANDOM else Pretrained(weights=self.pieces, architecture={})

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "BertLayersSettings":
        if self.width % self.heads:
            raise ValueError(f"heads: the width {self.width} is not divisible by {self.heads} heads")
        return self


class XvlmFusionSettings(FusionSettings):
    """X-VLM's fusion encoder: BERT layers with cross-attention to the image, as wide as the text encoder."""

    kind: Literal["x-vlm"] = Field(description=FUSION)
    weights: WeightsName = Field(
        "x-vlm", description="weights of the whole model: X-VLM's file, given by --weights x-vlm=FILE; or random"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="number of layers in the fusion encoder")
    candidates: Annotated[int, Field(ge=10), Unit("candidates")] = Field(
        256,
        description="candidates per query that the fusion encoder reranks in tests; X-VLM: COCO 256, Flickr30K 128",
    )

    @property
    def rerank_k(self) -> int:
        return self.candidates

    @property
    def file(self) -> PretrainedFile | None:
        """X-VLM's weights file; None if the model is randomly initialised."""
        return None if self.weights == RANDOM else PretrainedFile(weights=self.weights, architecture={}, family="x-vlm")
