"""The record of a published checkpoint, like that of a finished trial, without a seed, an attempt or a training."""

import torch

from goalgrid.grid.store import imported
from goalgrid.grid.store.files import write_json
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records import provenance, record
from goalgrid.retrieval.published.published_model import PublishedModel
from goalgrid.runners.training.fingerprint import code_fingerprint
from goalgrid.runners.training.inputs import data_fingerprint, protocols_of
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import validation
from goalgrid.runners.trial.loaded_model import LoadedModel


def write_record(loaded: LoadedModel, model: PublishedModel, home: Home, machine: Machine) -> TrialFolder:
    """Evaluate a published checkpoint as a trial is evaluated, and write its record.

    Raises:
        UserError: the runs folder cannot be written.
    """
    settings, inputs = loaded.settings, loaded.inputs
    folder = home.trial(imported.id_of(model.file.digest, settings))
    protocol = settings.dataset.protocol
    by_protocol = {name: loaded.evaluate("test", name).ranks for name in protocols_of(settings)}
    environment = provenance.environment(machine.device.type, machine.device_name, torch.get_num_threads())
    written = record.Trained(
        trial_id=folder.trial_id,
        settings=settings,
        rows=(),
        selected=validation(loaded.evaluate("val").ranks),
        metrics={name: ranks.metrics() for name, ranks in by_protocol.items()},
        ranks={direction: getattr(by_protocol[protocol], direction).tolist() for direction in ("i2t", "t2i")},
        image_of_text=inputs.pairs.test.image_of_text.tolist(),
        replicas=1,
        data_fingerprint=data_fingerprint(inputs, settings.model),
        code_fingerprint=code_fingerprint(settings),
        environment=environment,
    )
    write_json(folder.settings, settings.model_dump(mode="json"), durable=False)
    write_json(folder.environment, environment, durable=False)
    origin = {"file": model.file.path.name, "sha256": model.file.digest, "description": model.map.description}
    imported.note(folder, {**origin, **model.facts})
    record.finish(folder, written)
    return folder
