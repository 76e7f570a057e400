"""Trial ids, which are equal for equal settings, and random seeds derived from the settings."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from pydantic import BaseModel

from goalgrid.grid.settings import ObjectiveSettings, TrialSettings
from goalgrid.grid.settings.base import IdentityDefault, NoIdentity

SCHEMA_VERSION: int = TrialSettings.model_fields["schema_version"].default


def canonical(settings: BaseModel) -> dict[str, Any]:
    """Return the settings as plain values, without those that do not affect results or equal their identity default."""
    content: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        marks = field.metadata
        if NoIdentity in marks or any(isinstance(m, IdentityDefault) and m.value == value for m in marks):
            continue
        content[name] = _plain(value)
    if isinstance(settings, ObjectiveSettings):
        content["parameters"] = _plain(settings.entry.identifying(settings.parameters))
    return content


def canonical_json(content: Any) -> str:
    """Serialise to JSON with sorted keys and no spaces; convert -0.0 to 0.0, and settings by `canonical`."""
    return json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(content: Any) -> str:
    """Return the SHA-256 of the canonical JSON."""
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
    """Return the trial ids of a cell, one per seed: `flickr8k_fc-bow_sig-ms_cir_s0-3fa94c21`.

    An id is a readable name and a hash, the `digest` of the trial's canonical settings.

    Args:
        parents: for each seed, the ids of an ensemble's members, or the id of the start trial, if any.
        dataset, model, train, objective: the sections of the settings in canonical JSON.
        rankers: for each seed, the id of the trial that ranks the training split; empty if there are none.
    """
    ids, quoted = list[str](), _quoted(recipe)
    for place, (seed, named) in enumerate(zip(seeds, parents, strict=True)):
        members = f'"ensemble":{canonical_json(named)},' if ensemble else ""
        ranker = f'"ranker":{_quoted(rankers[place])},' if rankers else ""
        start = f'"starts_from":{_quoted(named[0])},' if named and not ensemble else ""
        content = (
            f'{{"dataset":{dataset},{members}"model":{model},"objective":{objective},{ranker}"recipe":{quoted},'
            f'"schema_version":{SCHEMA_VERSION},"seed":{seed},{start}"train":{train}}}'
        )
        ids.append(f"{readable}_s{seed}-{hashlib.sha256(content.encode()).hexdigest()[:8]}")
    return ids


def trial_id(settings: TrialSettings) -> str:
    """Return the id of a trial from its complete settings; equals the id that `cell_ids` returns."""
    readable = f"{settings.dataset.name}_{settings.recipe}_{settings.objective.name}_s{settings.seed}"
    return f"{readable}-{digest(settings)[:8]}"


def derived_seed(settings: TrialSettings, purpose: str) -> int:
    """Derive a 63-bit seed for a purpose ("weights", "batches", "dropout").

    It depends only on (dataset, recipe, seed): for one seed, all objectives and swept values start from the same
    weights and see the same batches, and adding a value to an axis does not change the seeds of other trials.
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
