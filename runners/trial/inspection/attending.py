"""The attention of a trained model of sets, between a caption's words and an image's regions."""

import re

import numpy as np
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.figures.attention_map import AttentionMap
from goalgrid.retrieval.data.photographs import Photograph
from goalgrid.retrieval.encoders.text import features_of, text_network
from goalgrid.retrieval.scorers.sets import Sets
from goalgrid.retrieval.words.text_readers import Vocabulary
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.precision import precision
from goalgrid.runners.trial.loaded_model import LoadedModel


class TrialAttention:
    """The model of a finished trial with the images of its test split.

    Raises:
        UserError: its weights cannot be read, or are not kept; or it was trained on other data.
    """

    def __init__(self, folder: TrialFolder, machine: Machine) -> None:
        self.trial = folder.trial_id
        self.member = LoadedModel.of_trial(folder, machine)
        self.member.model.eval()
        self.photographs = self.member.photographs(machine, regions=len(self._embedded(0)))

    def draw(self, row: int, caption: str) -> AttentionMap:
        """The attention between the image in this row and a caption.

        Args:
            caption: the number of a caption of the image, from 1; or a text.

        Raises:
            UserError: the image has no caption of this number, or the text has no known word.
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
        """The regions of the image, as the scorer reads them."""
        member = self.member
        pixels = member.inputs.pairs.test.images.gather(np.array([row])).to(member.inputs.device)
        with torch.inference_mode(), precision(member.settings, member.inputs.device):
            sets = member.model.networks[0].embed_images(pixels)
        assert isinstance(sets, Sets)
        return sets.full().vectors[0]

    def _read(self, text: str) -> tuple[list[int], torch.Tensor]:
        """The words of a caption as indices, and as the scorer reads them."""
        member, reader = self.member, self.member.inputs.reader
        encoder = member.settings.model.text
        prompt, cut = getattr(encoder, "prompt", ""), encoder.longest(member.settings.dataset.max_words)
        read = [f"{prompt} {text}" if prompt else text, text]
        whole, alone = (reader.encode([words], max_words=cut) for words in read)
        if isinstance(reader, Vocabulary) and not bool((alone.ids >= reader.first).any()):
            raise UserError(
                f"caption {text!r} has no word that {self.trial} knows: they stand in its vocabulary.json. Give other "
                "words, or the number of a caption of the image."
            )
        with torch.inference_mode(), precision(member.settings, member.inputs.device):
            ids = whole.ids.to(member.inputs.device)
            if network := member.settings.model.text.feature_network:
                backbone = text_network(network, len(reader), member.inputs.places).eval().to(ids.device)
                ids = features_of(backbone, network.output, ids, whole.lengths)
            sets = member.model.networks[0].embed_texts(ids, whole.lengths)
        assert isinstance(sets, Sets)
        return whole.ids[0].tolist(), sets.full().vectors[0]


def _chosen(photograph: Photograph, caption: str) -> str:
    """The text of a caption by its number among those of the image, or the text itself."""
    if not re.fullmatch(r"-?\d+", caption):
        return caption
    number, captions = int(caption), photograph.captions
    if not 1 <= number <= len(captions):
        numbered = "; ".join(f"{place}: {text}" for place, text in enumerate(captions, 1))
        raise UserError(f"image {photograph.name!r} has no caption {number}. Its captions: {numbered}.")
    return captions[number - 1]
