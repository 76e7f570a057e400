"""Settings of X-VLM: its two encoders, and its fusion encoder, which looks at an image and a caption together."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Dropout, Unit
from goalgrid.grid.settings.image_encoders import AUGMENTED, FRAMED, IMAGE_ENCODER, ImageEncoderSettings
from goalgrid.grid.settings.image_views import Augmentation, Framing, Resampling, View
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained, PretrainedFile, WeightsName
from goalgrid.grid.settings.scorers import FUSION, FusionSettings
from goalgrid.grid.settings.text_encoders import TEXT_ENCODER, TextEncoderSettings

SWIN_PATCH = 4
"""Pixels on a side of Swin's patches."""


class SwinSettings(ImageEncoderSettings):
    """X-VLM's Swin on raw images under a linear layer. It learns; the weights of the fusion encoder bring its own."""

    network: ClassVar[str] = "goalgrid.retrieval.components.xvlm.swin:SwinEncoder"
    frozen: ClassVar[bool] = False
    encoder: Literal["swin"] = Field(description=IMAGE_ENCODER)
    width: Annotated[PositiveInt, Unit("values")] = Field(
        128, description="width of the first stage; each further stage doubles it"
    )
    depths: tuple[PositiveInt, ...] = Field((2, 2, 18, 2), min_length=1, description="blocks of each stage")
    heads: tuple[PositiveInt, ...] = Field((4, 8, 16, 32), description="attention heads of each stage")
    window: Annotated[PositiveInt, Unit("patches")] = Field(12, description="side of the windows that attend within")
    drop_path: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="share of images for which training leaves out the last block; smaller for earlier blocks"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(384, description="side of the square that it sees")
    framing: Framing = Field("square", description=FRAMED)
    augmentation: Augmentation = Field("resized-crop", description=AUGMENTED)
    flip: StrictBool = Field(True, description="mirror half of the training images")
    statistics: Literal["imagenet", "clip", "half"] = Field(
        "clip", description="mean and deviation that pixels are brought to; half: 0.5 and 0.5"
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
            raise ValueError(f"heads has {len(self.heads)} stages, and depths {len(self.depths)}")
        for stage, heads in enumerate(self.heads):
            width, pixels = self.width * 2**stage, SWIN_PATCH * 2**stage
            if width % heads:
                raise ValueError(f"heads: stage {stage + 1} has {width} values, which {heads} heads cannot share")
            if self.size % (pixels * min(self.window, self.size // pixels or self.window)):
                raise ValueError(
                    f"size = {self.size}: stage {stage + 1} sees cells of {pixels} pixels in windows of {self.window}, "
                    f"so a multiple of {SWIN_PATCH * 2 ** (len(self.depths) - 1) * self.window} pixels fits"
                )
        return self


class BertLayersSettings(TextEncoderSettings):
    """X-VLM's layers of BERT under a linear layer on the first token. They learn; their weights come as Swin's do."""

    network: ClassVar[str] = "goalgrid.retrieval.components.xvlm.bert_layers:BertEncoder"
    boundaries: ClassVar[bool] = True
    frozen: ClassVar[bool] = False
    encoder: Literal["bert-layers"] = Field(description=TEXT_ENCODER)
    pieces: WeightsName = Field(
        "google-bert/bert-base-uncased",
        description="name on the model hub of the tokenizer, --weights says where it lies; random: it reads words",
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="layers of the text encoder")
    width: Annotated[PositiveInt, Unit("values")] = Field(768, description="width of a token's state")
    heads: Annotated[PositiveInt, Unit("heads")] = Field(12, description="attention heads of a layer")
    hidden: Annotated[PositiveInt, Unit("values")] = Field(3072, description="width of the MLP of a layer")
    dropout: Dropout = Field(0.1, description="share of the values set to zero in training")

    @property
    def tokenizer(self) -> Pretrained | None:
        return None if self.pieces == RANDOM else Pretrained(weights=self.pieces, architecture={})

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "BertLayersSettings":
        if self.width % self.heads:
            raise ValueError(f"heads: {self.width} values, which {self.heads} heads cannot share")
        return self


class XvlmFusionSettings(FusionSettings):
    """X-VLM's: layers of BERT that attend to the image; the widths are those of the text encoder."""

    kind: Literal["x-vlm"] = Field(description=FUSION)
    weights: WeightsName = Field(
        "x-vlm", description="weights of the whole model: X-VLM's own file, given by --weights x-vlm=FILE; or random"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="layers of the fusion encoder")
    candidates: Annotated[int, Field(ge=10), Unit("candidates")] = Field(
        256,
        description="how many answers of a query the fusion encoder reranks in the test: COCO 256, Flickr30K 128",
    )

    @property
    def rerank_k(self) -> int:
        return self.candidates

    @property
    def file(self) -> PretrainedFile | None:
        """X-VLM's file; None: the model begins at random."""
        return None if self.weights == RANDOM else PretrainedFile(weights=self.weights, architecture={}, family="x-vlm")
