"""Models without trained weights: networks by the architecture of the weights that recipes name."""

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval import features
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import features_of, text_network, width_of
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.model import Vse
from goalgrid.runners.gpu.fake_inputs import Shapes, inputs
from goalgrid.runners.gpu.trace import Trace, Unfilled, Work, remove_data, without_data
from goalgrid.runners.training.learner import Learner, model_of

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "google-bert/bert-base-uncased": {"model_type": "bert"},
    "google-bert/bert-base-cased": {"model_type": "bert", "vocab_size": 28996},
    "openai-community/openai-gpt": {"model_type": "openai-gpt"},
    "google/vit-base-patch16-224": {"model_type": "vit"},
    "microsoft/resnet-152": {"model_type": "resnet", "depths": [3, 8, 36, 3]},
    "butd/resnet-101": {
        "model_type": "resnet",
        "depths": [3, 4, 23, 3],
        "downsample_in_bottleneck": True,
        "pools_without_margin": True,
    },
    "timm/resnext101_32x8d.fb_wsl_ig1b_ft_in1k": {
        "model_type": "regnet",
        "embedding_size": 64,
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [3, 4, 23, 3],
        "groups_width": 32,
        "downsample_in_first_stage": False,
        "layer_type": "x",
    },
    "openai/clip-vit-large-patch14-336": {
        "model_type": "clip",
        "projection_dim": 768,
        "vision_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
        "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    },
    "openai/clip-vit-base-patch32": {"model_type": "clip"},
    "google/siglip-base-patch16-224": {"model_type": "siglip"},
}
"""Architectures of the weights that recipes name, by `transformers`' names, so that no weights need to be here.

ResNeXt-101 32x8d stands here as a RegNet of the same widths and depths; `as_resnext` changes what differs.
"""


def from_architecture(part: Any, places: Places, hint: str = "Or say where they lie: --weights NAME=DIR.") -> Any:
    """The settings of a network with random weights of the same architecture, unless the user has its weights.

    Args:
        hint: the next step in the error message, if the architecture is unknown.

    Raises:
        UserError: its architecture is not known here.
    """
    if not isinstance(part, Pretrained) or part.weights == RANDOM or part.weights in places:
        return part
    if part.weights not in ARCHITECTURES:
        raise UserError(unknown("architecture of weights", part.weights, list(ARCHITECTURES), hint=hint))
    architecture = ARCHITECTURES[part.weights]
    small = {"size": 64} if architecture["model_type"] == "regnet" else {}  # its width is looked up with data
    return part.model_copy(update={"weights": RANDOM, "architecture": architecture, **small})


def learner_of(settings: TrialSettings, shapes: Shapes, places: Places) -> Learner:
    """A learner on images and captions of these shapes."""
    learner = Learner(settings, inputs(shapes, settings, places))
    as_resnext(learner.model)
    return learner


def untrained_model(settings: TrialSettings, shapes: Shapes, places: Places) -> Vse:
    """The model of a trial before training, with uninitialised weights."""
    with Unfilled():
        model = model_of(settings, inputs(shapes, settings, places))
        as_resnext(model)
    return model


def without_weights(learner: Learner, mode: FakeTensorMode, trace: Trace) -> None:
    """Replace all weights by tensors without data, and count their memory."""
    for module in (learner.model, learner.objective):
        remove_data(module, mode, trace)
    learner.take_weights()
    for companion in learner.companions:
        if companion.network is not None:
            remove_data(companion.network, mode, trace)
            companion.optimizer = type(companion.optimizer)(
                companion.network.parameters(), **companion.optimizer.defaults
            )


def of_features(backbone: BackboneSettings, places: Places) -> tuple[Work, tuple[int, ...]]:
    """The work of a frozen backbone on an image, and the shape of the features that training reads.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    count = features.BATCH["cuda"]
    with Unfilled():
        model = Vision(from_architecture(backbone, places), places).eval()
        as_resnext(model)
    with without_data() as mode:
        trace = Trace()
        remove_data(model, mode, trace)
        with mode, torch.no_grad(), torch.autocast("cpu", torch.float16):
            pixels = torch.empty((count, 3, backbone.size, backbone.size), dtype=torch.uint8)
            with trace:
                features_of_images = model(pixels)
    return trace.work * (1 / count), tuple(features_of_images.shape[1:])


def of_caption_features(network: TransformerSettings, words: int, typical: int, places: Places) -> tuple[Work, int]:
    """The work of a frozen text network on a caption, and the width of a feature vector.

    Args:
        words: size of the vocabulary.
        typical: tokens of a caption.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    part, count = from_architecture(network, places), features.BATCH["cuda"]
    with Unfilled():
        model = text_network(part, words, places).eval()
    width = width_of(model, part)
    with without_data() as mode:
        trace = Trace()
        remove_data(model, mode, trace)
        with mode, torch.no_grad(), torch.autocast("cpu", torch.float16):
            ids = torch.zeros((count, typical), dtype=torch.int64)
            with trace:
                features_of(model, network.output, ids, torch.full((count,), typical))
    return trace.work * (1 / count), width


def as_resnext(model: nn.Module) -> None:
    """Give a network that stands for a ResNeXt its first layers, and 32 groups in each convolution that has groups."""
    from transformers import RegNetModel, ResNetConfig
    from transformers.models.resnet.modeling_resnet import ResNetEmbeddings

    for network in [part for part in model.modules() if isinstance(part, RegNetModel)]:
        setattr(network, "embedder", ResNetEmbeddings(ResNetConfig()))  # noqa: B010
        for part in network.modules():
            if isinstance(part, nn.Conv2d) and part.groups > 1:
                part.groups = 32
                part.weight = nn.Parameter(torch.empty(part.out_channels, part.in_channels // 32, 3, 3))
