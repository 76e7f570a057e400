"""Check the names and values of a grid file."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.document import GridDocument
from goalgrid.grid.errors import nearest, unknown
from goalgrid.grid.objectives import known_parameters, unknown_objective
from goalgrid.grid.objectives.parameters import VARIANTS
from goalgrid.grid.protocols import ECCV
from goalgrid.grid.resources import UNTIL_RESOLVED
from goalgrid.grid.sections import SECTIONS, of_section, section_from
from goalgrid.grid.settings.base import CHOICES, NoIdentity
from goalgrid.grid.settings.user_modules import UserModuleKind
from goalgrid.grid.validation_messages import explain, models_in

PARENTS = ("train.starts_from", "train.ranker", "train.ranker_objective")
"""Settings that make a trial depend on another trial or checkpoint."""


def dotted_names(known: Catalog = catalog.SHIPPED) -> list[str]:
    """Return the dotted names of all settings that a grid file may set or sweep."""
    every = [name for section, model in SECTIONS.items() for name, _ in fields_in(section, model)]
    names = [name for name in dict.fromkeys(every) if name != "dataset.name"]
    for kind in get_args(UserModuleKind):
        declared = sorted({name for module in known.registered(kind).values() for name in module.parameters})
        names += [f"model.{kind.partition(' ')[0]}.parameters.{name}" for name in declared]
    pooled = sorted({name for pooling in known.registered("pooling").values() for name in pooling.parameters})
    names += [f"model.{side}.pool_parameters.{name}" for side in ("image", "text") for name in pooled]
    return [*names, "objective.variant", *(f"objective.{name}" for name in sorted(known_parameters(known.objectives)))]


def fields_in(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the dotted name of each field with the model that defines it, including fields of nested models."""
    for name, field in model.model_fields.items():
        inner = models_in(field.annotation)
        for part in inner:
            yield from fields_in(f"{prefix}.{name}", part)
        if not inner:
            yield f"{prefix}.{name}", model


def mistakes(content: GridDocument) -> list[str]:
    """Return the mistakes that the grid's schema cannot detect: unknown names, repeated values, wrong values."""
    return [
        *_of_seeds(content), *_unknown_names(content), *_of_evaluations(content), *_doubled(content),
        *_wrong_values(content), *_of_select(content),
    ]  # fmt: skip


def wrong_settings(content: GridDocument, known_problems: Sequence[str]) -> list[str]:
    """Return a message for each value that is invalid in its section of a trial's settings.

    Settings named in `known_problems` are skipped.
    """
    known = [
        name for name in dotted_names(content.catalog) if not any(f"{name}: " in problem for problem in known_problems)
    ]
    recipes = [name for name in content.names("recipes") if name in catalog.names("recipes")]
    of_all, problems = {name: value for name, value in content.table("set").items() if name in known}, list[str]()
    for name, value in [*of_all.items(), *content.swept(), *content.tried()]:
        if name in known:
            problems += [
                problem
                for of_recipe in _refused(recipes, of_all, name, value, content.catalog)
                for problem in of_recipe
            ]
    for entry in content.values("where"):  # it may name cells of some recipes
        for name, value in entry["set"].items():
            refused = _refused(recipes, of_all, name, value, content.catalog) if name in known else []
            problems += refused[0] if refused and all(refused) else []
    return list(dict.fromkeys(problems))


def _refused(
    recipes: Sequence[str], of_all: Mapping[str, Any], name: str, value: Any, known: Catalog
) -> list[list[str]]:
    """The problems of a value for each recipe, given the values that are set for all cells."""
    section, refused = name.partition(".")[0], list[list[str]]()
    for recipe in recipes if section in SECTIONS else ():
        refused.append([])
        try:
            section_from(section, recipe, recipe, of_section(section, {**of_all, name: value}), known)
        except ValidationError as error:
            refused[-1] = explain(error, SECTIONS[section], f"recipe {recipe!r}: {section}.")
    return refused


def _of_seeds(content: GridDocument) -> list[str]:
    """Report texts among the seeds, and a budget of a grid with a list of seeds."""
    seeds = content.values("seeds")
    if seeds == [UNTIL_RESOLVED]:
        return []
    if any(isinstance(seed, str) for seed in seeds):
        return [f'seeds must be a list of whole numbers or "{UNTIL_RESOLVED}"']
    wrong = {"seeds", "budget"} <= content.fields.keys()
    return [f'[budget] needs seeds = "{UNTIL_RESOLVED}" instead of a list of seeds'] if wrong else []


def _unknown_names(content: GridDocument) -> list[str]:
    datasets = sorted({*catalog.names("datasets"), *content.table("data")})
    recipes = [*catalog.names("recipes"), *content.table("recipe")]
    hint = "For data of your own, add [data.NAME] with its root."
    axes: dict[str, tuple[Collection[str], Callable[[str, str], str]]] = {
        "datasets": (datasets, lambda name, where: unknown("dataset", name, datasets, where=where, hint=hint)),
        "recipes": (recipes, lambda name, where: unknown("recipe", name, recipes, where=where)),
        "objectives": (content.catalog.objectives, partial(unknown_objective, known=content.catalog.objectives)),
    }
    placed = [name for name in content.table("data") if name not in content.values("datasets")]
    problems = [
        _joined(axis, name) if "," in name else problem(name, f"in {axis}[{index}]")
        for axis, (known, problem) in axes.items()
        for index, name in enumerate(content.values(axis))
        if isinstance(name, str) and name not in known and not (axis == "datasets" and nearest(name, placed))
    ]
    strays = [name for name in placed if name not in content.placed]
    problems += [unknown("data set", name, content.placed, where=f"in [data.{name}]") for name in strays]
    settings = dotted_names(content.catalog)
    tables = {"[set]": content.table("set"), "[sweep]": content.table("sweep"), "[select]": content.over()}
    tables |= {f"where[{place}].set": entry["set"] for place, entry in enumerate(content.values("where"))}
    for field, table in tables.items():
        for name in [name for name in table if name not in settings]:
            section = name.partition(".")[0] + "."
            near = [known for known in settings if known.startswith(section)] or settings
            problems.append(unknown("setting", name, near, where=f"in {field}"))
        swept = [name for name in table if field.startswith("where") and name in content.table("sweep")]
        problems += [f"{field}: {name} is swept; give its values in [sweep]" for name in swept]
    return problems


def _joined(axis: str, name: str) -> str:
    """The message for several names joined by commas in one text."""
    names = json.dumps([part.strip() for part in name.split(",") if part.strip()], separators=(",", ":"))
    return f"unknown {axis[:-1]} {name!r}: give several as a list, '{axis}={names}'"


def _of_select(content: GridDocument) -> list[str]:
    """Report settings that [select] cannot choose or that are also set elsewhere, and fields without effect."""
    select, reader = content.table("select"), {"grace": "stop", "factor": "stop", "confirm_seeds": "confirm"}
    forms = {"stop": 'select.stop = "asha"', "confirm": "select.confirm, e.g. select.confirm = 3"}
    unread = [name for name in reader if name in select and reader[name] not in select]
    problems = [f"select.{name} has no effect without {forms[reader[name]]}" for name in unread]
    places = {"[set]": content.table("set"), "[sweep]": content.table("sweep")}
    entries = [entry["cells"] | entry["set"] for entry in content.values("where")]
    places |= {f"where[{place}]": entry for place, entry in enumerate(entries)}
    places |= {f"exclude[{place}]": entry for place, entry in enumerate(content.values("exclude"))}
    for name in content.over():
        last = name.rpartition(".")[2]
        if name.startswith("dataset."):
            problems.append(
                f"select.over: {name} changes the data, but choices are compared on equal data; put it in [sweep]"
            )
        elif last in CHOICES or name in PARENTS:
            problems.append(f"select.over: {name} is fixed by the recipe; name two recipes instead")
        others = [place for place, table in places.items() if isinstance(table, dict) and name in table]
        problems += [f"{place} has {name}, which [select] also chooses; remove one of the two" for place in others]
    return problems


def _of_evaluations(content: GridDocument) -> list[str]:
    """Report unknown evaluation data sets and protocols."""
    table, known = content.table("evaluate"), sorted({*catalog.names("datasets"), *content.table("data")})
    further, names = (
        [name for name in given if isinstance(name, str)] if isinstance(given := table.get(field), list) else []
        for field in ("datasets", "protocols")
    )
    problems = [unknown("dataset", name, known, where="in evaluate.datasets") for name in further if name not in known]
    protocols = [*dict.fromkeys(name for dataset in content.placed for name in catalog.protocols(str(dataset)))]
    protocols += [ECCV] if "coco" in content.placed else []
    return problems + [
        unknown("protocol", name, protocols, where="in evaluate.protocols") for name in names if name not in protocols
    ]


def _doubled(content: GridDocument) -> list[str]:
    """Report values that are repeated on an axis."""
    axes = {axis: content.values(axis) for axis in ("datasets", "recipes", "objectives", "seeds", "tables")}
    values = [(axis, value) for axis, values in axes.items() for value in values]
    values += [(f"sweep {name!r}", value) for name, value in content.swept()]
    values += [(f"select.over {name!r}", value) for name, value in content.tried()]
    counts = Counter(pair for pair in values if isinstance(pair[1], Hashable))
    return [f"{axis}: {value} is listed more than once" for (axis, value), count in counts.items() if count > 1]


def _wrong_values(content: GridDocument) -> list[str]:
    """Report values that are not a valid protocol, variant or objective parameter."""
    datasets, axis, sweep = content.names("datasets"), content.names("objectives"), content.table("sweep")
    of_all = {**content.table("set"), **sweep, **content.over()}
    known_objectives = content.catalog.objectives
    objectives = [entry.parameters for name, entry in known_objectives.items() if name in axis]
    problems = []
    for key, value in content.given():
        section, _, name = key.partition(".")
        field = SECTIONS[section].model_fields.get(name) if section in SECTIONS else None
        if key in {**sweep, **content.over()} and field and NoIdentity in field.metadata:
            problems.append(f"{key} does not change trial ids, so it cannot be swept; give one value in [set]")
        holders = [entry[name] for entry in objectives if section == "objective" and name in entry]
        if key == "dataset.protocol":
            for dataset in datasets:
                if value not in (known := catalog.protocols(dataset)):
                    where = f"of data set {dataset!r} in dataset.protocol"
                    problems.append(unknown("protocol", value, known, where=where))
        elif key == "objective.variant" and value not in VARIANTS:
            problems.append(unknown("variant", value, VARIANTS, where="in objective.variant"))
        elif (
            key in of_all
            and section == "objective"
            and name in known_parameters(known_objectives)
            and objectives
            and not holders
        ):
            problems.append(f"{key}: none of the grid's objectives has this parameter")
        for parameter in holders:
            try:
                parameter.parse(value)
            except ValueError as error:
                problems.append(f"{key} {error}")
    return list(dict.fromkeys(problems))
