"""Expand a grid into its trials: one per combination of the axes, each with resolved settings and an id."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product, zip_longest
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Recipe
from goalgrid.grid.chosen import Chosen
from goalgrid.grid.errors import UserError, check_known, nearest, several, unknown
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped
from goalgrid.grid.identity import cell_ids
from goalgrid.grid.objectives import needs
from goalgrid.grid.patterns import CellPatterns, Overrides
from goalgrid.grid.resolution import Resolver, value_of
from goalgrid.grid.resolution import Shared as Shared
from goalgrid.grid.select import Draw, Point
from goalgrid.grid.settings import RANKED, TrialSettings, components
from goalgrid.grid.syntax import Scalar

Place = tuple[str, str, str, Draw]
"""The key of a cell: data set, recipe, objective, and its swept and tried values."""
BlockKey = tuple[str, str, Point]
"""The key of a table block: data set, recipe and swept values."""


class Trial(NamedTuple):
    """A cell with a seed. The trials of a cell share one settings object, to save memory in large grids."""

    id: str
    shared: Shared
    seed: int
    parents: tuple[str, ...] = ()
    """Ids of the trials that must finish first: an ensemble's members, or the start trial and the ranker."""
    ranker: str = ""
    """Id of the parent that ranks the training split; empty if there is none."""

    @property
    def epochs(self) -> int:
        """Number of training epochs; 0 for ensembles and imported records."""
        return 0 if self.shared.members or self.shared.published else self.shared.train.epochs

    @property
    def settings(self) -> TrialSettings:
        """All settings that its result depends on; assembled at each access."""
        sections = self.shared._asdict()
        del sections["published"], sections["origin"]
        if sections.pop("members"):
            return TrialSettings(**sections, seed=self.seed, ensemble=self.parents)
        start = next((parent for parent in self.parents if parent != self.ranker), None)
        return TrialSettings(**sections, seed=self.seed, starts_from=start, ranker=self.ranker or None)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of all axes except the seed, i.e. one table entry, averaged over seeds."""

    dataset: str
    recipe: str
    objective: str
    swept: Point
    trials: tuple[Trial, ...]
    choices: tuple[Chosen, ...] = ()
    """The choices of validation, one per search; empty without a search."""

    @property
    def published(self) -> str:
        """Name of the published checkpoint of an imported record; empty if the trials are trained here."""
        return self.trials[0].shared.published if self.trials else ""

    @property
    def noun(self) -> str:
        """The noun for the items that its captions describe: `image`, unless its data set or model has another."""
        return catalog.noun(self.dataset, self.trials[0].shared.model if self.trials else None)

    @property
    def origin(self) -> Recipe:
        """The recipe of its trials; for a paper's row without trials, the shipped recipe."""
        return (self.trials[0].shared.origin if self.trials else None) or catalog.recipe(self.recipe)

    @property
    def axes(self) -> dict[str, Scalar]:
        """The cell's value on each axis except the seed, by the axis names used in filters."""
        return {"dataset": self.dataset, "recipe": self.recipe, "objective": self.objective, **dict(self.swept)}

    @property
    def block(self) -> BlockKey:
        return self.dataset, self.recipe, self.swept


def block_title(block: BlockKey) -> str:
    """Return the title of a block: `fc-bow on flickr8k, objective.tau = 10`."""
    dataset, recipe, swept = block
    return with_values(f"{recipe} on {dataset}", swept)


def with_values(what: str, values: Iterable[tuple[str, object]]) -> str:
    """Return `what` followed by the values: `fc-bow, con_con, train.lr = 0.001`."""
    return ", ".join([what, *(f"{name} = {value}" for name, value in values)])


def expand(grid: Grid) -> list[Cell]:
    """Return all cells of the grid, in the order of its axes; a recipe's parents come before it.

    Cells that differ only in settings without effect share their trials: `con_con` has no tau, and GPO ignores
    `pool_k`. With [select], there is one cell for each point of the search; it has the search trial, and then the
    trials to train if this point is chosen.

    Raises:
        UserError: settings are incompatible; the error lists all problems.
    """
    known = grid.catalog
    recipes = list(dict.fromkeys(name for recipe in grid.recipes for name in known.lineage(recipe)))
    swept = (tuple(zip(grid.sweep, values, strict=True)) for values in product(*grid.sweep.values()))
    tried = grid.select.tried(grid.seeds) if grid.select else [Draw((), tuple(grid.seeds))]
    points = [(place, Draw((*place, *point), seeds)) for place, (point, seeds) in product(swept, tried)]
    axes: dict[str, Sequence[Scalar]] = {
        "dataset": grid.datasets,
        "recipe": recipes,
        "objective": grid.objectives,
        **grid.sweep,
    }
    excluded, overrides = CellPatterns(grid, "exclude", grid.exclude, axes), Overrides(grid, axes)
    resolver = Resolver(grid)
    cells = _Cells(grid, resolver, overrides)
    for dataset, recipe, (fixed, draw), name in product(grid.datasets, recipes, points, grid.objectives):
        cell = {"dataset": dataset, "recipe": recipe, "objective": name, **dict(draw.point)}
        if excluded.fitting(cell):
            continue
        shared = resolver.shared(dataset, recipe, name, overrides.of(cell))
        if shared is None:
            continue
        if clash := components.clash(shared.model, shared.objective, grid.resources.components):
            of = f"{recipe} with {name}" if repr(name) in clash else recipe
            resolver.problems[f"{of}: {clash}"] = None
            continue
        parents = known.recipe(recipe).parents
        before = [cells.trials.get((dataset, parent, name, draw), ()) for parent in parents]
        if not all(before):
            if lost := [parent for parent in parents if excluded.fitting({**cell, "recipe": parent})]:
                resolver.problems[f"exclude leaves out {lost[0]}, from which {recipe} starts; exclude that, too"] = None
            continue  # or a parent's settings are incompatible, which is among the problems
        place = dataset, recipe, name, draw
        if place not in cells.trials:
            cells.add(place, shared, before, fixed)
    nothing = [] if cells.made or resolver.problems else ["exclude leaves out every cell of the grid"]
    problems = [*(excluded.problems() or nothing), *overrides.problems(), *resolver.problems] or resolver.unread()
    if problems:
        raise several(f"grid {grid.name!r}", problems)
    return _needed(cells.made, grid.recipes) if grid.exclude else cells.made


def _needed(cells: Sequence[Cell], recipes: Sequence[str]) -> list[Cell]:
    """The cells without those of unlisted recipes that no remaining cell starts from."""
    needed, parents = list[Cell](), set[str]()
    for cell in reversed(cells):  # parents come before others
        if cell.recipe in recipes or any(trial.id in parents for trial in cell.trials):
            needed.append(cell)
            parents.update(parent for trial in cell.trials for parent in trial.parents)
    return needed[::-1]


class _Cells:
    """Collects the cells of a grid, and their trials by place, including those of rankers."""

    def __init__(self, grid: Grid, resolver: Resolver, overrides: Overrides) -> None:
        self.resolver, self.overrides = resolver, overrides
        self.chosen = list(grid.select.over) if grid.select else []
        self.made = list[Cell]()
        self.trials = dict[Place, tuple[Trial, ...]]()

    def add(self, place: Place, shared: Shared, before: Sequence[Sequence[Trial]], fixed: Point) -> None:
        """Add a cell; `before`: the trials of each parent; `fixed`: the swept values without those of a search."""
        *names, draw = place
        ensemble = len(before) > 1
        rankers = [] if ensemble else [trial.id for trial in self._ranking(place, shared, fixed)]
        if ensemble:
            shared = shared._replace(members=tuple(trials[0].shared.model for trials in before))
        readable = "_".join(names)
        texts = {name: self.resolver.text(getattr(shared, name)) for name in ("dataset", "model", "train", "objective")}
        parents = list(zip(*([trial.id for trial in trials] for trials in before), strict=True))
        parents = parents or [()] * len(draw.seeds)
        ids = cell_ids(readable, shared.recipe, draw.seeds, parents, **texts, ensemble=ensemble, rankers=rankers)
        ranked: list[tuple[str, ...]] = [(ranker,) for ranker in rankers] or [()] * len(ids)
        each = zip(ids, draw.seeds, parents, ranked, strict=True)
        self.trials[place] = tuple([Trial(name, shared, seed, named + by, *by) for name, seed, named, by in each])
        swept = draw.point if draw.point != fixed else (*fixed, *self._default(shared))  # of `DEFAULT`
        self.made.append(Cell(*place[:3], swept, self.trials[place]))

    def _default(self, shared: Shared) -> Point:
        """The default values of the settings that validation chooses, if the cell has such settings."""
        values = ((name, value_of(shared, name)) for name in self.chosen)
        return tuple((name, value) for name, value in values if isinstance(value, Scalar))

    def _ranking(self, place: Place, shared: Shared, fixed: Point) -> tuple[Trial, ...]:
        """The ranker trials of a cell, one per seed; empty if its objective needs no ranking or reads it from files."""
        dataset, recipe, name, draw = place
        ranker, goal, known = shared.train.ranker, shared.train.ranker_objective, self.resolver.catalog
        if RANKED not in shared.objective.needs or (shared.dataset.candidates and not ranker):
            return ()
        problem = ""
        if ranker is None or shared.dataset.candidates:
            both = ", not both" if ranker else ""
            problem = (
                f"needs either train.ranker = RECIPE, which ranks its negatives, or dataset.candidates = FOLDER{both}"
            )
        elif ranker not in known.recipe_names():
            problem = unknown("recipe", ranker, known.recipe_names(), where="in train.ranker")
        elif goal not in known.objectives or RANKED in needs(goal, known.objectives):
            usable = [name for name, entry in known.objectives.items() if RANKED not in entry.needs]
            problem = unknown("objective", goal, usable, where="in train.ranker_objective")
        elif known.recipe(ranker).parents or known.recipe(ranker).model.of_sets:
            problem = (
                f"train.ranker = {ranker!r}: a ranker must be a single-stage recipe that embeds an image as one vector"
            )
        if problem or ranker is None:
            self.resolver.problems[f"{recipe} with {name}: {problem}"] = None
            return ()
        place = dataset, ranker, goal, draw
        if place not in self.trials:
            given = self.overrides.of({"dataset": dataset, "recipe": ranker, "objective": goal, **dict(draw.point)})
            of_ranker = self.resolver.shared(dataset, ranker, goal, given)
            if of_ranker is None:
                return ()
            self.add(place, of_ranker, [], fixed)
        return self.trials[place]


def trials_of(cells: Iterable[Cell]) -> list[Trial]:
    """Return each trial once, ordered by seed so that all cells progress evenly, with parents before their children."""
    ranks = zip_longest(*(cell.trials for cell in cells))
    return list({trial.id: trial for trials in ranks for trial in trials if trial is not None}.values())


def libraries_of(trials: Iterable[Trial]) -> frozenset[str]:
    """Return the packages that the trials need in addition to torch and NumPy (see `Shared.libraries`)."""
    kinds = {
        (id(t.shared.model), t.shared.recipe, t.shared.dataset.words, t.shared.objective.name): t.shared for t in trials
    }
    return frozenset().union(*(shared.libraries for shared in kinds.values()))


def dropping(grid: Grid, cells: Sequence[Cell]) -> frozenset[str]:
    """Return ids of trials whose weights are deleted once done: if `keep = "record"` and no other trial needs them."""
    if grid.reliability.keep == "weights":
        return frozenset()
    trials = trials_of(cells)
    return frozenset(trial.id for trial in trials) - {parent for trial in trials for parent in trial.parents}


def once(cells: Iterable[Cell]) -> list[Cell]:
    """Merge cells with the same trials, e.g. those of `con_con`, which has no tau, in a sweep over tau.

    A merged cell takes the place of the first, and keeps the swept values common to all. Cells without trials (rows of
    a paper's table) are not merged.
    """
    groups = grouped((tuple([trial.id for trial in cell.trials]) or (place,), cell) for place, cell in enumerate(cells))
    merged = []
    for first, *others in groups.values():
        common = tuple(pair for pair in first.swept if all(pair in other.swept for other in others))
        merged.append(replace(first, swept=common))
    return merged


def chains(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Group trials into chains of parents and children, in order; an ensemble joins the chains of its members.

    Parents that are not among these trials count as done.
    """
    chain_of: dict[str, list[Trial]] = {}
    for trial in trials:
        before = [chain_of[parent] for parent in trial.parents if parent in chain_of] or [[]]
        chain, *others = {id(one): one for one in before}.values() if len(before) > 1 else before
        for other in others:
            chain += other
            chain_of.update(dict.fromkeys([moved.id for moved in other], chain))
        chain.append(trial)
        chain_of[trial.id] = chain
    return list({id(chain): chain for chain in chain_of.values()}.values())


def select(cells: Sequence[Cell], only: str, also: Mapping[str, Mapping[str, str]] = {}) -> list[Trial]:
    """Return the trials that match a filter such as `objective=*_cir seed=0`; `|` separates alternative filters.

    Args:
        only: the filter.
        also: further axes, each with its values by trial id; trials without a value do not match.

    Raises:
        UserError: a word of the filter is invalid or matches no trial.
    """
    known = [
        "dataset",
        "recipe",
        "objective",
        "seed",
        *dict.fromkeys(name for cell in cells for name, _ in cell.swept),
        *also,
    ]
    every = [(axes, trial) for axes, trials in ((cell.axes, cell.trials) for cell in cells) for trial in trials]
    chosen = set[str]()
    for part in re.split(r"(?:^|\s)\|(?:\s|$)", only):
        chosen |= {trial.id for _, trial in _fitting(every, part, known, also)}
    return [trial for trial in trials_of(cells) if trial.id in chosen]


def _fitting(
    pairs: Sequence[tuple[Mapping[str, Scalar], Trial]],
    only: str,
    known: Sequence[str],
    also: Mapping[str, Mapping[str, str]],
) -> Sequence[tuple[Mapping[str, Scalar], Trial]]:
    """The (axes, trial) pairs that match every word of a filter."""
    for word in only.split():
        axis, separator, pattern = word.partition("=")
        if not separator:
            raise UserError(f"--only {only!r}: {word!r} is not AXIS=PATTERN. Axes: {', '.join(known)}.")
        check_known("axis", axis, known, where=f"in --only {only!r}")
        values = [_value(axis, *pair, also) for pair in pairs]
        fitting = [value is not None and fnmatch.fnmatchcase(value, pattern) for value in values]
        if not any(fitting):
            close = nearest(pattern, sorted({value for value in values if value is not None}))
            hint = f" Did you mean {f'{axis}={close[0]}'!r}?" if close else ""
            hint = " A pattern is as of file names, without commas: 'seed=[0-2]'." if "," in pattern else hint
            raise UserError(f"--only {only!r} names none of the grid's trials.{hint}")
        pairs = list(compress(pairs, fitting))
    return pairs


def _value(axis: str, axes: Mapping[str, Scalar], trial: Trial, also: Mapping[str, Mapping[str, str]]) -> str | None:
    """The value of a trial on an axis; None if it has none."""
    if axis in also:
        return also[axis].get(trial.id)
    if axis == "seed":
        return str(trial.seed)
    return str(axes[axis]) if axis in axes else None
