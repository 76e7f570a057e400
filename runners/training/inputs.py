"""Prepare the inputs of a trial: the data set, encoded for its model, and the batches of each epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import derived_seed, digest
from goalgrid.grid.settings import DatasetSettings, TrainSettings, TrialSettings
from goalgrid.grid.settings.image_encoders import ImageSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.text_encoders import TextSettings
from goalgrid.retrieval.components.training_method import Request, TrainingMethod
from goalgrid.retrieval.data import opening
from goalgrid.retrieval.data.content import Content, content
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls.called import as_called
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.features import CaptionSource, ImageSource
from goalgrid.retrieval.fit import check_sizes
from goalgrid.retrieval.prefetch import ahead
from goalgrid.retrieval.shrunk import ShrunkPictures
from goalgrid.retrieval.splits.pairs import Pairs, Split
from goalgrid.retrieval.words import text_readers
from goalgrid.retrieval.words.splitting import MOST_UNKNOWN, READ_PIECES
from goalgrid.retrieval.words.text_readers import CaptionReader, Vocabulary
from goalgrid.retrieval.words.tokens import Tokens
from goalgrid.runners.training.batch_sizes import batch_sizes
from goalgrid.runners.training.exchange import ALONE, ProcessGroup
from goalgrid.runners.training.machine import Machine

SOURCES: dict[str, Any] = {"backbone": ImageSource, "transformer": CaptionSource, "shrunk": ShrunkPictures}
"""Image sources computed before training: features of a frozen network, or the smaller pictures of `dataset.cache`."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """A data set with its captions encoded, and the device to train on."""

    pairs: Pairs
    reader: CaptionReader
    tokens: dict[str, Tokens]
    device: torch.device
    places: Places
    content: Content
    prepared: Mapping[str, Any] = field(default_factory=dict)
    """Inputs prepared by training methods, by the method's name."""
    layout: torch.memory_format = torch.preserve_format
    """Memory layout of the model's weights."""
    graphs: bool = False
    """Whether objectives run as CUDA graphs."""

    @property
    def vocabulary(self) -> str:
        """Return the fingerprint of the vocabulary, or of the tokenizer's name."""
        return text_readers.fingerprint(self.reader.content)

    @property
    def words(self) -> int:
        """Return the size of the vocabulary, or the dimension of the captions' features."""
        return self.tokens["train"].width or len(self.reader)

    def check_words(self, dataset: DatasetSettings) -> None:
        """Raise a UserError if a caption has no known word, which cross-attention needs."""
        if not isinstance(self.reader, Vocabulary):
            return
        for name, tokens in self.tokens.items():
            unknown = (tokens.ids < self.reader.first).all(dim=1)
            if rows := unknown.nonzero()[:, 0].tolist():
                caption = self.pairs.splits[name].captions[rows[0]]
                raise UserError(
                    f"caption {caption!r}, number {rows[0] + 1} of the {name} split of {dataset.name!r}, has no known "
                    f"word to attend with ({len(rows)} such captions). Lower dataset.min_count, now "
                    f"{dataset.min_count}, set dataset.vocabulary to a larger vocabulary, or remove the caption."
                )


def reader_of(
    pairs: Pairs, dataset: DatasetSettings, text: TextSettings, machine: Machine, known: Sequence[str] = ()
) -> CaptionReader:
    """Build the reader that converts captions to indices, with the vocabulary `known` of a trained model if given."""
    file, root = dataset.vocabulary, machine.root(dataset.name)
    if file and root is None:
        raise UserError(f"data set {dataset.name!r} has no folder, so dataset.vocabulary = {file!r} cannot be found.")
    _, learnt = pairs.train.first(dataset.train_images)
    return text_readers.build(
        text,
        [pairs.train.captions[row] for row in learnt],
        places=machine.places,
        min_count=dataset.min_count,
        split=dataset.words,
        vocabulary=root / file if file and root else None,
        known=known,
    )


def read_captions(
    pairs: Pairs, dataset: DatasetSettings, text: TextSettings, machine: Machine, known: Sequence[str] = ()
) -> tuple[CaptionReader, dict[str, Tokens]]:
    """Return the caption reader of `reader_of`, and all captions as indices."""
    reader = reader_of(pairs, dataset, text, machine, known)
    text = as_called(text, machine.places)
    tokens = {
        name: reader.encode(
            list(map(text.prompted, split.captions)),
            max_words=text.longest(dataset.max_words),
            drop=text.word_drop if name == "train" else 0.0,
        )
        for name, split in pairs.splits.items()
    }
    return reader, tokens


def check_known(reader: CaptionReader, pairs: Pairs, dataset: DatasetSettings) -> dict[str, float]:
    """Return the share of unknown words or word pieces in val and test, from 0 to 1.

    Raises UserError if more than `MOST_UNKNOWN` of the words in val are not in the vocabulary.
    """
    shares = {name: reader.unknown_share(pairs.splits[name].captions) for name in ("val", "test")}
    if shares["val"] <= MOST_UNKNOWN or not isinstance(reader, Vocabulary):
        return shares
    way_out = (
        f"The vocabulary has the words that occur at least {dataset.min_count} times in train (dataset.min_count): "
        f"lower that, or add captions; {READ_PIECES}."
    )
    if dataset.vocabulary:
        way_out = f"Set dataset.vocabulary, now {dataset.vocabulary!r}, to the vocabulary of these captions."
    share = f"{100 * shares['val']:.1f} %"
    raise UserError(f"{share} of the words in the validation captions of {dataset.name!r} are unknown. {way_out}")


@dataclass(frozen=True)
class Added:
    """Additions of training methods to a batch other than extra pairs, in host memory."""

    values: Mapping[str, Float[Tensor, "networks b"]] = field(default_factory=dict)
    """Additional inputs of the loss for each pair of the whole batch, per network, by training method."""
    meta_batch: "Batch | None" = None
    """Meta batch: pairs of the validation split."""

    def pinned(self) -> "Added":
        """Copy to pinned memory."""
        values = {name: part.pin_memory() for name, part in self.values.items()}
        return Added(values, self.meta_batch and self.meta_batch.pinned())


@dataclass(frozen=True)
class Batch:
    """One training batch on the host: B pairs, then extra pairs requested by training methods."""

    owners: Int[Tensor, " b"]
    """Row of each caption's image, for the whole batch, even if images and tokens are only a rank's part."""
    images: Tensor
    tokens: tuple[Tensor, Tensor]
    added: Added | None = None
    """Additions of training methods; None if the trial has none."""

    def pinned(self) -> "Batch":
        """Copy to pinned memory, for asynchronous transfer to a GPU."""
        owners, images, ids, lengths = (part.pin_memory() for part in (self.owners, self.images, *self.tokens))
        return Batch(owners, images, (ids, lengths), self.added and self.added.pinned())

    def on(self, device: torch.device) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """Copy images, tokens and owners to the device; lengths stay on the host, as recurrent encoders require."""
        ids, lengths = self.tokens
        images, ids, owners = (part.to(device, non_blocking=True) for part in (self.images, ids, self.owners))
        return images, (ids, lengths), owners


def prepare(settings: TrialSettings, machine: Machine, known: tuple[str, ...] = ()) -> Inputs:
    """Open the trial's data and encode its captions, with the vocabulary `known` of a trained model if given.

    Results are cached. Raises UserError if the data cannot be used.
    """
    machine = machine.reading(settings.dataset.name, settings.objective.columns)
    data = content_of(settings.dataset, settings.model.image, machine)
    inputs = _inputs(settings.dataset, settings.model.image, settings.model.text, machine, data, known)
    check_sizes(settings.dataset, data, machine.root(settings.dataset.name))
    settings.model.check_image(inputs.pairs.train.images.shape)
    if settings.model.of_sets and not known:
        inputs.check_words(settings.dataset)
    return inputs


def content_of(dataset: DatasetSettings, image: ImageSettings, machine: Machine) -> Content:
    """Read which content the data set has on this machine; raise UserError if the image encoder cannot use it."""
    root, features = machine.root(dataset.name), image.view is None
    columns = machine.columns_of(dataset.name)
    return content(
        dataset.name, root, features=features, vocabulary=dataset.vocabulary, kept=machine.data, columns=columns
    )


def protocols_of(settings: TrialSettings) -> list[str]:
    """Return all protocols to evaluate a trial by: its own, then the others of its data set."""
    return list(dict.fromkeys([settings.dataset.protocol, *catalog.protocols(settings.dataset.name)]))


def image_source(
    dataset: DatasetSettings, image: ImageSettings, machine: Machine
) -> ImageSource | ShrunkPictures | None:
    """Return the source to precompute from a data set's images (features or smaller pictures); None if not needed."""
    image = as_called(image, machine.places)
    network = image.feature_network
    kind = network.encoder if network else dataset.cache if image.view else None
    if kind is None:
        return None
    data = content_of(dataset, image, machine)
    pairs = opened(dataset, image, machine, data)
    frozen = {"network": network, "places": machine.places} if network else {}
    source: ImageSource | ShrunkPictures = SOURCES[kind](
        dataset.name, machine.features, pairs=pairs, images=data.images, **frozen
    )
    return source


def caption_source(dataset: DatasetSettings, model: ModelSettings, machine: Machine) -> CaptionSource | None:
    """Return the captions of a data set with the frozen network that reads them; None if there is no such network."""
    if (network := model.text.feature_network) is None:
        return None
    pairs = opened(dataset, model.image, machine, content_of(dataset, model.image, machine))
    reader, tokens = read_captions(pairs, dataset, network, machine)
    return CaptionSource(dataset.name, machine.features, network, machine.places, tokens, len(reader))


@lru_cache(maxsize=4)
def _inputs(
    dataset: DatasetSettings,
    image: ImageSettings,
    text: TextSettings,
    machine: Machine,
    held: Content,
    known: tuple[str, ...],
) -> Inputs:
    """Return the data set as the encoders read it, after running frozen networks."""
    images = image_source(dataset, image, machine)
    pairs = images.load(machine.device) if images else opened(dataset, image, machine, held)
    if dataset.noise:
        pairs = replace(pairs, train=pairs.train.shuffled(dataset.noise, dataset.noise_seed))
    reader, tokens = read_captions(pairs, dataset, text, machine, known)
    if not known:
        check_known(reader, pairs, dataset)
    if network := text.feature_network:
        source = SOURCES[network.encoder](dataset.name, machine.features, network, machine.places, tokens, len(reader))
        tokens = {**source.load(machine.device)}
    layout, graphs = machine.layout, machine.graphs
    return Inputs(pairs, reader, tokens, machine.device, machine.places, held, layout=layout, graphs=graphs)


def opened(dataset: DatasetSettings, image: ImageSettings, machine: Machine, held: Content) -> Pairs:
    """Open the raw data; images that are only read to precompute features are not kept in memory."""
    root, on_gpu = machine.root(dataset.name), machine.device.type == "cuda"
    image = as_called(image, machine.places)
    options: dict[str, Any] = {"reads": image.reads, "keep": image.feature_network is None}
    options |= {"workers": machine.resources.threads, "pinned": on_gpu}
    options |= {"repeats": held.repeats, "columns": machine.columns_of(dataset.name), "copies": machine.data}
    return opening.opened(dataset.name, root, image.view, held.fingerprint, **options)


def batches(
    settings: TrialSettings,
    inputs: Inputs,
    epoch: int,
    group: ProcessGroup = ALONE,
    methods: Sequence[TrainingMethod] = (),
) -> "Epoch":
    """Return the batches of one epoch, determined by seed and epoch; a rank reads only its part of each batch.

    The training `methods` must have begun the epoch.
    """
    train, split = settings.train, inputs.pairs.train
    learnt = torch.from_numpy(split.first(settings.dataset.train_images)[1])
    generator = torch.Generator().manual_seed(derived_seed(settings, f"batches of epoch {epoch}"))
    order = learnt[torch.randperm(len(learnt), generator=generator)]
    if train.captions == "one":  # the first caption of each image
        _, first = np.unique(split.image_of_text[order.numpy()], return_index=True)
        order = order[torch.from_numpy(np.sort(first))]
    whole, last = batch_sizes(len(order), train)
    read = order[: whole * train.batch_size + last]
    rows = read.split(train.batch_size) if len(read) else ()
    views, words = (derived_seed(settings, f"{what} of epoch {epoch}") for what in ("views", "words"))
    return Epoch(inputs, rows, views, words, group, methods)


def captions_of_epoch(dataset: DatasetSettings, train: TrainSettings, split: Split) -> int:
    _, learnt = split.first(dataset.train_images)
    return len(learnt) if train.captions == "all" else len(np.unique(split.image_of_text[learnt]))


@dataclass(frozen=True, eq=False)
class Epoch:
    """The batches of an epoch, as rows of captions; prefetched in a thread, except vectors on a CPU.

    `views` and `words` are the seeds of random views and word dropout; seed and batch index determine the draw.
    """

    inputs: Inputs
    rows: Sequence[Int[Tensor, " b"]]
    views: int
    words: int
    group: ProcessGroup = ALONE
    methods: Sequence[TrainingMethod] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def since(self, start: int) -> Iterator[tuple[int, Batch]]:
        """Yield the batches from index `start` on, with their indices."""
        places = range(start, len(self.rows))
        # on a CPU, reading vectors takes less time than passing them between threads
        brief = self.inputs.device.type == "cpu" and len(self.inputs.pairs.train.images.shape) == 1
        return enumerate(map(self._read, places) if brief else ahead(self._read, places), start)

    def _read(self, index: int) -> Batch:
        split, tokens, texts = self.inputs.pairs.train, self.inputs.tokens["train"], self.rows[index]
        owners = split.image_of_text[texts.numpy()]
        part = self.group.part(len(texts))
        rows, columns = owners, texts
        requests = {method.name: method.batch(owners, texts, index, self.views + index) for method in self.methods}
        for images_and_captions in (request.extra_pairs for request in requests.values() if request.extra_pairs):
            more_images, more_captions = images_and_captions
            rows = np.concatenate([rows, more_images])
            columns = torch.cat([columns, torch.from_numpy(more_captions)])
            part = slice(None)  # a component with extra pairs excludes process groups
        images = split.images.gather(rows, self.views + index, part)
        ids, lengths = tokens.gather(columns, self.words + index)
        added = self._added(requests, texts) if requests or split.values else None
        batch = Batch(torch.from_numpy(np.ascontiguousarray(owners)), images, (ids[part], lengths[part]), added)
        return batch.pinned() if self.inputs.device.type == "cuda" else batch

    def _added(self, requests: Mapping[str, Request], texts: Int[Tensor, " b"]) -> Added:
        columns = self.inputs.pairs.train.values
        values = {name: torch.from_numpy(column[texts.numpy()]).expand(2, -1) for name, column in columns.items()}
        values |= {name: request.values for name, request in requests.items() if request.values is not None}
        meta_batches = [request.meta_batch for request in requests.values() if request.meta_batch is not None]
        return Added(values, self._of_validation(meta_batches[0]) if meta_batches else None)

    def _of_validation(self, texts: Int[np.ndarray, " m"]) -> Batch:
        """Read these captions of the validation split and their images, as in evaluation."""
        split, tokens = self.inputs.pairs.val, self.inputs.tokens["val"]
        owners = np.ascontiguousarray(split.image_of_text[texts])
        return Batch(torch.from_numpy(owners), split.images.gather(owners), tokens.gather(torch.from_numpy(texts)))


@lru_cache(maxsize=4)
def data_fingerprint(inputs: Inputs, model: ModelSettings) -> str:
    """Return the fingerprint of the data set, followed by "+" and that of the pretrained weights that read it."""
    readers = [pretrained.fingerprint(part, inputs.places) for part in model.pretrained]
    return "+".join([inputs.content.fingerprint, *([digest(readers)[:16]] if readers else [])])
