"""Evaluate the best checkpoint of a finished trial as [evaluate] of its grid specifies, without training."""

from collections.abc import Sequence

from goalgrid.grid.errors import UserError
from goalgrid.grid.protocols import ECCV
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records.models import CAPTIONS, UNKNOWN, FurtherEvaluation
from goalgrid.retrieval import eccv
from goalgrid.retrieval.words.text_readers import Vocabulary
from goalgrid.runners.training.inputs import Inputs, content_of, data_fingerprint
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.loaded_model import LoadedModel, settings_of


def check(settings: TrialSettings, protocols: Sequence[str], machine: Machine) -> str:
    """Return the fingerprint of the data.

    Raises UserError if the data, or the package with the relevance judgements, is not on this machine.
    """
    if ECCV in protocols:
        eccv.judge()
    return content_of(settings.dataset, settings.model.image, machine).fingerprint


def evaluate(settings: TrialSettings, folder: TrialFolder, protocols: Sequence[str], machine: Machine) -> None:
    """Evaluate a finished trial by protocols of the settings' data set, and store the result next to its record.

    Raises UserError if the trial was retrained meanwhile, or cannot be evaluated.
    """
    record = folder.record.stat()
    elsewhere = None if settings.dataset.name == settings_of(folder, machine.catalog).dataset.name else settings
    machine.begin()
    loaded = LoadedModel.of_trial(folder, machine, elsewhere)
    for name in protocols:
        evaluation = loaded.evaluate("test", None if name == ECCV else name)
        metrics = loaded.eccv_metrics(evaluation) if name == ECCV else evaluation.ranks.metrics()
        now = folder.record.stat()
        if (now.st_ino, now.st_mtime_ns) != (record.st_ino, record.st_mtime_ns):
            raise UserError(f"{folder.trial_id} was retrained meanwhile. Run the same command again to evaluate it.")
        metrics, data = metrics | _captions(loaded.inputs), data_fingerprint(loaded.inputs, settings.model)
        FurtherEvaluation(folder.trial_id, name, metrics, data).write(folder.evaluation(name))


def _captions(inputs: Inputs) -> dict[str, float]:
    """Count the captions of the test split and, if the encoder uses a vocabulary, those with unknown words."""
    captions, reader = inputs.pairs.test.captions, inputs.reader
    counts = {CAPTIONS: float(len(captions))}
    if isinstance(reader, Vocabulary):
        unknown = sum(any(word not in reader.index for word in reader.split(caption)) for caption in captions)
        counts[UNKNOWN] = float(unknown)
    return counts
