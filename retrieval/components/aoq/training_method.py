"""AOQ's training method: each pair of a batch is also compared with negatives from the whole training split."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import DatasetSettings, TrialSettings
from goalgrid.objectives.mining import full
from goalgrid.objectives.triplets import Extra
from goalgrid.retrieval.components.aoq.candidates import Candidates, rank
from goalgrid.retrieval.components.training_method import Around, Cost, Request, TrainingMethod
from goalgrid.retrieval.scorers.sets import Embedded, TokenSets
from goalgrid.retrieval.splits.pairs import Pairs


class OfflineNegatives(TrainingMethod):
    """Draws negatives for each pair from candidates ranked by a trained model.

    The images of a batch are those of its pairs, the drawn images, and the images of the drawn captions; its captions
    are those of its pairs, the drawn captions, and captions of the drawn images.
    """

    name: ClassVar[str] = "offline"
    cost: ClassVar[Cost] = Cost(extra_pairs=2)
    prepared: Candidates
    _draw = 0

    @classmethod
    def check(cls, dataset: DatasetSettings, root: Path | None, pairs: Pairs) -> None:
        if dataset.candidates:
            Candidates.open(folder_of(dataset, root), pairs.train, fingerprint="not needed here")

    @classmethod
    def prepare(cls, settings: TrialSettings, pairs: Pairs, around: Around) -> Candidates:
        if settings.ranker:
            return ranked_by(settings.ranker, pairs, around)
        return Candidates.open(folder_of(settings.dataset, around.root), pairs.train)

    @classmethod
    def rehearsal(cls, pairs: Pairs) -> Candidates:
        """Return one arbitrary negative per image and caption, without a ranking model."""
        split = pairs.train
        others = np.roll(np.arange(len(split.captions), dtype=np.int32), 1)
        captions = np.zeros((len(split.images), 1), dtype=np.int32)
        captions[split.image_of_text, 0] = others
        return Candidates(captions, split.image_of_text[others].astype(np.int32)[:, None], split.image_of_text, "")

    @classmethod
    def sources(cls, prepared: Candidates) -> dict[str, str]:
        return {"negatives": prepared.fingerprint}

    def begin(self, epoch: int, order: Any) -> None:
        self._draw = derived_seed(self.settings, f"negatives of epoch {epoch}")

    def batch(self, owners: Int[np.ndarray, " b"], texts: Int[Tensor, " b"], index: int, seed: int) -> Request:
        images, captions = self.prepared.draw(owners, texts.numpy(), self._draw + index)
        return Request(extra_pairs=(images.ravel(), captions.ravel()))

    def split(self, network: Any, image: Embedded, text: Embedded, count: int) -> tuple[Embedded, Embedded, Extra]:
        values = {"offline": self.scores(network.scorer, image, text, count)}
        return image[:count], text[:count], values

    def scores(self, scorer: Any, image: Embedded, text: Embedded, count: int) -> Float[Tensor, "2 b 2"]:
        """Score each pair against its offline negatives, and the negatives against each other, per direction.

        AOQ's four scores: image and drawn caption; drawn image and caption; drawn image and drawn caption; image of the
        drawn caption and caption of the drawn image.
        """
        pair = torch.arange(count, device=self.device)
        rows = torch.stack([pair, pair + count, pair + count, pair + 2 * count])
        columns = torch.stack([pair + count, pair, pair + count, pair + 2 * count])
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            scores = torch.linalg.vecdot(full(image)[rows], full(text)[columns])
        else:
            assert isinstance(image, TokenSets)
            assert isinstance(text, TokenSets)
            if scorer.by_pair:
                scores = scorer.pairs(image, text, rows.flatten(), columns.flatten()).view(4, count)
            else:
                parts = zip(rows, columns, strict=True)
                scores = torch.stack([scorer(image[row], text[column]).diagonal() for row, column in parts])
        return torch.stack([scores[:2], scores[2:]], dim=-1)


def folder_of(dataset: DatasetSettings, root: Path | None) -> Path:
    """Return the folder `dataset.candidates` below the data set's root; raise UserError if there is none."""
    if root is None or dataset.candidates is None:
        raise UserError(
            f"data set {dataset.name!r} has no folder, so dataset.candidates = {dataset.candidates!r} cannot be found."
        )
    return root / dataset.candidates


def ranked_by(trial: str, pairs: Pairs, around: Around) -> Candidates:
    """Rank candidates with a finished trial's model; cache them. Raise UserError if the model cannot rank."""
    mark, embed = around.ranker(trial)
    folder = around.cache / f"negatives-{trial}-{mark[:12]}"
    if not all((folder / name).exists() for name in ("i2t.npy", "t2i.npy")):
        image, text, owners = embed()
        if not (isinstance(image, Tensor) and isinstance(text, Tensor)):
            raise UserError(
                f"trial {trial} scores token sets; a ranker must embed each image and caption as one vector."
            )
        with torch.inference_mode():
            rank(folder, image, text, owners, around.beat)
    return Candidates.open(folder, pairs.train, mark)
