"""The answers of a trained model to queries of the test split."""

import numpy as np
import torch

from goalgrid.grid.protocols import protocol
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.analysis.example_queries import SHOWN, ExampleQuery
from goalgrid.results.figures.retrieval_examples import RetrievalExamples, Retrieved, Shown
from goalgrid.runners.training.embedding import embedded, scored
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.loaded_model import LoadedModel


class TrialRetrieval:
    """The model of a finished trial with its test split, embedded.

    Raises:
        UserError: its weights cannot be read, or are not kept; or it was trained on other data.
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
        """The queries with their first answers."""
        return RetrievalExamples(self.trial, [self._retrieved(query) for query in queries])

    def first(self, direction: str, row: int) -> list[int]:
        """Rows of the answers with the highest scores, within the fold in which the query is ranked."""
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
