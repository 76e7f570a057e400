"""Parts of Ray that no version of it promises. Without one, a launch goes on, and says what it loses."""

import sys
from importlib import import_module
from typing import Any

import ray

LOSSES = {
    "ray.air._internal.usage.tag_callbacks": "it imports all trackers that are installed, which takes seconds",
    "ray._private.node.Node": "a launch with a Ray of its own ends seconds later",
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "it listens on this host's address, not on loopback alone",
    "ray._raylet.AuthenticationTokenLoader": "a cluster that asks for a token may end this process without a message",
    "ray._raylet.GcsClient": "a cluster that refuses a token, or this host, says so after 20 seconds",
    "ray.tune.execution.tune_controller.PlacementGroupResourceManager": "jobs may wait for a node that takes none",
    "ray.tune.execution.class_cache.DEFAULT_ENV_VARS": "it starts new processes although others are idle",
    "ray.tune.execution.class_cache.ENV_VARS_TO_PROPAGATE": "it starts new processes although others are idle",
}
"""Losses of a launch without each part."""


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
"""The parts that this version of Ray has, by name."""


def replace(name: str, value: Any) -> None:
    """Put a value in the place of a part, if this version of Ray has it."""
    if name in PARTS:
        module, _, attribute = name.rpartition(".")
        setattr(sys.modules[module], attribute, value)


def losses() -> list[str]:
    """List the parts that this version of Ray lacks, and what each costs a user."""
    return [f"Ray {ray.__version__} has no {name}: {loss}" for name, loss in LOSSES.items() if name not in PARTS]
