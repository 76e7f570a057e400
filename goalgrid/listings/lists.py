"""List the shipped grids, recipes, objectives and data sets, as JSON for programs and as lines for readers."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

from goalgrid.grid import catalog, gridfile, protocols
from goalgrid.grid.catalog import SHIPPED, Catalog
from goalgrid.grid.objectives import check_objective
from goalgrid.grid.objectives.goal_matrix import FAINT, FAINT_HELPS, GOAL, is_faint, of_a_loss
from goalgrid.grid.settings import ObjectiveSettings, components
from goalgrid.grid.syntax import setting_text

if TYPE_CHECKING:
    from goalgrid.runners.gpu.architectures import ModelSize


def grids() -> list[dict[str, Any]]:
    """Return the axes of every shipped grid."""
    axes = {"name", "datasets", "recipes", "objectives", "seeds", "sweep"}
    return [gridfile.load(name).model_dump(include=axes) for name in catalog.names("presets")]


def recipe(name: str, known: Catalog = SHIPPED) -> dict[str, Any]:
    """Return a recipe with its settings by dotted name."""
    entry = known.recipe(name)
    words = {"words": entry.words, "reading": entry.readings}
    return {**recipe_row(name, known), **words, "settings": known.settings(name)}


def objective(name: str, known: Catalog = SHIPPED) -> dict[str, Any]:
    """Return an objective with its equation and parameters; raise UserError if there is none of this name."""
    check_objective(name, known.objectives)
    entry = known.objectives[name]
    shown = {
        key: {"meaning": p.meaning, "paper": p.default, "released": p.released}
        | {"choices": p.choices, "only_with": p.only_with}
        for key, p in entry.parameters.items()
    }
    return {**objective_row(name, known), "formula": entry.formula, "parameters": shown}


def datasets() -> list[dict[str, Any]]:
    """Return all built-in data sets."""
    keys = {"description", "protocols", "embedded", "splits"}
    return [{"name": name, **catalog.dataset(name).model_dump(include=keys)} for name in catalog.names("datasets")]


def recipe_row(name: str, known: Catalog = SHIPPED) -> dict[str, Any]:
    """Return a recipe's description, inputs, GPU share and parents."""
    fields = {"description", "gpu", "starts_from", "ensemble"}
    return {"name": name, "reads": known.reads(name), **known.recipe(name).model_dump(include=fields)}


def objective_rows(known: Catalog = SHIPPED) -> list[dict[str, Any]]:
    """Return all objectives with their sources."""
    return [objective_row(name, known) for name in known.objectives]


def objective_row(name: str, known: Catalog = SHIPPED) -> dict[str, Any]:
    """Return an objective's family, common name and source."""
    entry = known.objectives[name]
    facts = {"family": entry.family, "known_as": entry.known_as, "source": entry.source}
    return {"name": name, **facts, "of_a_loss": of_a_loss(name) if name in GOAL else None}


def objective_lines(known: Catalog = SHIPPED) -> Iterator[str]:
    """Yield one line per objective: name, family, common name, whether it is the gradient of a loss, and source."""
    for name, entry in known.objectives.items():
        known_as = entry.known_as or ("new in GOAL" if entry.family == "GOAL" else "")
        yield f"{name:17} {entry.family:12} {known_as:32} {_integral(name):10} {entry.source}"


def explained(name: str, known: Catalog = SHIPPED) -> Iterator[str]:
    """Explain an objective: equation, source, parameters under both variants; raise UserError if it is unknown."""
    check_objective(name, known.objectives)
    entry = known.objectives[name]
    yield from (f"{name}{f': {entry.known_as}' if entry.known_as else ''}", "")
    yield from (f"  {formula}" for formula in entry.formula.split("; "))
    integral = f"; the gradient {_integral(name)} (m+ and m- held constant, no hinge)" if name in GOAL else ""
    yield from ("", f"family: {entry.family}; source: {entry.source}{integral}", "")
    yield f"  {'parameter':18} {'paper':>9} {'released':>9}  meaning"
    for key, parameter in entry.parameters.items():
        paper, released = map(setting_text, (parameter.default, parameter.released))
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        only = f" [only with {parameter.only_with[0]} = {parameter.only_with[1]}]" if parameter.only_with else ""
        yield f"  {key:18} {paper:>9} {released:>9}  {parameter.meaning}{choices}{only}"
    if is_faint(name, {key: parameter.default for key, parameter in entry.parameters.items()}):
        yield from ("", f"By default {FAINT} (docs/variants.md). What helps: {FAINT_HELPS}.")
    for component in components.of_objective(known.validated(ObjectiveSettings, {"name": name})):
        yield from ("", component.about)


def _integral(name: str) -> str:
    return ("of a loss" if of_a_loss(name) else "of no loss") if name in GOAL else ""


def size(name: str, known: Catalog = SHIPPED) -> "ModelSize":
    """Return the size of a recipe's model on MS-COCO; raise UserError if the architecture of weights is unknown."""
    from goalgrid.runners.gpu.architectures import ModelSize, size_of

    recipe = known.recipe(name)
    if recipe.ensemble:
        return sum((size(member, known) for member in recipe.ensemble), ModelSize(0, 0))
    whole = size_of(recipe.model)
    return whole if recipe.train.epochs else replace(whole, learning=0)


def size_lines(sizes: "Mapping[str, ModelSize]") -> Iterator[str]:
    """Yield one line per recipe, in millions of weights, then an explanation of the columns."""
    from goalgrid.runners.gpu.architectures import WORDS

    width = max(map(len, sizes))
    titles = {"parameters": "weights (M)", "learning": "learning (M)", "frozen": "frozen (M)"}
    yield f"{'':{width}}  " + "  ".join(f"{title:>12}" for title in titles.values())
    for name, size in sizes.items():
        numbers = asdict(size)
        yield f"{name:{width}}  " + "  ".join(f"{numbers[column] / 1e6:12.2f}" for column in titles)
    yield (
        "weights: all weights of the model in training, as in its record; learning: those that are trained; frozen: "
        "weights of networks whose features are cached before training, not counted in the first column. Models "
        f"that learn word embeddings are counted with MS-COCO's vocabulary of {WORDS['coco']:,} words."
    )


def guide(name: str, known: catalog.Dataset) -> list[str]:
    """Describe where to get a data set, the accepted layouts of its folder, and its size."""
    lines, noun = [f"{name}: {known.description}"], f"{catalog.noun(name)}s"
    lines += [
        f"  {split:6}{size.images:>8,} {noun}{size.captions:>9,} captions" for split, size in known.splits.items()
    ]
    lines += [f"  protocol {name}: {protocols.protocol(name).description}" for name in known.protocols]
    if known.embedded:
        return [*lines, "", "Nothing to download: it is generated."]
    lines += ["", "Where to get it"]
    for source in known.sources:
        size = f": {source.size}" if source.size else ""
        lines += [f"  {source.what}{size}", f"    {source.at}", *([f"    {source.note}"] if source.note else [])]
    lines += ["", "Accepted layouts of DIR: one of"]
    lines += _forms(known.trees)
    more = [f"More: {known.page}"] if known.page else []
    return [*lines, "", f"Check your copy: goalgrid data check {name} --root DIR", *more]


def own_guide() -> list[str]:
    """Describe the accepted layouts of a folder with your own data."""
    from goalgrid.retrieval.data import precomp
    from goalgrid.retrieval.data.annotations import FORMATS
    from goalgrid.retrieval.data.forms import forms

    trees = {title: form.tree for title, form in FORMATS.items() if form.tree} | {"features": precomp.TREE}
    for form in forms():
        trees |= {f"{form.noun}s: {title}": tree for title, tree in catalog.dataset(form.shown_by).trees.items()}
    return [
        "Your own data may have any name that `goalgrid datasets` does not list. Accepted layouts of DIR: one of",
        "",
        *_forms(trees),
        "",
        "Check it: goalgrid data check NAME --root DIR",
        'In a grid file: [data.NAME] root = "DIR". More: docs/data/own.md',
    ]


def _forms(trees: Mapping[str, str]) -> list[str]:
    return [
        line for title, tree in trees.items() for line in (f"  {title}", *indent(tree.strip(), " " * 4).splitlines())
    ]
