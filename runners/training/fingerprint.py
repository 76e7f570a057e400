"""Fingerprints of the code that affects a trial's results, computed from the sources without importing them."""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from goalgrid.grid import catalog, plugins
from goalgrid.grid.expansion import Shared
from goalgrid.grid.identity import digest
from goalgrid.grid.objectives import OURS
from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.plugins import Use
from goalgrid.grid.protocols import PROTOCOLS
from goalgrid.grid.settings import TrialSettings, components
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.grid.settings.user_modules import UserModuleSettings
from goalgrid.results.records import provenance
from goalgrid.results.records.sources import Sources

ROOTS = frozenset({"goalgrid.runners.training.trainer.Trainer", "goalgrid.runners.training.inputs.prepare"})
"""The entry points of every training; all code reachable from them is fingerprinted."""
ENSEMBLE = "goalgrid.runners.trial.ensemble.Ensemble"
"""The entry point of an ensemble's evaluation."""


def code_fingerprint(settings: Shared | TrialSettings, members: Sequence[ModelSettings] = ()) -> str:
    """Return the fingerprint of the code that trains these settings, and the models of an ensemble's members."""
    used = {use for use, _ in plugins_of(settings, members)}
    files = tuple(sorted((use.module, use.source) for use in used if use.is_file))
    packages = sorted(use.source for use in used if not use.is_file)
    return _fingerprint(files, *roots_and_names(settings, members), " ".join(packages))


def roots_and_names(
    settings: Shared | TrialSettings, members: Sequence[ModelSettings] = ()
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the entry points of a training with these settings, and the names in the settings, for `Sources`."""
    members = settings.members if isinstance(settings, Shared) else members
    sections = (settings.dataset, settings.model, settings.train, settings.objective, *members)
    looked = [_looked_through(section) for section in sections]
    classes, strings = (frozenset[str]().union(*sets) for sets in zip(*looked, strict=True))
    files = {f"{use.module}.{defined}" for use, defined in plugins_of(settings, members) if use.is_file}
    roots = ROOTS | ({ENSEMBLE} if members else set())
    models = (settings.model, *members)
    needed = [
        *components.of_objective(settings.objective),
        *(p for m in models for p in components.of_model(m).values()),
    ]
    roots |= {name for part in needed for name in (part.training_method, part.network, part.data) if name}
    chosen = [part for model in models for part in (model.image, model.text, model.scorer)]
    roots |= {part.network.replace(":", ".") for part in chosen if part.network}
    frozen = {network.encoder for part in chosen if (network := getattr(part, "feature_network", None))}
    return classes | roots | files, strings.union(catalog.protocols(settings.dataset.name), frozen)


def plugins_of(settings: Shared | TrialSettings, members: Sequence[ModelSettings] = ()) -> list[tuple[Use, str]]:
    """Return the plugins that the settings use, each with the name of the function or class registered by it."""
    members = settings.members if isinstance(settings, Shared) else members
    sections = [part for model in (settings.model, *members) for part in (model.image, model.text, model.scorer)]
    modules = [part.own_pooling for part in sections if isinstance(part, PoolingSettings)]
    modules += [part.user_module for part in sections if isinstance(part, UserModuleSettings)]
    defined = [settings.objective.entry.equation, *(module.network for module in modules if module)]
    return list({(plugins.origin(one), str(one.__qualname__)): None for one in defined if one})


def sources() -> Sources:
    """Return the sources of goalgrid, without the command line, and of the plugin files imported by this process."""
    return _sources(plugins.imported_files())


@cache
def _sources(files: tuple[tuple[str, str], ...]) -> Sources:
    packages = tuple(f"{plugins.PROGRAM}.{package}" for package in provenance.ROOMS)
    program = {name: text for name, text in provenance.program().items() if name.startswith(packages)}
    return Sources({**program, **{name: text.encode(errors="surrogatepass") for name, text in files}}, names())


@cache
def names() -> frozenset[str]:
    """Return all names by which settings select built-in code: objectives, encoders, poolings, protocols."""
    parameters = [parameter for entry in OURS.values() for parameter in entry.parameters.values()]
    choices = {choice for parameter in parameters for choice in parameter.choices}
    schemas = (value for value in _values(TrialSettings.model_json_schema()) if isinstance(value, dict))
    allowed = {value for schema in schemas for value in (*schema.get("enum", ()), schema.get("const"))}
    chosen = {value for value in allowed if isinstance(value, str)}
    return frozenset({*OURS, *PAIR_WEIGHTS, *TRIPLET_WEIGHTS, *choices, *PROTOCOLS, *chosen})


@cache
def _fingerprint(
    files: tuple[tuple[str, str], ...], roots: frozenset[str], named: frozenset[str], packages: str
) -> str:
    """Fingerprint the reachable code, and all sources of installed plugin packages."""
    everything = digest([provenance.program_fingerprint(), files, sorted(PROTOCOLS)])
    key = [sorted(roots), sorted(named)]
    code = provenance.known_or_found(everything, key, lambda: sources().fingerprint(roots, named))
    return provenance.versioned(sha256(f"{code} {packages}".encode()).hexdigest() if packages else code)


@lru_cache(maxsize=10_000)
def _looked_through(settings: BaseModel) -> tuple[set[str], set[str]]:
    """Return the classes of these settings, whose properties a trainer uses, and all strings in them."""
    values = list(_values(settings))
    strings = [value for value in values if isinstance(value, str)]
    kinds = {type(value) for value in values if isinstance(value, BaseModel)}
    return (
        {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds},
        {part for string in strings for part in (string, *string.split("_"))},
    )


def _values(value: Any) -> Iterator[Any]:
    """Yield a value, and all values nested in it."""
    yield value
    if isinstance(value, BaseModel):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    for inner in value if isinstance(value, list | tuple) else ():
        yield from _values(inner)
