"""The plan printed by `goalgrid plan`: axes, which trials would be trained and why, tables filled, work and cost."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Trial, libraries_of
from goalgrid.grid.groups import grouped
from goalgrid.grid.messages import Note
from goalgrid.grid.objectives.goal_matrix import FAINT, FAINT_HELPS, is_faint
from goalgrid.grid.objectives.parameters import MEAN_LOSS
from goalgrid.planning.costs import GridCost, cost_of, needs_of, work_of
from goalgrid.planning.decisions import Choice, TrialDecision, decide, to_replace, to_train
from goalgrid.planning.device_cost import DeviceCost, device_cost
from goalgrid.planning.machine_use import GpuMachine
from goalgrid.state.grid_state import GridState, ranges
from goalgrid.state.status import of_other_code
from goalgrid.state.status_lines import choice_lines, earlier_lines, listed, seed_lines

if TYPE_CHECKING:
    from goalgrid.results.reference.coverage import Coverage

LABEL = 11
"""Width of the label before a group of lines."""
SHORT = 15
"""Number of epochs after which T^cir without its offset caught up on Flickr8k (docs/variants.md)."""


@dataclass(frozen=True)
class Plan:
    """Which trials of a grid would be trained, why, and at what cost."""

    grid_state: GridState
    decisions: Sequence[TrialDecision]
    trials: Sequence[Trial]
    """The trials that a run starts to train, and `pending`."""
    cost: GridCost
    pending: Sequence[Trial] = ()
    """Stand-ins for the trials that start once settings are selected on validation."""
    device: DeviceCost | None = None
    starts: Sequence[str] = ()
    """How published checkpoints differ from the models of the trials that start from them."""
    notes: Sequence[str] = ()
    """Notes on the data."""
    calls: Sequence[str] = ()
    """How pretrained networks whose weights are on this machine are called."""
    missing: Sequence[str] = ()
    """Missing data without which a run does not start."""

    @classmethod
    def of(
        cls,
        grid_state: GridState,
        choice: Choice = Choice(),  # noqa: B008
        *,
        jobs: int | None = None,
        rented: GpuMachine | None = None,
        allow_leak: bool = False,
    ) -> "Plan":
        """Return the plan for the chosen trials.

        Args:
            jobs: number of concurrent trials; None: the grid's setting, or else as many as fit here.
            rented: a GPU that the user asks about, with its price and machine.
            allow_leak: whether test images may be in the training or validation split.

        Raises UserError if no trial matches the filter, or these trials cannot be trained on their data.
        """
        grid_state.data.check(grid_state.selected(choice.only))
        decisions = decide(grid_state, choice)
        starts = grid_state.data.check_starts(to_train(decisions))
        notes = grid_state.data.check_fit(to_train(decisions), allow_leak=allow_leak)
        pending, anew = [] if choice.failed else grid_state.pending(choice.only), to_replace(decisions)
        trials = [*(decision.trial for decision in decisions if decision.starts), *pending]
        device = device_cost(grid_state, trials, anew, rented, jobs=jobs) if rented else None
        return cls(
            grid_state, decisions, trials, cost_of(grid_state, trials, anew, jobs=jobs), pending, device, starts, notes,
            grid_state.data.check_calls(to_train(decisions)), tuple(grid_state.data.missing(trials).values()),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        grid_state = self.grid_state
        return {
            **grid_state.to_dict(),
            "left": [trial.id for trial in to_train(self.decisions)],
            "data_notes": self.notes,
            "data_missing": self.missing,
            "calls": self.calls,
            "scale_notes": scale_lines(self.trials),
            "reasons": [decision.to_dict() for decision in self.decisions],
            **({"pending": len(self.pending)} if grid_state.searches else {}),
            "work": [part.to_dict() for part in work_of(grid_state, self.trials)],
            "cost": asdict(self.cost),
            **({"most_trials": grid_state.most} if grid_state.grid.budget else {}),
            **({"device": self.device.to_dict()} if self.device else {}),
            "tables": [
                {"name": t.name, "filled": len(t.filled), "lacking": len(t.lacking), "changed": list(t.changed)}
                for t in _fills(grid_state)
            ],
        }

    def lines(self, *, per_trial: bool = False) -> list[Note]:
        """Return the plan as lines for a reader; with `per_trial`, one more line per trial."""
        grid_state, decisions = self.grid_state, self.decisions
        axes = grid_state.grid.axes().items()
        longest = max((len(decision.trial.id) for decision in decisions), default=0)
        width = max(LABEL, *(len(name) + 1 for name, _ in axes))
        work, needs = _work(grid_state, self.trials), needs_of(grid_state, self.trials)
        imported = [f"{len(grid_state.imported):3} x imported"] if grid_state.imported else []
        groups: dict[str, Sequence[str | Note]] = {
            "budget": _budget(grid_state),
            "selects": _search(grid_state),
            "trains": _grouped([decision for decision in decisions if decision.starts]),
            "then": _then(grid_state, self.pending),
            "leaves": [*_grouped([decision for decision in decisions if not decision.starts]), *imported],
            "from": [*grid_state.grid.checkpoints.values(), *self.starts],
            "data": self.notes,
            "calls": self.calls,
            "objectives": _faint(self.trials),
            "scale": scale_lines(self.trials),
            "tables": [line for table in _fills(grid_state) for line in _filled(table)],
            "evaluates": grid_state.evaluation_lines(),
            "work": work,
            "needs": optional_dependencies.missing(libraries_of(self.trials).union(grid_state.grid.trackers)),
            "costs": self.cost.lines() if work else [_nothing(grid_state)],
            "GPU": [f"{key}: {need.text()}" for key, need in needs.items()],
        }
        groups |= {self.device.rented.card.name: self.device.lines()} if self.device else {}
        labelled = (("" if place else label, part) for label, of in groups.items() for place, part in enumerate(of))
        lines = [
            f"{grid_state.grid.name}: {grid_state.headline()}",
            *(f"  {'missing':{LABEL}}{reason}" for reason in self.missing),
            *(f"  {name:{width}}{len(values):3}  {', '.join(ranges(values))}" for name, values in axes),
        ]
        trials = [f"  {decision.trial.id:{longest}}  {decision.text}" for decision in decisions if per_trial]
        return [*map(Note, lines), *(_labelled(label, part) for label, part in labelled), *map(Note, trials)]


def _labelled(label: str, part: str | Note) -> Note:
    note = part if isinstance(part, Note) else Note(part)
    return replace(note, text=f"  {label:{LABEL}}{note.text}")


def scale_lines(trials: Iterable[Trial]) -> list[str]:
    """Report which objectives average over a batch while others of the same recipe sum, as both are clipped alike."""
    by_recipe: dict[str, dict[bool, dict[str, None]]] = {}
    for trial in trials:
        shared = trial.shared
        if trial.epochs and not shared.train.mean_loss:
            reduction = shared.objective.parameters.get("reduction", "average")  # own losses of scores have none
            kinds = by_recipe.setdefault(shared.recipe, {True: {}, False: {}})
            kinds[reduction == "sum"][shared.objective.name] = None
    mixed = [kinds for kinds in by_recipe.values() if kinds[True] and kinds[False]]
    sums, means = (list({name: None for kinds in mixed for name in kinds[of_sums]}) for of_sums in (True, False))
    if not mixed:
        return []
    return [
        f"averaged over a batch: {listed(means)}; summed: {listed(sums)}. train.clip_norm cuts the sums more often",
        f"to divide sums by the number of pairs, write below [set]: {MEAN_LOSS} (changes trial ids)",
    ]


def _budget(grid_state: GridState) -> list[str]:
    """Report the current and maximum number of trials, and the state of each contest."""
    if grid_state.grid.budget is None:
        return []
    now = f"{counted(len(grid_state.trials), 'trial')} now, at most {grid_state.most:,}: seeds are added until resolved"
    return [now, *seed_lines(grid_state)]


def _search(grid_state: GridState) -> list[str | Note]:
    """Report what each cell searches, over how many points, and how far the searches are."""
    select = grid_state.grid.select
    if select is None:
        return []
    counts = sorted({len(search.points) for search in grid_state.searches})
    points = f"{' or '.join(map(str, counts))} point{'s' * (counts != [1])} per cell"
    text = f"{', '.join(select.over)}: {points}, with seed {select.seed}, by {select.by}"
    text += ", including the default" * (select.include == "default")
    if select.confirm:
        text += f"; the best {select.confirm} confirmed with {counted(select.confirm_seeds, 'further seed')}"
    text += f"; {select.repeats} searches per cell, one per seed" * (select.repeats > 1)
    return [text, *filter(None, [grid_state.stops_none]), *choice_lines(grid_state), *earlier_lines(grid_state)]


def _faint(trials: Sequence[Trial]) -> list[str]:
    """Name the objectives that barely learn in trainings as short as these, with possible remedies."""
    short = [trial.shared for trial in trials if trial.epochs < SHORT and not trial.parents]
    names = dict.fromkeys(t.objective.name for t in short if is_faint(t.objective.name, t.objective.parameters))
    return [f"{', '.join(names)}: {FAINT}. What helps: {FAINT_HELPS}"] if names else []


def _then(grid_state: GridState, pending: Sequence[Trial]) -> list[str]:
    """Report how many trials wait for settings to be selected, and for how many search trials per cell."""
    numbers = sorted({len(search.states) for search in grid_state.searches if search.waiting})
    trials = "the search trial" if numbers == [1] else f"all {' or '.join(map(str, numbers))} search trials"
    return [f"{len(pending):3} x with selected settings, after {trials} of their cell"] if pending else []


def _work(grid_state: GridState, trials: Sequence[Trial]) -> list[str]:
    parts = work_of(grid_state, trials)
    steps = [part.all_steps for part in parts if part.all_steps is not None]
    together = [f"in all {sum(steps):,} steps"] if 1 < len(parts) == len(steps) else []
    return [*(part.line() for part in parts), *together]


def _nothing(grid_state: GridState) -> str:
    if other := len(grid_state.trained_on_other_data):
        return f"nothing without --stale: {counted(other, 'trial')} trained on data that has changed since"
    if old := len(of_other_code(grid_state)):
        return f"nothing without --stale: {counted(old, 'trial')} trained with older code"
    return "nothing: nothing is left to train"


def _grouped(decisions: Sequence[TrialDecision]) -> list[str]:
    """Count trials by reason, the most frequent first, as lines like `  3 x interrupted`."""
    lines = []
    for alike, details in _by_size((decision.alike, decision.detail) for decision in decisions):
        detail = details[0] if len({*details}) == 1 else ""
        lines.append(f"{len(details):3} x {alike} {detail}".rstrip())
    return lines


def _by_size(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Group the values by key, largest group first."""
    return sorted(grouped(pairs).items(), key=lambda item: -len(item[1]))


def _fills(grid_state: GridState) -> "list[Coverage]":
    """Return how much of each of its papers' tables the grid's cells cover."""
    if not grid_state.grid.tables:
        return []
    from goalgrid.results.reference.coverage import coverage

    return [coverage(name, grid_state.cells) for name in grid_state.grid.tables]


def _filled(coverage: "Coverage") -> list[str]:
    """Report how many of the table's numbers the grid fills, and why others will be missing, one line per reason."""
    total = len(coverage.filled) + len(coverage.lacking)
    share = f"all {total}" if not coverage.lacking else f"{len(coverage.filled)} of {total}"
    changed = (
        f", with settings that differ from the recipes': {', '.join(coverage.changed)}" if coverage.changed else ""
    )
    rows = (", ".join(filter(None, [result.model, result.loss])) for result, _ in coverage.lacking)
    missing = [(gap.why, gap.name or f"({row})") for (_, gap), row in zip(coverage.lacking, rows, strict=True)]
    return [
        f"{coverage.name}: the grid fills {share} numbers{changed}",
        *(f"{len(names):4} not: {why} {listed(list(dict.fromkeys(names)))}" for why, names in _by_size(missing)),
    ]
