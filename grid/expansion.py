"""From a grid to its trials: every combination of the axes, each with all its settings resolved and an id."""

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
"""A cell by its data set, recipe, objective, and swept and tried values."""
BlockKey = tuple[str, str, Point]
"""A block of a table by its data set, recipe and swept values."""


class Trial(NamedTuple):
    """A cell with a seed. It is small, since a grid may have a million: the settings of a cell are kept once."""

    id: str
    shared: Shared
    seed: int
    parents: tuple[str, ...] = ()
    """Ids of the trials that come first: an ensemble's members; or the trial that it starts from, and its ranker."""
    ranker: str = ""
    """The parent, if there is one, that ranks the training split for this one."""

    @property
    def epochs(self) -> int:
        """Epochs of its training; 0: it trains nothing, as an ensemble or an imported record does."""
        return 0 if self.shared.members or self.shared.published else self.shared.train.epochs

    @property
    def settings(self) -> TrialSettings:
        """All settings that its result depends on, put together at each call."""
        sections = self.shared._asdict()
        del sections["published"], sections["origin"]
        if sections.pop("members"):
            return TrialSettings(**sections, seed=self.seed, ensemble=self.parents)
        start = next((parent for parent in self.parents if parent != self.ranker), None)
        return TrialSettings(**sections, seed=self.seed, starts_from=start, ranker=self.ranker or None)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of all axes but the seed: what one entry of a table averages over seeds."""

    dataset: str
    recipe: str
    objective: str
    swept: Point
    trials: tuple[Trial, ...]
    choices: tuple[Chosen, ...] = ()
    """How validation chose settings of its trials, in each of its searches; empty: the grid gives all."""

    @property
    def published(self) -> str:
        """The published checkpoint whose record this cell is; empty: its trials are trained here."""
        return self.trials[0].shared.published if self.trials else ""

    @property
    def noun(self) -> str:
        """The noun for what its captions describe: `image`, or what its data set or models have in its place."""
        return catalog.noun(self.dataset, self.trials[0].shared.model if self.trials else None)

    @property
    def origin(self) -> Recipe:
        """The recipe of its trials; of a paper's row that nobody trained, the shipped one."""
        return (self.trials[0].shared.origin if self.trials else None) or catalog.recipe(self.recipe)

    @property
    def axes(self) -> dict[str, Scalar]:
        """The cell's value on every axis but the seed, by the names that filters use."""
        return {"dataset": self.dataset, "recipe": self.recipe, "objective": self.objective, **dict(self.swept)}

    @property
    def block(self) -> BlockKey:
        return self.dataset, self.recipe, self.swept


def block_title(block: BlockKey) -> str:
    """`fc-bow on flickr8k, objective.tau = 10`."""
    dataset, recipe, swept = block
    return with_values(f"{recipe} on {dataset}", swept)


def with_values(what: str, values: Iterable[tuple[str, object]]) -> str:
    """What these values are of, and behind it the values: `fc-bow, con_con, train.lr = 0.001`."""
    return ", ".join([what, *(f"{name} = {value}" for name, value in values)])


def expand(grid: Grid) -> list[Cell]:
    """All cells of the grid, in the order of its axes; before a recipe come its members, or the recipe it starts from.

    Two cells share a trial if they differ in a setting that their training does not read: `con_con` has no tau, and
    GPO reads no `pool_k`. Settings that do not fit together are one UserError, all of them.

    With [select], there is a cell for every point that is tried: its search trial, then the trials that it gets if this
    point is chosen.
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
            continue  # or a parent's settings do not fit together, which is among the problems
        place = dataset, recipe, name, draw
        if place not in cells.trials:
            cells.add(place, shared, before, fixed)
    nothing = [] if cells.made or resolver.problems else ["exclude leaves out every cell of the grid"]
    problems = [*(excluded.problems() or nothing), *overrides.problems(), *resolver.problems] or resolver.unread()
    if problems:
        raise several(f"grid {grid.name!r}", problems)
    return _needed(cells.made, grid.recipes) if grid.exclude else cells.made


def _needed(cells: Sequence[Cell], recipes: Sequence[str]) -> list[Cell]:
    """The cells but those of recipes that the grid does not name and from which no cell of it starts."""
    needed, parents = list[Cell](), set[str]()
    for cell in reversed(cells):  # parents come before others
        if cell.recipe in recipes or any(trial.id in parents for trial in cell.trials):
            needed.append(cell)
            parents.update(parent for trial in cell.trials for parent in trial.parents)
    return needed[::-1]


class _Cells:
    """The cells of a grid as they are made, and by their places the trials of each; rankers join them."""

    def __init__(self, grid: Grid, resolver: Resolver, overrides: Overrides) -> None:
        self.resolver, self.overrides = resolver, overrides
        self.chosen = list(grid.select.over) if grid.select else []
        self.made = list[Cell]()
        self.trials = dict[Place, tuple[Trial, ...]]()

    def add(self, place: Place, shared: Shared, before: Sequence[Sequence[Trial]], fixed: Point) -> None:
        """Make a cell; `before` are the trials of each parent, `fixed` the swept values without those of a search."""
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
        """The values without a search of the settings that validation chooses, without those that there are none of."""
        values = ((name, value_of(shared, name)) for name in self.chosen)
        return tuple((name, value) for name, value in values if isinstance(value, Scalar))

    def _ranking(self, place: Place, shared: Shared, fixed: Point) -> tuple[Trial, ...]:
        """The rankers of a cell, seed by seed; none where its objective reads no ranking, or reads files."""
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
    """Every trial once, first seeds first, so that all cells of a grid fill at the same pace; parents before others."""
    ranks = zip_longest(*(cell.trials for cell in cells))
    return list({trial.id: trial for trials in ranks for trial in trials if trial is not None}.values())


def libraries_of(trials: Iterable[Trial]) -> frozenset[str]:
    """The packages of `Shared.libraries` of all trials: of a million trials, few differ in what decides on them."""
    kinds = {
        (id(t.shared.model), t.shared.recipe, t.shared.dataset.words, t.shared.objective.name): t.shared for t in trials
    }
    return frozenset().union(*(shared.libraries for shared in kinds.values()))


def dropping(grid: Grid, cells: Sequence[Cell]) -> frozenset[str]:
    """Ids of the trials whose weights go once they are done: by `reliability.keep`, and no other trial reads them."""
    if grid.reliability.keep == "weights":
        return frozenset()
    trials = trials_of(cells)
    return frozenset(trial.id for trial in trials) - {parent for trial in trials for parent in trial.parents}


def once(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without repetition: cells share trials that do not read a swept setting, as `con_con` has no tau.

    The merged cell takes the place of the first, with the swept values that all of them share. Cells without trials,
    of a paper's table, are not merged.
    """
    groups = grouped((tuple([trial.id for trial in cell.trials]) or (place,), cell) for place, cell in enumerate(cells))
    merged = []
    for first, *others in groups.values():
        common = tuple(pair for pair in first.swept if all(pair in other.swept for other in others))
        merged.append(replace(first, swept=common))
    return merged


def chains(trials: Sequence[Trial]) -> list[list[Trial]]:
    """The trials in chains, in order; an ensemble joins its members' chains. Parents beside these trials are done."""
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
    """The trials that a filter like `objective=*_cir seed=0` names, one or more; behind a `|` stands another filter.

    `also` are further axes, each with its values by trial id; no pattern names a trial that has no value.
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
    """The trials, with the values of their axes, that fit every word of a filter."""
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
    """The value of a trial on an axis; None: it has none."""
    if axis in also:
        return also[axis].get(trial.id)
    if axis == "seed":
        return str(trial.seed)
    return str(axes[axis]) if axis in axes else None
