"""Inspect a trained model: attention between words and regions, and results of test queries."""

import re

import numpy as np
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.protocols import protocol
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.analysis.queries import SHOWN, ExampleQuery
from goalgrid.results.figures.trial import AttentionMap, RetrievalExamples, Retrieved, Shown
from goalgrid.retrieval.data.photographs import Photograph
from goalgrid.retrieval.encoders.calls.called import as_called
from goalgrid.retrieval.encoders.text import features_of, text_network
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.retrieval.words.text_readers import Vocabulary
from goalgrid.runners.training.embedding import embedded, scored
from goalgrid.runners.training.machine import Machine, precision
from goalgrid.runners.trial.loaded_model import LoadedModel


class TrialAttention:
    """The model of a finished trial, with the images of its test split.

    Raises UserError like `LoadedModel.of_trial`.
    """

    def __init__(self, folder: TrialFolder, machine: Machine) -> None:
        self.trial = folder.trial_id
        self.member = LoadedModel.of_trial(folder, machine)
        self.member.model.eval()
        self.photographs = self.member.photographs(machine, regions=len(self._embedded(0)))

    def draw(self, row: int, caption: str) -> AttentionMap:
        """Return the attention between an image and a text, or the image's caption with this number.

        Raises UserError if the image has no such caption.
        """
        photograph = self.photographs.of(row)
        text = _chosen(photograph, caption)
        ids, vectors = self._read(text)
        assert self.member.model.scorer is not None
        with torch.inference_mode():
            looks = self.member.model.scorer.looks(self._embedded(row), vectors)
        weights = {direction: attention.cpu().numpy() for direction, attention in looks.items()}
        words = tuple(self.member.inputs.reader.spelled(ids))
        return AttentionMap(self.trial, photograph.name, text, words, weights, photograph.picture, photograph.boxes)

    def _embedded(self, row: int) -> torch.Tensor:
        """Return the region vectors of the image, as the scorer reads them."""
        member = self.member
        pixels = member.inputs.pairs.test.images.gather(np.array([row])).to(member.inputs.device)
        with torch.inference_mode(), precision(member.settings, member.inputs.device):
            sets = member.model.networks[0].embed_images(pixels)
        assert isinstance(sets, TokenSets)
        return sets.full().vectors[0]

    def _read(self, text: str) -> tuple[list[int], torch.Tensor]:
        """Return the words of a caption as indices, and as the vectors that the scorer reads."""
        member, reader = self.member, self.member.inputs.reader
        encoder = as_called(member.settings.model.text, member.inputs.places)
        cut = encoder.longest(member.settings.dataset.max_words)
        whole, alone = (reader.encode([words], max_words=cut) for words in (encoder.prompted(text), text))
        if isinstance(reader, Vocabulary) and not bool((alone.ids >= reader.first).any()):
            raise UserError(
                f"caption {text!r} has no word in the vocabulary of {self.trial} (see its vocabulary.json). Give other "
                "words, or the number of a caption of the image."
            )
        with torch.inference_mode(), precision(member.settings, member.inputs.device):
            ids = whole.ids.to(member.inputs.device)
            if network := member.settings.model.text.feature_network:
                backbone = text_network(network, len(reader), member.inputs.places).eval().to(ids.device)
                ids = features_of(backbone, network.output, ids, whole.lengths)
            sets = member.model.networks[0].embed_texts(ids, whole.lengths)
        assert isinstance(sets, TokenSets)
        return whole.ids[0].tolist(), sets.full().vectors[0]


def _chosen(photograph: Photograph, caption: str) -> str:
    """Return the image's caption with this number, or the text itself if it is not a number."""
    if not re.fullmatch(r"-?\d+", caption):
        return caption
    number, captions = int(caption), photograph.captions
    if not 1 <= number <= len(captions):
        numbered = "; ".join(f"{place}: {text}" for place, text in enumerate(captions, 1))
        raise UserError(f"image {photograph.name!r} has no caption {number}. Its captions: {numbered}.")
    return captions[number - 1]


class TrialRetrieval:
    """The model of a finished trial, with the embeddings of its test split.

    Raises UserError like `LoadedModel.of_trial`.
    """

    def __init__(self, folder: TrialFolder, machine: Machine) -> None:
        self.trial = folder.trial_id
        self.member = LoadedModel.of_trial(folder, machine)
        settings, self.split = self.member.settings, self.member.inputs.pairs.test
        self.image, self.text, self.image_of_text = embedded(self.member.model, settings, self.member.inputs, "test")
        self.fold = protocol(settings.dataset.protocol).fold or len(self.split.images)
        shape = self.split.images.shape
        self.photographs = self.member.photographs(machine, regions=shape[0] if len(shape) == 2 else 1)

    def examples(self, queries: list[ExampleQuery]) -> RetrievalExamples:
        """Return the queries with their top results."""
        return RetrievalExamples(self.trial, [self._retrieved(query) for query in queries])

    def first(self, direction: str, row: int) -> list[int]:
        """Return the rows of the results with the highest scores, within the fold in which the query is ranked."""
        image = row if direction == "i2t" else int(self.image_of_text[row])
        images = np.arange(image // self.fold * self.fold, min((image // self.fold + 1) * self.fold, len(self.image)))
        texts = np.flatnonzero(np.isin(self.image_of_text, images))
        among, (i, t) = (texts, ([row], texts)) if direction == "i2t" else (images, (images, [row]))
        with torch.inference_mode():
            scores = scored(self.member.model, self.image[torch.as_tensor(i)], self.text[torch.as_tensor(t)])
        order = scores.flatten().float().argsort(descending=True, stable=True)[:SHOWN].tolist()
        return [int(among[place]) for place in order]

    def _retrieved(self, query: ExampleQuery) -> Retrieved:
        answers = self.first(query.direction, query.row)
        if query.direction == "i2t":
            right = [int(self.image_of_text[answer]) == query.row for answer in answers]
            return Retrieved(query.why, self._image(query.row), [self._caption(row) for row in answers], right)
        right = [answer == int(self.image_of_text[query.row]) for answer in answers]
        return Retrieved(query.why, self._caption(query.row), [self._image(row) for row in answers], right)

    def _caption(self, row: int) -> Shown:
        return Shown(self.split.captions[row])

    def _image(self, row: int) -> Shown:
        photograph = self.photographs.of(row)
        return Shown(photograph.name, photograph.picture)
