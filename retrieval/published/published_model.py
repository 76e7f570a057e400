"""Build the model of a published checkpoint: settings from its tensor names, sizes and options, and its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, several, unknown
from goalgrid.grid.sections import put
from goalgrid.grid.settings import DatasetSettings, ObjectiveSettings, TrialSettings, components
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.pretrained_networks import Pretrained
from goalgrid.grid.syntax import differing
from goalgrid.grid.validation_messages import explain
from goalgrid.retrieval.data.precomp import SHORT
from goalgrid.retrieval.encoders.pretrained import Places, locate
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
from goalgrid.retrieval.published.checkpoint_maps import CheckpointMap, first_few, fitting_map, map_of_family, size_at


@dataclass(frozen=True, eq=False)
class PublishedModel:
    """A published checkpoint, converted to our model's settings and weight names."""

    file: CheckpointFile
    map: CheckpointMap
    settings: ModelSettings
    weights: Mapping[str, Tensor]
    words: tuple[str, ...]
    """Words of its vocabulary in index order; empty if it uses a tokenizer."""

    @property
    def dataset(self) -> str:
        """The data set it was trained on, according to its options; empty if unknown."""
        name = str(self.file.options.get("data_name", "")).removesuffix("_precomp")
        return {short: name for name, short in SHORT.items()}.get(name, name)

    def trial(self, dataset: str, objective: str = "triplet-hn") -> TrialSettings:
        """Return the settings of a trial with this model; tables list it under this objective."""
        words = {"words": "nltk"} if self.map.rows else {}
        data = {"name": dataset, "protocol": catalog.protocols(dataset)[0], "max_words": self.map.max_words, **words}
        return TrialSettings(
            dataset=DatasetSettings.model_validate(data),
            recipe=f"{self.map.name}-published",
            model=self.settings,
            train=catalog.recipe(self.map.recipe).train,
            objective=ObjectiveSettings(name=objective),
            seed=0,
        )

    @classmethod
    def of(cls, file: CheckpointFile, family: str, words: Sequence[str], places: Places) -> "PublishedModel":
        """Build the model of a file of this family; raises UserError if tensors, options or words do not match."""
        mapping = map_of_family(file, family)
        if unknown_options := mapping.unknown(file).items():
            wrong = [f"{name} = {value!r}, known is {known!r}" for name, (value, known) in unknown_options]
            raise several(f"{file.path} was trained with options that have no counterpart here", wrong)
        if unread := mapping.unread(file.weights):
            raise several(f"{file.path} as {family}", first_few(unread))
        masked = _check_words(mapping, file, words)
        settings = _model(mapping, file, masked)
        shape = mapping.shape(file.weights)
        networks = (part for part in (settings.image, settings.text) if isinstance(part, Pretrained))
        named = dict.fromkeys(repr(part.weights) for part in networks if locate(part, places))
        try:
            state = class_of(settings)(settings, shape, mapping.words(file.weights), seed=0, places=places).state_dict()
        except UserError as error:
            raise UserError(
                f"{file.path} has other sizes than the weights {' and '.join(named)}, from which its model is "
                f"built: {error} Name the folder of the model that it began with: --weights NAME=DIR."
            ) from error
        weights = mapping.fitted(file.weights, state)
        if problems := mapping.misfits(weights, state, "by its other sizes"):
            raise several(f"{file.path} as {family}", first_few(problems))
        return cls(file, mapping, settings, weights, tuple(words))


def start_weights(file: CheckpointFile, model: DualEncoder, family: str = "") -> dict[str, Tensor]:
    """Return a file's weights for fine-tuning; raises UserError if they do not match the model or the family."""
    mapping, state = map_of_family(file, family) if family else fitting_map(file), model.state_dict()
    weights = mapping.fitted(file.weights, state)
    if problems := mapping.misfits(weights, state, "in the recipe"):
        raise several(
            f"{file.path}, {mapping.description}, does not fit this recipe and these words", first_few(problems)
        )
    return weights


def check_start(file: CheckpointFile, settings: ModelSettings, words: Sequence[str] | None, places: Places) -> str:
    """Report how a file differs from the model that is to be fine-tuned from it; raises UserError if it does not match.

    `words`: the vocabulary, None if no vocabulary file is set.
    """
    mapping = fitting_map(file)
    count = mapping.words(file.weights)
    if mapping.rows:
        if words is None:
            raise UserError(
                f"{file.path} knows words by their index, so train.starts_from needs dataset.vocabulary: the file of "
                "the words that it was trained with, in the data set's folder."
            )
        count = len(words) + (settings.text.word_drop > 0 and "<mask>" not in words)
    start_weights(file, class_of(settings)(settings, mapping.shape(file.weights), count, seed=0, places=places))
    others = differing(_model(mapping, file, masked=True).model_dump(), settings.model_dump())
    known = {key for key in others if key.startswith("scorer.")} | mapping.options.keys() | mapping.set.keys()
    differ = {key: others[key] for key in others if key in known and None not in others[key]} | mapping.unknown(file)
    parts = [f"{key} = {theirs!r}, here {ours!r}" for key, (theirs, ours) in differ.items()]
    return f"{file.path} is {mapping.description} with {'; '.join(parts)}" if parts else ""


def check_whole(path: Path, settings: ModelSettings) -> None:
    """Raise a UserError if a file of weights does not match the complete model of these settings."""
    file, whole, view = CheckpointFile.read(path), settings.whole_file, settings.image.view
    assert whole is not None, "only a model with a file of all its weights is checked"
    assert view is not None, "a model that looks at an image and a caption together reads pixels"
    mapping = map_of_family(file, whole.family)
    with torch.device("meta"):  # its shapes are enough
        model = class_of(settings)(settings, (3, view.size, view.size), mapping.words(file.weights), seed=0)
    start_weights(file, model, mapping.family)


def _model(mapping: CheckpointMap, file: CheckpointFile, masked: bool) -> ModelSettings:
    content = catalog.recipe(mapping.recipe).model.model_dump()
    try:
        changes = _settings(mapping, file) | ({"text.word_drop": 0.0} if mapping.rows and not masked else {})
        for name, value in changes.items():
            put(content, name, value)
        return ModelSettings.model_validate(content)
    except KeyError as error:
        raise UserError(
            f"{file.path}, {mapping.description}: its sizes cannot be read, since tensors of its image network are "
            f"missing: {error}."
        ) from error
    except ValidationError as error:
        raise several(
            f"{file.path}, {mapping.description}: its sizes do not fit together",
            explain(error, ModelSettings, "model."),
        ) from error


def _settings(mapping: CheckpointMap, file: CheckpointFile) -> dict[str, Any]:
    changes = {**mapping.set, **{name: size_at(file.weights, place) for name, place in mapping.sizes.items()}}
    if mapping.settings_from:
        changes |= components.loaded(mapping.settings_from)(file.weights)
    for name, setting in mapping.options.items():
        if setting.option in file.options:
            value = file.options[setting.option]
            if setting.values and str(value) not in setting.values:
                raise UserError(
                    unknown(setting.option, value, setting.values, where=f"among the options of {file.path}")
                )
            changes[name] = setting.values.get(str(value), value)
    return changes


def _check_words(mapping: CheckpointMap, file: CheckpointFile, words: Sequence[str]) -> bool:
    """Check that the vocabulary is the model's; return whether the model has an additional mask token."""
    if mapping.rows is None:
        if words:
            raise UserError(f"{file.path} reads the pieces of a tokenizer, so --vocabulary has no use: leave it out.")
        return False
    if not words:
        raise UserError(
            f"no vocabulary given: {file.path} knows words by their index. Give --vocabulary FILE, e.g. VSE++'s "
            "vocab/f30k_precomp_vocab.pkl or SCAN's vocab/f30k_precomp_vocab.json."
        )
    rows = size_at(file.weights, mapping.rows)
    masked = getattr(catalog.recipe(mapping.recipe).model.text, "word_drop", 0.0) > 0
    if rows not in ((len(words), len(words) + 1) if masked else (len(words),)):
        raise UserError(
            f"the vocabulary has {len(words):,} words, and {file.path} {rows:,} ({mapping.rows[0]}): it is another "
            "model's. Take the vocabulary that the model was trained with."
        )
    return masked and rows == len(words) + 1
