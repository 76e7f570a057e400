"""What `goalgrid status` says: how far trials run, why they failed and what helps, which are stale."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.cli.options import runs_option
from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Trial, trials_of
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.objectives import warms_up
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.earlier_searches import earlier_searches
from goalgrid.grid.store.files import read_json
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.grid.store.kept_launch import version_words
from goalgrid.results.records.chance import Chance
from goalgrid.runners.trial.retries import POLICY
from goalgrid.state import named_grids, slurm_jobs
from goalgrid.state.grid_state import ORDER, GridState

if TYPE_CHECKING:
    from goalgrid.results.statistics.resolving import Resolution

FEW_IMAGES = 1000
"""Of a training split that may be too small to learn from."""
LISTED = 4
"""Names that are spelled out on a line; of more steps of trials, the range."""
LOST = "; not shown, as its data are others now: import it again by goalgrid evaluate FILE --into GRID"


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed for the same reason: the same class, and messages that differ at most in numbers.

    The log of the first trial's last attempt, and the command that runs this trial alone, stand for all of them.
    """

    failure: Failure
    message: str
    trials: tuple[str, ...]
    attempts: int
    log: Path
    alone: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        content = {**asdict(self), "log": str(self.log)}
        return {"class": content.pop("failure").value, **content}


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is being trained; the steps of the whole training are None where the data set's size is unknown."""

    trial: str
    host: str
    step: int
    steps: int | None
    epoch: int
    epochs: int


def by_ids(names: Sequence[str], home: Home) -> list[str]:
    """A line for each grid that ran: the states of the trials of its last run, without a look into the grid."""
    lines = []
    for name, counts in states_of(home, names).items():
        states = ", ".join(f"{counts[state]:,} {state}" for state in ORDER if counts[state])
        lines.append(f"{name}: {counted(sum(counts.values()), 'trial')}: {states}")
    return lines


def states_of(home: Home, names: Sequence[str] | None = None) -> dict[str, dict[State, int]]:
    """How many trials of each grid's last run are in each state, without a look into the grids; None: of all grids."""
    states = {}
    for name in home.grids() if names is None else names:
        if ids := home.grid(name).ids():
            counts = Counter(home.states(ids).values())
            states[name] = {state: counts[state] for state in State}
    return states


def grid_lines(home: Home) -> list[str]:
    """A line for each grid that ran, and what shows one of them."""
    if not (lines := by_ids(home.grids(), home)):
        return [f"no grid ran under {home.path} yet. Start one: goalgrid run demo{runs_option(home)}"]
    return [*lines, f"more of one: goalgrid status GRID{runs_option(home)}"]


def failures(grid_state: GridState) -> list[FailureGroup]:
    """Failed trials by class, then by message, the most frequent class first."""
    failed = [(trial, grid_state.folder(trial)) for trial in grid_state.having(State.FAILED)]
    kinds = [(folder.failure() or Failure.BUG, re.sub(r"\d+", "0", _message(folder))) for _, folder in failed]
    groups = grouped((kind, trial) for kind, (trial, _) in zip(kinds, failed, strict=True))
    sizes = Counter(failure for failure, _ in kinds)
    ordered = sorted(groups.items(), key=lambda item: (-sizes[item[0][0]], item[0][0], -len(item[1])))
    return [_group(grid_state, failure, trials) for (failure, _), trials in ordered]


def waiting(grid_state: GridState) -> dict[str, list[str]]:
    """The planned trials that come after trials that failed, with these."""
    failed = {trial.id for trial in grid_state.having(State.FAILED)}
    named = {trial.id: [parent for parent in trial.parents if parent in failed] for trial in grid_state.unfinished()}
    return {trial_id: parents for trial_id, parents in named.items() if parents}


def running(grid_state: GridState) -> list[RunningTrial]:
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
    """Finished trials of tables whose validation rsum is no better than chance, with what chance reaches."""
    chance = Chance(grid_state.home, grid_state.records)
    done = (trial.id for trial in trials_of(grid_state.cells) if trial.id in grid_state.records)
    return {trial_id: reach for trial_id in done if (reach := chance.reach(trial_id)) is not None}


def stale(grid_state: GridState) -> dict[str, dict[str, list[str]]]:
    """Stale trials' ids by cause, then by what exactly differs."""
    reasons = grouped((reason, trial_id) for trial_id, reasons in grid_state.stale.items() for reason in reasons)
    return nested((reason.cause, reason.what, ids) for reason, ids in reasons.items())


def of_other_code(grid_state: GridState) -> set[str]:
    """Ids of the finished trials that other code trained than would train them now, as an own loss that was changed."""
    return {trial_id for ids in stale(grid_state).get("code", {}).values() for trial_id in ids}


def merged(grid_state: GridState) -> dict[str, str]:
    """The runs folder that a finished trial was taken from, by trial id."""
    done = grid_state.having(State.DONE)
    origins = {trial.id: read_json(path) for trial in done if (path := grid_state.folder(trial).origin).exists()}
    return {trial_id: str(origin.get("from", "?")) for trial_id, origin in origins.items()}


def launches(grid_state: GridState) -> dict[str, list[str]]:
    """The trials that each kept launch trained last, or trains, by its id, oldest first; launches without any, too."""
    folders = grid_state.home.grid(grid_state.grid.name).kept_launches()
    if not folders:  # else no trial costs a look
        return {}
    begun = [trial for trial in grid_state.trials if grid_state.states[trial.id] is not State.PLANNED]
    latest = ((trial.id, grid_state.folder(trial).latest()) for trial in begun)
    of_launch = grouped((attempt.launch_id(), trial_id) for trial_id, attempt in latest if attempt)
    return {folder.path.name: of_launch.get(folder.path.name, []) for folder in folders}


def to_dict(grid_state: GridState) -> dict[str, Any]:
    return {
        **grid_state.to_dict(),
        "running": [asdict(trial) for trial in running(grid_state)],
        "unreadable": {
            trial.id: grid_state.folder(trial).unreadable() for trial in grid_state.having(State.UNREADABLE)
        },
        "failed": [group.to_dict() for group in failures(grid_state)],
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
    """Where validation chooses: the choices, and the earlier searches if there were any."""
    if not grid_state.searches:
        return {}
    earlier = _earlier(grid_state)
    choices = {"choices": [search.to_dict() for search in grid_state.searches]}
    return {**choices, **({"earlier_searches": earlier._asdict()} if earlier.trials else {})}


def lines(grid_state: GridState) -> list[str]:
    """A few lines, however many trials there are."""
    return [
        f"{grid_state.grid.name}: {grid_state.headline()}",
        *unreadable_lines(grid_state),
        *running_lines(grid_state),
        *slurm_jobs.lines(grid_state.home.grid(grid_state.grid.name)),
        *launch_lines(grid_state),
        *failure_lines(grid_state),
        *earlier_lines(grid_state),
        *note_lines(grid_state),
    ]


def seed_lines(grid_state: GridState) -> list[str]:
    """Where seeds are added until resolved: what competes in each block, and what is out, with their seeds."""
    if (budget := grid_state.grid.budget) is None:
        return []
    words = {
        "open": f"open, at most {budget.seeds} seeds",
        "resolved": f"resolved: what competes differs by less than {budget.difference:g} points, or is a single cell",
        "spent": f"the budget of {budget.seeds} seeds is spent",
    }

    def counts(block: "Resolution", names: Sequence[str]) -> str:
        """`con_con, lin_con (3 seeds); sig_cir (5 seeds)`."""
        groups = sorted(grouped((block.seeds[name], name) for name in names).items())
        return "; ".join(f"{', '.join(members)} ({number} seeds)" for number, members in groups)

    return [
        f"seeds of {title}: {words[block.state]}; competing: {counts(block, block.competing)}"
        + (f"; out: {counts(block, block.out)}" if block.out else "")
        + (f"; left out until its failed trial is done: {', '.join(block.failed)}" if block.failed else "")
        for title, block in grid_state.contests.items()
    ]


def choice_lines(grid_state: GridState) -> list[str]:
    """Where validation chooses: how far it is, cells without a choice, and values at the edge of what was tried."""
    if not (searches := grid_state.searches):
        return []
    chosen = [(search.title, search.chosen) for search in searches if search.chosen]
    every, waiting = sum(len(search.states) for search in searches), sum(search.waiting for search in searches)
    text = f"choices: {len(chosen)} of {counted(len(searches), 'cell')}"
    lost = [search for search in searches if not search.chosen and not search.waiting]
    return [
        f"{text}; {every - waiting} of {counted(every, 'search trial')} have ended" if waiting else text,
        *(
            f"no choice for {search.title}: its {counted(len(search.states), 'search trial')} failed; other cells go on"
            for search in lost
        ),
        *_of_search(grid_state),
        *(
            f"{title}: the chosen {name} = {dict(choice.best.point)[name]} is at the edge of what was tried, "
            f"{choice.range(name)}; a better value may lie beyond"
            for title, choice in chosen
            for name in choice.edges
        ),
    ]


def earlier_lines(grid_state: GridState) -> list[str]:
    """How much was searched here before, as captions of tables say, too; empty: nothing, or nothing is searched now."""
    earlier = _earlier(grid_state) if grid_state.searches else EarlierSearches()
    return [f"test results of {earlier} were known when this search began"] if earlier.trials else []


def _earlier(grid_state: GridState) -> EarlierSearches:
    """Return what was searched here before the search of this grid."""
    present = {trial_id for search in grid_state.searches for trial_id in search.states}
    return earlier_searches(grid_state.grid, present, grid_state.home)


def _of_search(grid_state: GridState) -> list[str]:
    """How many search trials diverged, with how to train one of them again."""
    if not (diverged := grid_state.having(State.DIVERGED)):
        return []
    only = f"--force --only {_only(diverged[0], grid_state)}{runs_option(grid_state.home)}"
    again = f"goalgrid run {grid_state.grid.name} {only}"
    words = (
        "counts as the worst point of its cell, and is not tried again"
        if len(diverged) == 1
        else ("count as the worst points of their cells, and are not tried again")
    )
    return [f"{counted(len(diverged), 'search trial')} diverged: {words}. To train one again: {again}"]


def ended(grid_state: GridState) -> list[str]:
    """What a launch says at its end: the states, why trials failed, and which trials no table shows."""
    lines = [
        f"{grid_state.grid.name}: {grid_state.headline()}",
        *unreadable_lines(grid_state),
        *choice_lines(grid_state),
    ]
    lines += seed_lines(grid_state)
    lines += [*failure_lines(grid_state), *_evaluation_lines(grid_state), *_uncompared(grid_state)]
    retrain = f"Retrain with: goalgrid resume {grid_state.grid.name} --stale{runs_option(grid_state.home)}"
    if other := grid_state.trained_on_other_data:
        lines += [f"{counted(len(other), 'trial')} trained on other data than are here now, and not shown. {retrain}"]
    if old := of_other_code(grid_state):
        lines += [f"{counted(len(old), 'trial')} trained with older code; old results kept. {retrain}"]
    lines += [line for line in _imported_lines(grid_state) if line.endswith(LOST)]
    return [*lines, *_collapsed_lines(grid_state)]


def written(grid_state: GridState) -> str:
    """Return where a grid's tables and records are."""
    folder = grid_state.home.grid(grid_state.grid.name)
    return f"written: {folder.tables} (Parquet, LaTeX, Markdown, ...) and {folder.results}"


def next_lines(grid_state: GridState) -> list[str]:
    """The commands after a grid that is done, and the place of its tables."""
    of = f"{shlex.quote(grid_state.grid.name)}{runs_option(grid_state.home)}"
    commands = {
        f"goalgrid report {of}": "one HTML page: tables, figures, and which differences are significant",
        f"goalgrid table {of} --output table.tex": "LaTeX; the ending says the format, e.g. .md or .parquet",
        f"goalgrid figures {of}": "training curves, effects and others as pictures",
    }
    width = max(map(len, commands))
    return [
        f"{written(grid_state)}. Next:",
        *(f"  {command:{width}}  {meaning}" for command, meaning in commands.items()),
    ]


def _collapsed_lines(grid_state: GridState) -> list[str]:
    """How many trials know nothing, and how much that may reach: on a small validation split it is much."""
    if not (chances := collapsed(grid_state)):
        return []
    count = f"{len(chances)} of {grid_state.counts[State.DONE]} done perform at chance level on the validation split"
    most = max(chances.values())
    small = ", the most there is: take more validation images" * (most >= 600)
    line = f"collapsed: {count}, where it reaches an rsum of up to {most:.0f}{small}: {listed(list(chances))}"
    return [line, *_ways_out(grid_state, next(trial for trial in trials_of(grid_state.cells) if trial.id in chances))]


def _ways_out(grid_state: GridState, trial: Trial) -> list[str]:
    """Return what may help a trial that has learnt nothing, a line for each remedy."""
    from goalgrid.retrieval.splits.problems import check_command

    shared, name = trial.shared, trial.shared.dataset.name
    images, _ = grid_state.data.sizes(shared).get("train", (FEW_IMAGES, 0))
    images = min(images, shared.dataset.train_images or images)
    root = grid_state.grid.root(name)
    mines = warms_up(shared.objective.name, shared.objective.parameters) and not shared.train.warmup_epochs
    ways = {
        f"more images: {name} trains on {images:,}": images < FEW_IMAGES,
        "all negatives at first, as the hardest may draw all vectors to one point: train.warmup_epochs = 1": mines,
        "another learning rate: train.lr": True,
        f"are its words unknown, or its features alike? {check_command(name, root or 'DIR')}": root is not None,
    }
    return [f"  may help: {way}" for way, fits in ways.items() if fits]


def note_lines(grid_state: GridState) -> list[str]:
    """The trials that are collapsed, stale or merged, and the grid's runs with overrides."""
    others = named_grids.variants(grid_state.grid.name, grid_state.home)
    lines = [*choice_lines(grid_state), *seed_lines(grid_state), *_collapsed_lines(grid_state)]
    lines += [*_imported_lines(grid_state), *_stale_lines(grid_state)]
    places = Counter(merged(grid_state).values())
    lines += [f"merged: {counted(count, 'trial')} from {place}" for place, count in places.items()]
    lines += _evaluation_lines(grid_state)
    return [*lines, *([f"run with overrides, too: {listed(others)}"] if others else [])]


def _imported_lines(grid_state: GridState) -> list[str]:
    shown = {trial.id: f"imported: {trial.id}: {trial.shared.published}" for trial in grid_state.imported}
    return [line + LOST * (trial_id in grid_state.of_other_data) for trial_id, line in shown.items()]


def unreadable_lines(grid_state: GridState) -> list[str]:
    """`unreadable: 2 (Permission denied: ...)`, with what helps."""
    reasons = {trial.id: grid_state.folder(trial).unreadable() for trial in grid_state.having(State.UNREADABLE)}
    if not reasons:
        return []
    helps = "have its owner open it to you (chmod -R g+rX), or fix the disk; then run the same command again"
    return [f"unreadable: {counted(len(reasons), 'trial')}: {listed(list(reasons.values()))}; {helps}"]


def running_lines(grid_state: GridState) -> list[str]:
    """`running: 2 (vm: step 120, 80 of 600)`, a line a host."""
    hosts = grouped((trial.host, trial) for trial in running(grid_state))
    return [f"running: {len(trials)} ({host}: {_steps(trials)})" for host, trials in hosts.items()]


def launch_lines(grid_state: GridState) -> list[str]:
    """`launch 3fa94c210b7e5d18: trained 12 trials; goalgrid 0.2.0 (commit 1a2b3c4d5e6f)`."""
    folder, lines = grid_state.home.grid(grid_state.grid.name), list[str]()
    for name, ids in launches(grid_state).items():
        trained = counted(len(ids), "trial") if ids else "no trial yet"
        made_by = read_json(folder.launch(name).content).get("made_by")
        lines.append(f"launch {name}: trained {trained}; {version_words(made_by if isinstance(made_by, dict) else {})}")
    return lines


def failure_lines(grid_state: GridState) -> list[str]:
    """Failures by class with advice, then by message, with a log and the command that runs a trial alone.

    Then the trials that wait for a trial that failed.
    """
    text: list[str] = []
    for failure, members in groupby(failures(grid_state), key=lambda group: group.failure):
        groups = list(members)
        count, attempts = sum(len(group.trials) for group in groups), sum(group.attempts for group in groups)
        advice = groups[0].advice[0].upper() + groups[0].advice[1:]
        text.append(f"failed: {count} x {failure} ({counted(attempts, 'attempt')}). {advice}.")
        for group in groups:
            text += [f"  {len(group.trials)} x {group.message}", f"    log:   {group.log}", f"    alone: {group.alone}"]
    waits = [f"{trial} ({', '.join(failed)})" for trial, failed in waiting(grid_state).items()]
    return [*text, *([f"waiting for trials that failed: {listed(waits)}"] if waits else [])]


def _stale_lines(grid_state: GridState) -> list[str]:
    lines = [
        f"stale: {len(ids)} of {grid_state.counts[State.DONE]} done, {what if cause == 'code' else f'{cause}: {what}'}"
        for cause, reasons in stale(grid_state).items()
        for what, ids in reasons.items()
    ]
    if lines:
        lines += [f"  retrain them: goalgrid resume {grid_state.grid.name} --stale{runs_option(grid_state.home)}"]
    patched = Counter(grid_state.patched.values())
    lines += [f"note: {count} done with other versions, without effect on results: {v}" for v, count in patched.items()]
    return lines + _uncompared(grid_state)


def _evaluation_lines(grid_state: GridState) -> list[str]:
    """The further evaluations that are missing, with the command that makes them."""
    resume = f"goalgrid resume {grid_state.grid.name}{runs_option(grid_state.home)}"
    return [f"{line}; make them: {resume}" for line in grid_state.evaluation_lines()]


def _uncompared(grid_state: GridState) -> list[str]:
    return [f"data of {name} cannot be compared: {why}" for name, why in grid_state.data.unreadable.items()]


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _group(grid_state: GridState, failure: Failure, trials: list[Trial]) -> FailureGroup:
    from goalgrid.retrieval.splits.problems import check_command

    first, name = grid_state.folder(trials[0]), trials[0].shared.dataset.name
    latest, root, advice = first.latest(), grid_state.grid.root(name), POLICY[failure].advice
    attempts = sum(len(grid_state.folder(trial).attempts()) for trial in trials)
    only = f"--only {_only(trials[0], grid_state)} --here{runs_option(grid_state.home)}"
    alone = f"goalgrid resume {grid_state.grid.name} {only}"
    ids = tuple(trial.id for trial in trials)
    advice = advice.replace(check_command("NAME", "DIR"), check_command(name, root)) if root else advice
    return FailureGroup(failure, _message(first), ids, attempts, latest.log if latest else first.error, alone, advice)


def _message(folder: TrialFolder) -> str:
    """The message of the trial's last attempt, else the last line of its error."""
    latest = folder.latest()
    return (latest.message() if latest else "") or folder.reason()


def _steps(trials: list[RunningTrial]) -> str:
    reached, totals = [trial.step for trial in trials], {trial.steps for trial in trials}
    few = ", ".join(f"{step:,}" for step in reached)
    steps = few if len(trials) <= LISTED else f"{min(reached):,} to {max(reached):,}"
    total = totals.pop() if len(totals) == 1 else None
    return f"step {steps} of {total:,}" if total else f"step {steps}"


def _only(trial: Trial, grid_state: GridState) -> str:
    """The filter that names this trial, as a shell takes it."""
    cell = next(cell for cell in grid_state.points if trial in cell.trials)
    others = [other.axes for other in grid_state.points]
    words = [f"{name}={value}" for name, value in cell.axes.items() if any(o.get(name) != value for o in others)]
    return "'" + " ".join([*words, f"seed={trial.seed}"]) + "'"
