"""The offline negatives of a trial: read from files, or ranked by the model of another trial and kept on the disk."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import reads_offline
from goalgrid.grid.settings import DatasetSettings, TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.offline_negatives import OfflineNegatives, rank
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.embedding import embedded
from goalgrid.runners.training.inputs import Inputs
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.loaded_model import LoadedModel


def negatives_of(
    settings: TrialSettings, inputs: Inputs, trials: Path, machine: Machine, beat: Callable[[], None] = lambda: None
) -> OfflineNegatives | None:
    """The candidates for this trial's batches, ranked here if need be. None: the objective reads no candidates.

    Args:
        trials: the folder of all trials.
        beat: called after each step of the ranking.

    Raises:
        UserError: the ranker is not done, or files are missing or of another split.
    """
    if settings.ensemble or not reads_offline(settings.objective.name):
        return None
    if settings.ranker:
        return ranked_by(TrialFolder(trials / settings.ranker), inputs, machine, beat)
    return OfflineNegatives.open(candidates(settings.dataset, machine), inputs.pairs.train)


def candidates(dataset: DatasetSettings, machine: Machine) -> Path:
    """The folder with candidates that the data set's settings name.

    Raises:
        UserError: they name none, or the data set has no folder.
    """
    root, name = machine.root(dataset.name), dataset.candidates
    if root is None or name is None:
        raise UserError(f"data set {dataset.name!r} has no folder, so no dataset.candidates = {name!r} in it.")
    return root / name


def ranked_by(
    ranker: TrialFolder, inputs: Inputs | None, machine: Machine, beat: Callable[[], None] = lambda: None
) -> OfflineNegatives:
    """The candidates that a finished trial's model ranks, kept in the feature cache.

    Args:
        inputs: for which the candidates are ranked; None: those of the ranker.

    Raises:
        DataError: the ranker read another training split.
        UserError: it is not done, or its model gives no single vectors.
    """
    if not ranker.is_done():
        raise UserError(
            f"trial {ranker.trial_id}, which ranks the training split, is not done. Train it first: goalgrid run GRID."
        )
    mark = checkpoints.checksum(ranker.best_checkpoint)
    folder = machine.features / f"negatives-{ranker.trial_id}-{mark[:12]}"
    if not all((folder / name).exists() for name in ("i2t.npy", "t2i.npy")):
        loaded = LoadedModel.of_trial(ranker, machine)
        image, text, owners = embedded(loaded.model, loaded.settings, loaded.inputs, "train")
        if not (isinstance(image, Tensor) and isinstance(text, Tensor)):
            raise UserError(f"trial {ranker.trial_id} scores by sets; a ranker gives a vector an image and a caption.")
        with torch.inference_mode():
            rank(folder, image, text, owners, beat)
        inputs = inputs or loaded.inputs
    elif inputs is None:
        inputs = LoadedModel.of_trial(ranker, machine).inputs
    return OfflineNegatives.open(folder, inputs.pairs.train, mark)
