"""Trial identity: same settings, same id, same experiment; and the random seeds that a trial derives from them."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from grid.fields import IdentityDefault
from grid.objectives import identifying
from grid.settings import ObjectiveSettings, TrialSettings


def canonical(settings: BaseModel) -> dict[str, Any]:
    """The settings as plain values, without those that equal their frozen identity default."""
    content: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if any(isinstance(mark, IdentityDefault) and mark.value == value for mark in field.metadata):
            continue
        content[name] = _plain(value)
    if isinstance(settings, ObjectiveSettings):
        content["parameters"] = _plain(identifying(settings.name, settings.parameters))
    return content


def digest(content: Any) -> str:
    """SHA-256 over canonical JSON: sorted keys, no spaces, -0.0 as 0.0."""
    return _digest(_plain(content))


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def trial_id(settings: TrialSettings) -> str:
    """Readable, plus a hash of everything: `flickr8k_fc-bow_sig-ms_cir_s0-3fa94c21`."""
    readable = f"{settings.dataset.name}_{settings.recipe}_{settings.objective.name}_s{settings.seed}"
    return f"{readable}-{_digest(canonical(settings))[:8]}"


def derived_seed(settings: TrialSettings, purpose: str) -> int:
    """A 63-bit seed for one purpose ("weights", "batches", "dropout").

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
