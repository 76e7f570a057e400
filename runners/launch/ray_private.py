"""Private parts of Ray that may change between versions. If one is missing, launches still work, with drawbacks."""

import sys
from importlib import import_module
from typing import Any

import ray

LOSSES = {
    "ray.air._internal.usage.tag_callbacks": "a launch imports all installed trackers, which takes seconds",
    "ray._private.node.Node": "a launch that started Ray itself ends seconds later",
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "Ray listens on this host's address instead of only on loopback",
    "ray._raylet.AuthenticationTokenLoader": "a cluster that asks for a token may end this process without a message",
    "ray._raylet.GcsClient": "it takes 20 seconds until a rejected token or host is reported",
    "ray.tune.execution.tune_controller.PlacementGroupResourceManager": "jobs may wait for a node that gets none",
    "ray.tune.execution.class_cache.DEFAULT_ENV_VARS": "Ray starts new processes although others are idle",
    "ray.tune.execution.class_cache.ENV_VARS_TO_PROPAGATE": "Ray starts new processes although others are idle",
}
"""Drawback for a launch if a part is missing."""


def _parts() -> dict[str, Any]:
    parts = {}
    for name in LOSSES:
        module, _, attribute = name.rpartition(".")
        try:
            parts[name] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    return parts


PARTS = _parts()
"""The parts found in this version of Ray, by name."""


def replace(name: str, value: Any) -> None:
    """Replace a part by a value, if this version of Ray has it."""
    if name in PARTS:
        module, _, attribute = name.rpartition(".")
        setattr(sys.modules[module], attribute, value)


def losses() -> list[str]:
    """List the parts missing in this version of Ray, with the drawback of each."""
    return [f"Ray {ray.__version__} has no {name}: {loss}" for name, loss in LOSSES.items() if name not in PARTS]
