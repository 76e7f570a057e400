"""Memory and work of a trial on a GPU, computed without a GPU: the real model takes steps on tensors without data."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import objectives
from grid.errors import UserError, unknown
from grid.expansion import Trial
from grid.settings import TrialSettings
from grid.settings.image_encoders import BackboneSettings
from grid.settings.pretrained_networks import RANDOM, Pretrained
from grid.settings.text_encoders import TransformerSettings
from retrieval import features
from retrieval.data.content import Content
from retrieval.encoders.pretrained import Places
from retrieval.encoders.text import text_network, width_of
from retrieval.encoders.vision import Vision
from retrieval.scorers.sets import Sets
from retrieval.splits.pairs import WHOLE, Pairs, Split
from retrieval.words.tokens import Tokens
from runners.gpu.memory_probe import heavy
from runners.gpu.trace import Trace, Unfilled, Work, emptied, without_data
from runners.training.embedding import EMBED_BATCH, TILE
from runners.training.inputs import Batch, Inputs
from runners.training.learner import Learner, precision
from runners.training.optimizers.groups import optimizer

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "google-bert/bert-base-uncased": {"model_type": "bert"},
    "google-bert/bert-base-cased": {"model_type": "bert", "vocab_size": 28996},
    "openai-community/openai-gpt": {"model_type": "openai-gpt"},
    "google/vit-base-patch16-224": {"model_type": "vit"},
    "microsoft/resnet-152": {"model_type": "resnet", "depths": [3, 8, 36, 3]},
    "butd/resnet-101": {"model_type": "resnet", "depths": [3, 4, 23, 3], "downsample_in_bottleneck": True},
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


@dataclass(frozen=True)
class Shapes:
    """What a model reads of a data set.

    Args:
        image: shape of an image as the model reads it.
        words: indices that captions are made of, or width of their features.
        typical, longest: words or pieces of a caption: the mean, and the mean of the batch of the longest captions.
        images: of the largest split that is evaluated.
        captions: what training reads of them: indices, or features of a frozen network, as its `output` says.
    """

    image: tuple[int, ...]
    words: int
    typical: int
    longest: int
    images: int
    captions: Literal["indices", "states", "projected"] = "indices"


@dataclass(frozen=True)
class Footprint:
    """What a trial takes of a GPU.

    Args:
        allocated: bytes of tensors at the peak.
        reserved: bytes that the allocator holds for them, gaps included.
        step: work of a training step.
        image, text: work of embedding an image or a caption in evaluation.
        score: work of scoring an image with a caption.
    """

    allocated: int
    reserved: int
    step: Work
    image: Work
    text: Work
    score: Work


class Blank:
    """Images of this shape, without content."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self.shape, self.count = shape, count

    def __len__(self) -> int:
        return self.count

    def gather(self, rows: np.ndarray, draw: int | None = None, part: slice = WHOLE) -> Tensor:
        raise NotImplementedError("images without content are never read")


class Indices:
    """A reader of captions that has a size alone."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def estimate(settings: TrialSettings, shapes: Shapes, places: Places) -> Footprint:
    """Memory and work of a trial: steps on the longest captions with all that learns, a typical step, an evaluation.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    parts = {name: from_architecture(getattr(settings.model, name), places) for name in ("image", "text")}
    settings = heavy(settings.model_copy(update={"model": settings.model.model_copy(update=parts)}))
    with Unfilled():
        learner = learner_of(settings, shapes, places)
    with without_data() as mode:
        trace = Trace()
        without_weights(learner, mode, trace)
        step = rehearse(learner, shapes, mode, trace)
        evaluation = _evaluation(learner, shapes, mode, trace)
    return Footprint(trace.allocator.most_allocated, trace.allocator.most_reserved, step, *evaluation)


def without_weights(learner: Learner, mode: FakeTensorMode, trace: Trace) -> None:
    """Take the weights from the model, and count them."""
    for module in (learner.model, learner.objective):
        emptied(module, mode, trace)
    learner.optimizer = optimizer(learner.model, learner.objective, learner.settings.train)


def learner_of(settings: TrialSettings, shapes: Shapes, places: Places) -> Learner:
    """What learns from images and captions of these shapes."""
    learner = Learner(settings, _inputs(shapes, settings.train.batch_size, places))
    as_resnext(learner.model)
    return learner


def rehearse(learner: Learner, shapes: Shapes, mode: AbstractContextManager[Any], trace: Trace) -> Work:
    """Take a typical step and the step that uses most memory; the work of the typical one.

    Args:
        mode: in which tensors are made.
    """
    batch = learner.settings.train.batch_size
    typical = _batch(shapes, batch, _around(shapes.typical, batch), mode, trace)
    step = _step(learner, learner.settings.train.epochs - 1, typical, mode, trace)
    del typical
    longest = _batch(shapes, batch, np.full(batch, shapes.longest), mode, trace)  # alike, for few groups of a scorer
    _step(learner, 0, longest, mode, trace)
    return step


def heaviest(trials: Iterable[Trial]) -> Trial:
    """A trial with an objective on all negatives, if there is one: scores of sets then need a graph."""

    def dense(trial: Trial) -> bool:
        goal = trial.shared.objective
        return not objectives.build(goal.name, variant=goal.variant, **goal.parameters).learns_from_few

    return max(trials, key=dense)


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
        emptied(model, mode, trace)
        with mode, torch.no_grad(), torch.autocast("cpu", torch.float16):
            pixels = torch.empty((count, 3, backbone.size, backbone.size), dtype=torch.uint8)
            with trace:
                found = model(pixels)
    return trace.work * (1 / count), tuple(found.shape[1:])


def text_width(network: TransformerSettings, places: Places) -> int:
    """Values of a feature vector of a frozen text network.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    part = from_architecture(network, places)
    with Unfilled():
        return width_of(text_network(part, 1, places), part)


def from_architecture(part: Any, places: Places, hint: str = "Or say where they lie: --weights NAME=DIR.") -> Any:
    """The network with random weights in place of the weights that it names, unless the user says where they lie.

    Args:
        hint: what a user can do whose weights are not known here.

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


def _inputs(shapes: Shapes, batch: int, places: Places) -> Inputs:
    split = Split(Blank(shapes.image, batch), [""] * batch, np.arange(batch))
    tokens = Tokens(torch.ones(batch, 1, dtype=torch.int64), torch.ones(batch, dtype=torch.int64))
    reader: Any = Indices(shapes.words)
    content = Content("", "", ())
    return Inputs(Pairs(split, split, split), reader, {"train": tokens}, torch.device("cpu"), places, content)


def _step(learner: Learner, epoch: int, batch: Batch, mode: AbstractContextManager[Any], trace: Trace) -> Work:
    learner.clean = None  # what it keeps of a batch is small, and is no tensor here
    learner.begin(epoch)
    trace.begin()
    with mode, trace:
        learner.gradient(batch, 0.0)
        learner.optimizer.step()
    return trace.work


def _batch(shapes: Shapes, count: int, lengths: np.ndarray, mode: AbstractContextManager[Any], trace: Trace) -> Batch:
    """A batch on the device, with captions of these lengths."""
    return Batch(torch.arange(count), _images(shapes, count, mode, trace), _tokens(shapes, lengths, mode, trace))


def _around(length: int, count: int) -> np.ndarray:
    """Lengths between 0.7 and 1.3 times the given one."""
    return np.linspace(0.7 * length, 1.3 * length, count).round().astype(np.int64).clip(min=1)


def _images(shapes: Shapes, count: int, mode: AbstractContextManager[Any], trace: Trace) -> Tensor:
    with mode:
        images = torch.zeros((count, *shapes.image), dtype=torch.uint8 if len(shapes.image) == 3 else torch.float32)
    trace.hold(images)
    return images


def _tokens(
    shapes: Shapes, lengths: np.ndarray, mode: AbstractContextManager[Any], trace: Trace
) -> tuple[Tensor, Tensor]:
    """Indices or features without values, and real lengths: the host decides by them."""
    count, longest, width = len(lengths), int(lengths.max()), shapes.words
    shape = {"indices": (count, longest), "states": (count, longest, width), "projected": (count, width)}
    with mode:
        texts = torch.zeros(
            shape[shapes.captions], dtype=torch.int64 if shapes.captions == "indices" else torch.float16
        )
    trace.hold(texts)
    return texts, torch.from_numpy(lengths)


def _evaluation(
    learner: Learner, shapes: Shapes, mode: AbstractContextManager[Any], trace: Trace
) -> tuple[Work, Work, Work]:
    """The work of embedding an image, of embedding a caption, and of scoring a pair; the whole split is held."""
    model, pixels = learner.model.eval(), len(shapes.image) == 3
    count = learner.settings.train.batch_size if pixels else EMBED_BATCH
    given, tokens = (
        _images(shapes, count, mode, trace),
        _tokens(shapes, _around(shapes.typical, EMBED_BATCH), mode, trace),
    )
    with torch.no_grad(), mode:
        with trace, precision(learner.settings, torch.device("cpu")):
            trace.begin()
            images = model.embed_images(given)
            of_image = trace.work * (1 / count)
            trace.begin()
            texts = model.embed_texts(*tokens)
            of_text = trace.work * (1 / EMBED_BATCH)
        vectors = images.vectors if isinstance(images, Sets) else images
        of_split = vectors[0].numel() * vectors.element_size() * shapes.images
        several = [trace.allocator.allocate(of_split) for _ in range(2)]  # the parts, and what they are joined to
        with trace:
            trace.begin()
            shown = images[: min(TILE, count)]
            model.scores(shown, texts)
            of_pair = trace.work * (1 / (len(shown) * EMBED_BATCH))
        for block in several:
            trace.allocator.release(block)
    return of_image, of_text, of_pair
