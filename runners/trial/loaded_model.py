"""A model with its trained weights and its data, for evaluation after training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from pydantic import ValidationError
from torch import Tensor
from torch.nn.utils.rnn import unpad_sequence

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError, parsed_json, regular_bytes
from goalgrid.grid.protocols import protocol
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store import imported
from goalgrid.grid.store.files import read_json, write_json
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records import provenance, record
from goalgrid.results.records.finished_trial import FinishedTrial
from goalgrid.results.records.models import Speed
from goalgrid.retrieval import eccv
from goalgrid.retrieval.data.photographs import Photographs
from goalgrid.retrieval.encoders.calls.called import as_called
from goalgrid.retrieval.evaluation import Ranks, Rows
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.published.published_model import PublishedModel
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.words import text_readers
from goalgrid.runners.training import checkpoints, training_methods
from goalgrid.runners.training.embedding import EMBED_BATCH, TILE, Captions, embedded, ranked, ranks_of_test, scored
from goalgrid.runners.training.fingerprint import code_fingerprint
from goalgrid.runners.training.inputs import Inputs, data_fingerprint, prepare, protocols_of
from goalgrid.runners.training.learner import model_of
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import best_of
from goalgrid.runners.training.trainer import validation


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A split embedded by a model, the image that each caption describes, and the ranks."""

    image: Rows
    text: Rows
    image_of_text: Int[np.ndarray, " t"]
    ranks: Ranks

    def arrays(self) -> dict[str, np.ndarray]:
        """Return embeddings and ranks as named arrays.

        `images` (i, d) and `texts` (t, d) are unit vectors. For a set scorer, `images` is (i, n, d), and `texts` is the
        concatenated words of all captions, with `text_sizes` words each. If the scorer also reads one global vector,
        there are `image_wholes` and `text_wholes`.
        """
        tensors: dict[str, Any] = {"images": getattr(self.image, "vectors", self.image), "texts": self.text}
        if isinstance(self.text, Captions):
            with torch.inference_mode():
                texts = [self.text[start : start + EMBED_BATCH].sets for start in range(0, len(self.text), EMBED_BATCH)]
            words = [
                caption for part in texts for caption in unpad_sequence(part.vectors, part.sizes, batch_first=True)
            ]
            tensors |= {"texts": torch.cat(words), "text_sizes": torch.cat([part.sizes for part in texts])}
            wholes = [part.whole for part in texts if part.whole is not None]
            if wholes and isinstance(self.image, TokenSets):
                tensors |= {"image_wholes": self.image.whole, "text_wholes": torch.cat(wholes)}
        named = {name: value.float().cpu().numpy() if value.is_floating_point() else value.numpy()
                 for name, value in tensors.items()}  # fmt: skip
        ranks = {"i2t_ranks": self.ranks.i2t, "t2i_ranks": self.ranks.t2i}
        return {**named, "image_of_text": self.image_of_text, **ranks}


SCORED, SCORED_SETS = 1000, 64
"""Number of images and captions in the scoring benchmark: for vectors, and for sets."""
SECONDS = 0.3
"""Duration of the scoring benchmark in seconds."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A trained model, with the data to evaluate it on."""

    model: DualEncoder
    settings: TrialSettings
    inputs: Inputs
    learnt: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """The objective's learnt weights, as returned by `Learner.learnt`; empty if none were kept."""
    trial: FinishedTrial | None = None
    """The finished trial of the model, if evaluated on the data it was trained on; else None."""

    @classmethod
    def of_trial(cls, folder: TrialFolder, machine: Machine, elsewhere: TrialSettings | None = None) -> "LoadedModel":
        """Load the model of a finished trial, with the weights that produced the test metrics in its record.

        Args:
            elsewhere: the trial's settings with other data; None: the data it was trained on.

        Raises:
            DataError: it was trained on other data, and `elsewhere` is None.
            UserError: a file of the trial does not match its record; its weights cannot be read, were not kept, or do
                not fit the data.
        """
        trained, trial = settings_of(folder, machine.catalog), FinishedTrial.read(folder)
        settings = elsewhere or trained
        inputs = prepare(settings, machine, _words(trial))
        trial.check_vocabulary(inputs.vocabulary)
        content = best_of(folder, inputs.device)
        before, now = content["sources"]["data"], data_fingerprint(inputs, settings.model)
        if before != now and elsewhere is None:
            raise DataError(
                f"{folder.trial_id} was trained on data that have changed since ({before} -> {now}). Retrain it: "
                "goalgrid resume GRID --stale. To evaluate it on other data: goalgrid evaluate --root DIR."
            )
        learnt: dict[str, Mapping[str, Tensor]] = {
            name: content[name] for name in training_methods.learning(settings) if name in content
        }
        loaded = cls.with_weights(content["model"], settings, inputs)
        return replace(loaded, learnt=learnt, trial=None if elsewhere else trial)

    @classmethod
    def of_published(cls, model: PublishedModel, settings: TrialSettings, machine: Machine) -> "LoadedModel":
        """Load a published checkpoint, with settings that describe its model; raise UserError if data do not fit."""
        inputs = prepare(settings, machine, model.words)
        shape = inputs.pairs.train.images.shape
        if len(shape) != len(model.map.image):
            reads = "one vector per image" if len(model.map.image) == 1 else "several vectors per image"
            raise UserError(f"{model.map.description} reads {reads}; the images of these data have the shape {shape}.")
        return cls.with_weights(model.weights, settings, inputs)

    @classmethod
    def with_weights(cls, weights: Mapping[str, Tensor], settings: TrialSettings, inputs: Inputs) -> "LoadedModel":
        """Build a model with these weights; raise UserError if they were trained on another kind of data."""
        model = model_of(settings, inputs)
        state = model.state_dict()
        for name, value in weights.items():
            if name not in state or state[name].shape != value.shape:
                here = tuple(state[name].shape) if name in state else "not there"
                raise UserError(
                    f"the weights do not fit these data: {name} is {tuple(value.shape)} in the checkpoint, and {here} "
                    f"for images of shape {inputs.pairs.train.images.shape} and {len(inputs.reader):,} words. "
                    "Give data of the kind that it was trained on."
                )
        model.load_weights(weights)
        return cls(model, settings, inputs)

    def evaluate(self, split_name: str, protocol_name: str | None = None) -> Evaluation:
        """Rank a split by a protocol's folds (None: all at once). A second stage is only used on the test split."""
        if split_name == "test":
            test, by_protocol = ranks_of_test(self.model, self.settings, self.inputs, [protocol_name])
            return Evaluation(*test, by_protocol[protocol_name])
        split = embedded(self.model, self.settings, self.inputs, split_name)
        fold = protocol(protocol_name).fold if protocol_name else None
        return Evaluation(*split, ranked(self.model, *split, fold))

    def check_numbers(self, recorded: Mapping[str, float], ranks: Ranks) -> None:
        """Check that the ranks of a split reproduce the recorded metrics; raise UserError if not."""
        if self.trial is not None:
            queries = min(len(ranks.i2t), len(ranks.t2i))
            self.trial.check_numbers(recorded, ranks.metrics(), queries, self._others)

    def _others(self) -> list[str]:
        """Return differences between the trial's training and this process that may change rounding."""
        assert self.trial is not None
        device = self.inputs.device
        now = environment_on(device)
        code = provenance.code_differs(self.trial.row["code_fingerprint"], code_fingerprint(self.settings))
        differences = [*provenance.elsewhere(self.trial.noted, now), *([code] if code else [])]
        if device.type != "cpu":
            differences.append("a GPU, whose sums differ from run to run")
        return [*differences, *(["train.compile"] if self.settings.train.compile else [])]

    def photographs(self, machine: Machine, regions: int) -> Photographs:
        """Return the images of the test split for figures, with this number of regions each."""
        name, view = self.settings.dataset.name, as_called(self.settings.model.image, machine.places).view
        columns, copies = machine.columns_of(name), machine.data
        return Photographs(self.inputs.pairs.test, name, machine.root(name), view, regions, columns, copies)

    def speed(self, protocol_name: str | None = None) -> Speed:
        """Measure how fast the model evaluates its test split on this device, in wall-clock time."""
        begun = perf_counter()
        evaluation = self.evaluate("test", protocol_name)
        whole = perf_counter() - begun
        side = SCORED_SETS if self.model.scorer else SCORED
        image, text = evaluation.image[:side], evaluation.text[:side]
        times = list[float]()
        while len(times) < 4 or sum(times) < SECONDS:
            begun = perf_counter()
            with torch.inference_mode():
                scored(self.model, image, text).sum().item()  # waits for the device
            times.append(perf_counter() - begun)
        queries = len(evaluation.ranks.i2t) + len(evaluation.ranks.t2i)
        device = self.inputs.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else provenance.processor()
        # Warm-up; with a set scorer, the first call also embeds the captions.
        pairs = len(image) * len(text) / min(times[1:])
        return Speed(pairs, queries / whole, *self.model.sizes, name, torch.get_num_threads())

    def eccv_metrics(self, evaluation: Evaluation) -> dict[str, float]:
        """Return ECCV Caption and CxC metrics on COCO's test split; raises UserError like `eccv.metrics`."""
        by_scorer = partial(scored, self.model) if self.model.scorer else None
        part, read = TILE[evaluation.image.device.type], (evaluation.image, evaluation.text, evaluation.image_of_text)
        with torch.inference_mode():
            return eccv.metrics(*read, by_scorer, part=part if by_scorer else None, ids=self.inputs.pairs.test.ids)


def environment_on(device: torch.device) -> dict[str, Any]:
    """Describe the hardware and software of this process, for a device and the current number of threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return provenance.environment(device.type, name, torch.get_num_threads())


def settings_of(folder: TrialFolder, known: Catalog) -> TrialSettings:
    """Read the settings that a trial was trained with; raise UserError if damaged or different from its record."""
    try:
        settings = known.validated(TrialSettings, read_json(folder.settings))
    except ValidationError as error:
        raise UserError(
            f"the settings {folder.settings} are missing or damaged. "
            "Retrain its trial: goalgrid run GRID --force --only FILTER."
        ) from error
    if folder.is_done():
        FinishedTrial.read(folder).check_settings(settings, known)
    return settings


def _words(trial: FinishedTrial) -> tuple[str, ...]:
    """Return the vocabulary of the trial's model, empty if it uses a tokenizer; raise UserError if unreadable."""
    path = trial.folder.vocabulary
    try:
        words = parsed_json(regular_bytes(path))
    except (OSError, ValueError) as error:
        raise UserError(f"the vocabulary {path} cannot be read: {error}. Retrain its trial.") from error
    if isinstance(words, list):
        trial.check_vocabulary(text_readers.fingerprint(words))
    return tuple(words) if isinstance(words, list) else ()


def ranker(folder: Path, machine: Machine) -> tuple[str, Callable[[], tuple[Rows, Rows, np.ndarray]]]:
    """Return a checksum of a finished trial's model, and a function that embeds the training split with it."""
    trial = TrialFolder(folder)

    def embed() -> tuple[Rows, Rows, np.ndarray]:
        loaded = LoadedModel.of_trial(trial, machine)
        return embedded(loaded.model, loaded.settings, loaded.inputs, "train")

    return checkpoints.checksum(trial.best_checkpoint), embed


def trained(
    trial_id: str, settings: TrialSettings, inputs: Inputs, by_protocol: Mapping[str, Ranks], **more: Any
) -> record.Trained:
    """Build the record of an evaluated model; `more` are the other fields of `record.Trained`."""
    ranks = by_protocol[settings.dataset.protocol]
    metrics = {name: part.metrics() for name, part in by_protocol.items()}
    by_direction = {"i2t": ranks.i2t.tolist(), "t2i": ranks.t2i.tolist()}
    owners = inputs.pairs.test.image_of_text.tolist()
    return record.Trained(trial_id, settings, metrics, by_direction, owners, **more)


def write_record(loaded: LoadedModel, model: PublishedModel, home: Home, machine: Machine) -> TrialFolder:
    """Evaluate a published checkpoint like a trial, and write its record."""
    settings, inputs = loaded.settings, loaded.inputs
    folder = home.trial(imported.id_of(model.file.digest, settings))
    _, by_protocol = ranks_of_test(loaded.model, settings, inputs, protocols_of(settings))
    environment = environment_on(machine.device)
    written = trained(
        folder.trial_id, settings, inputs, by_protocol, selected=validation(loaded.evaluate("val").ranks),
        data_fingerprint=data_fingerprint(inputs, settings.model), code_fingerprint=code_fingerprint(settings),
        environment=environment, parameters=loaded.model.sizes,
    )  # fmt: skip
    write_json(folder.settings, settings.model_dump(mode="json"), durable=False)
    write_json(folder.environment, environment, durable=False)
    origin = {"file": model.file.path.name, "sha256": model.file.digest, "description": model.map.description}
    write_json(folder.imported, {**origin, **model.file.facts}, durable=False)
    record.finish(folder, written)
    return folder
