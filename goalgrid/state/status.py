"""Compute the state of a grid: progress of trials, failures with advice, stale trials.

`status_lines` formats it as text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.expansion import Trial, trials_of
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.messages import Step, Wording
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.earlier_searches import earlier_searches
from goalgrid.grid.store.files import read_json
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.results.records.chance import Chance
from goalgrid.runners.trial.retries import POLICY
from goalgrid.state import slurm_jobs
from goalgrid.state.grid_state import GridState


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed for the same reason: the same class, and messages that differ at most in numbers.

    `log`: the log of the first trial's last attempt. `alone`: the command that runs only this trial.
    """

    failure: Failure
    message: str
    trials: tuple[str, ...]
    attempts: int
    log: Path
    alone: Step
    advice: str

    def to_dict(self, wording: Wording = str) -> dict[str, Any]:
        """Return the fields for JSON; `wording` formats the next step."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {"log": str(self.log), "alone": wording(self.alone)}
        return {"class": content.pop("failure").value, **content}


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is being trained. `steps`, of the whole training, is None if the data set's size is unknown."""

    trial: str
    host: str
    step: int
    steps: int | None
    epoch: int
    epochs: int


def states_of(home: Home, names: Sequence[str] | None = None) -> dict[str, dict[State, int]]:
    """Count the trials of each grid's last run by state, without reading the grids. `names`: default all grids."""
    states = {}
    for name in home.grids() if names is None else names:
        if ids := home.grid(name).ids():
            counts = Counter(home.states(ids).values())
            states[name] = {state: counts[state] for state in State}
    return states


def failures(grid_state: GridState) -> list[FailureGroup]:
    """Group the failed trials by class (most frequent first), then by message."""
    failed = [(trial, grid_state.folder(trial)) for trial in grid_state.having(State.FAILED)]
    kinds = [(folder.failure() or Failure.BUG, re.sub(r"\d+", "0", _message(folder))) for _, folder in failed]
    groups = grouped((kind, trial) for kind, (trial, _) in zip(kinds, failed, strict=True))
    sizes = Counter(failure for failure, _ in kinds)
    ordered = sorted(groups.items(), key=lambda item: (-sizes[item[0][0]], item[0][0], -len(item[1])))
    return [_group(grid_state, failure, trials) for (failure, _), trials in ordered]


def waiting(grid_state: GridState) -> dict[str, list[str]]:
    """Map the id of each trial that waits for failed trials to the ids of these."""
    failed = {trial.id for trial in grid_state.having(State.FAILED)}
    named = {trial.id: [parent for parent in trial.parents if parent in failed] for trial in grid_state.unfinished()}
    return {trial_id: parents for trial_id, parents in named.items() if parents}


def running(grid_state: GridState) -> list[RunningTrial]:
    """Return the running trials with their hosts and steps."""
    trials = []
    for trial in grid_state.having(State.RUNNING):
        folder = grid_state.folder(trial)
        latest = folder.latest()
        lease = latest.content() if latest else {}
        of_epoch = grid_state.data.epoch_steps(trial.shared)
        steps, epoch = of_epoch and of_epoch * trial.epochs, len(list(folder.rows()))
        host, step = str(lease.get("host", "?")), int(lease.get("step", 0))
        trials.append(RunningTrial(trial.id, host, step, steps, epoch, trial.epochs))
    return trials


def collapsed(grid_state: GridState) -> dict[str, float]:
    """Map the id of each finished trial at chance level to the validation rsum that chance may reach."""
    chance = Chance(grid_state.home, grid_state.records)
    done = (trial.id for trial in trials_of(grid_state.cells) if trial.id in grid_state.records)
    return {trial_id: reach for trial_id in done if (reach := chance.reach(trial_id)) is not None}


def stale(grid_state: GridState) -> dict[str, dict[str, list[str]]]:
    """Group the ids of stale trials by cause, then by the exact difference."""
    reasons = grouped((reason, trial_id) for trial_id, reasons in grid_state.stale.items() for reason in reasons)
    return nested((reason.cause, reason.what, ids) for reason, ids in reasons.items())


def of_other_code(grid_state: GridState) -> set[str]:
    """Return the ids of finished trials that were trained with code other than the current code."""
    return {trial_id for ids in stale(grid_state).get("code", {}).values() for trial_id in ids}


def merged(grid_state: GridState) -> dict[str, str]:
    """Map the id of each merged trial to the runs folder it was taken from."""
    done = grid_state.having(State.DONE)
    origins = {trial.id: read_json(path) for trial in done if (path := grid_state.folder(trial).origin).exists()}
    return {trial_id: str(origin.get("from", "?")) for trial_id, origin in origins.items()}


def launches(grid_state: GridState) -> dict[str, list[str]]:
    """Map the id of each saved launch, oldest first, to the trials whose last or current attempt it made."""
    folders = grid_state.home.grid(grid_state.grid.name).kept_launches()
    if not folders:  # else no trial costs a look
        return {}
    begun = [trial for trial in grid_state.trials if grid_state.states[trial.id] is not State.PLANNED]
    latest = ((trial.id, grid_state.folder(trial).latest()) for trial in begun)
    of_launch = grouped((attempt.launch_id(), trial_id) for trial_id, attempt in latest if attempt)
    return {folder.path.name: of_launch.get(folder.path.name, []) for folder in folders}


def to_dict(grid_state: GridState, wording: Wording = str) -> dict[str, Any]:
    """Return the document that `goalgrid status --json` prints; `wording` formats next steps."""
    return {
        **grid_state.to_dict(),
        "running": [asdict(trial) for trial in running(grid_state)],
        "unreadable": {
            trial.id: grid_state.folder(trial).unreadable() for trial in grid_state.having(State.UNREADABLE)
        },
        "failed": [group.to_dict(wording) for group in failures(grid_state)],
        "waiting": waiting(grid_state),
        "collapsed": list(collapsed(grid_state)),
        "stale": stale(grid_state),
        "patched": grid_state.patched,
        "imported": [trial.id for trial in grid_state.imported],
        "merged": merged(grid_state),
        **_choices(grid_state),
        "seeds": {title: asdict(resolution) for title, resolution in grid_state.contests.items()},
        "slurm": slurm_jobs.lines(grid_state.home.grid(grid_state.grid.name)),
        "launches": launches(grid_state),
        "left": [trial.id for trial in grid_state.unfinished()],
    }


def _choices(grid_state: GridState) -> dict[str, Any]:
    """Return the settings selected on validation, and the earlier searches if there were any."""
    if not grid_state.searches:
        return {}
    earlier = searched_before(grid_state)
    choices = {"choices": [search.to_dict() for search in grid_state.searches]}
    return {**choices, **({"earlier_searches": earlier._asdict()} if earlier.trials else {})}


def searched_before(grid_state: GridState) -> EarlierSearches:
    """Return the searches that were run here before this grid's search."""
    present = {trial_id for search in grid_state.searches for trial_id in search.states}
    return earlier_searches(grid_state.grid, present, grid_state.home)


def _group(grid_state: GridState, failure: Failure, trials: list[Trial]) -> FailureGroup:
    from goalgrid.retrieval.splits.problems import check_command

    first, name = grid_state.folder(trials[0]), trials[0].shared.dataset.name
    latest, root, advice = first.latest(), grid_state.grid.root(name), POLICY[failure].advice
    attempts = sum(len(grid_state.folder(trial).attempts()) for trial in trials)
    only, runs = only_filter(trials[0], grid_state), grid_state.home.path
    alone = Step.of("resume", grid_state.grid.name, only=only, here=True, runs=runs)
    ids = tuple(trial.id for trial in trials)
    advice = advice.replace(check_command("NAME", "DIR"), check_command(name, root)) if root else advice
    return FailureGroup(failure, _message(first), ids, attempts, latest.log if latest else first.error, alone, advice)


def _message(folder: TrialFolder) -> str:
    """Return the message of the trial's last attempt, or the last line of its error if it has none."""
    latest = folder.latest()
    return (latest.message() if latest else "") or folder.reason()


def only_filter(trial: Trial, grid_state: GridState) -> str:
    """Return the --only filter that matches this trial and no other."""
    cell = next(cell for cell in grid_state.points if trial in cell.trials)
    others = [other.axes for other in grid_state.points]
    words = [f"{name}={value}" for name, value in cell.axes.items() if any(o.get(name) != value for o in others)]
    return " ".join([*words, f"seed={trial.seed}"])
