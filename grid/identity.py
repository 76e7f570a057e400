"""Trial identity: same settings, same id, same experiment; and the random seeds derived from the settings."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from pydantic import BaseModel

from goalgrid.grid.objectives import identifying
from goalgrid.grid.settings import ObjectiveSettings, TrialSettings
from goalgrid.grid.settings.base import IdentityDefault, NoIdentity

SCHEMA_VERSION: int = TrialSettings.model_fields["schema_version"].default


def canonical(settings: BaseModel) -> dict[str, Any]:
    """The settings as plain values, without those that equal their frozen identity default or change no number."""
    content: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        marks = field.metadata
        if NoIdentity in marks or any(isinstance(m, IdentityDefault) and m.value == value for m in marks):
            continue
        content[name] = _plain(value)
    if isinstance(settings, ObjectiveSettings):
        content["parameters"] = _plain(identifying(settings.name, settings.parameters))
    return content


def canonical_json(content: Any) -> str:
    """JSON with sorted keys, no spaces, -0.0 as 0.0, and settings as `canonical` gives them."""
    return json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(content: Any) -> str:
    """SHA-256 over canonical JSON."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def cell_ids(
    readable: str,
    recipe: str,
    seeds: Iterable[int],
    parents: Iterable[Sequence[str]],
    *,
    dataset: str,
    model: str,
    train: str,
    objective: str,
    ensemble: bool = False,
    rankers: Sequence[str] = (),
) -> list[str]:
    """Readable, plus a hash of everything: `flickr8k_fc-bow_sig-ms_cir_s0-3fa94c21`, for each seed of a cell.

    The hash is the `digest` of the trial's canonical settings; what all seeds share is written and hashed once.

    `parents` are ids of the members of an ensemble, seed by seed, else the id of the trial that it starts from;
    `rankers` those that rank the training split. The sections are canonical JSON.
    """
    first, before = f'"model":{model},"objective":{objective},', f'"recipe":{_quoted(recipe)}'
    before += f',"schema_version":{SCHEMA_VERSION},"seed":'
    begun = hashlib.sha256(f'{{"dataset":{dataset},{first}{before}'.encode())
    rest, ids = f',"train":{train}}}'.encode(), list[str]()
    for place, (seed, named) in enumerate(zip(seeds, parents, strict=True)):
        starts_from, hashed = b"", begun.copy()
        if rankers:
            ranker = f'"ranker":{_quoted(rankers[place])},'
            hashed = hashlib.sha256(f'{{"dataset":{dataset},{first}{ranker}{before}'.encode())
        if ensemble:
            begins = f'{{"dataset":{dataset},"ensemble":{canonical_json(named)},{first}{before}'
            hashed = hashlib.sha256(begins.encode())
        elif named:
            starts_from = f',"starts_from":{_quoted(named[0])}'.encode()
        hashed.update(b"%d%b%b" % (seed, starts_from, rest))
        ids.append(f"{readable}_s{seed}-{hashed.hexdigest()[:8]}")
    return ids


def trial_id(settings: TrialSettings) -> str:
    """The id of a trial, from all its settings at once; `cell_ids` gives the same for the seeds of a cell."""
    readable = f"{settings.dataset.name}_{settings.recipe}_{settings.objective.name}_s{settings.seed}"
    return f"{readable}-{digest(settings)[:8]}"


def derived_seed(settings: TrialSettings, purpose: str) -> int:
    """A 63-bit seed for a purpose ("weights", "batches", "dropout").

    It depends on (dataset, recipe, seed) only: all objectives and swept values of one seed start from the same
    weights and see the same batches, and a value added to an axis moves nobody else's seed.
    """
    return int(digest([settings.dataset.name, settings.recipe, settings.seed, purpose])[:16], 16) >> 1


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return canonical(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value + 0.0
    return value
