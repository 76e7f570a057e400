"""What `goalgrid status` says: what runs and how far, what failed and what helps, what is stale, collapsed or left."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalgrid.planning.overview import Overview, many
from goalgrid.planning.work import epoch_steps
from goalgrid.terminal.options import RUNS
from grid.expansion import Trial
from grid.store.failures import Failure
from grid.store.files import last_json_line, read_json_lines
from grid.store.home import Home, State
from runners.trial.retries import POLICY

LISTED = 4
"""So many are spelled out on a line; of more, the range or the first."""


@dataclass(frozen=True)
class Alike:
    """Trials that failed for one reason: the same class, and messages that differ at most in numbers."""

    failure: Failure
    message: str
    trials: tuple[Trial, ...]
    attempts: int
    log: Path
    """Of the first one's last attempt."""
    alone: str
    """The command that runs the first one alone."""


@dataclass(frozen=True)
class Running:
    """A trial that is being trained."""

    trial: Trial
    host: str
    step: int
    steps: int | None
    """In all, where the data set's size is known."""
    epoch: int

    def to_dict(self) -> dict[str, Any]:
        place = {"host": self.host, "step": self.step, "steps": self.steps, "epoch": self.epoch}
        return {"trial": self.trial.id, **place, "epochs": self.trial.shared.train.epochs}


def failures(overview: Overview) -> list[Alike]:
    """Failed trials by class, then by message, the most frequent class first."""
    groups: dict[tuple[Failure, str], list[Trial]] = {}
    for trial in overview.having(State.FAILED):
        failure = overview.folder(trial).failure() or Failure.BUG
        groups.setdefault((failure, re.sub(r"\d+", "0", _message(overview, trial))), []).append(trial)
    sizes = dict.fromkeys((failure for failure, _ in groups), 0)
    for (failure, _), trials in groups.items():
        sizes[failure] += len(trials)
    ordered = sorted(groups.items(), key=lambda item: (-sizes[item[0][0]], item[0][0], -len(item[1])))
    return [_alike(overview, failure, trials) for (failure, _), trials in ordered]


def running(overview: Overview) -> list[Running]:
    """Trials that are being trained, with where and how far."""
    found = []
    for trial in overview.having(State.RUNNING):
        latest = overview.folder(trial).latest()
        lease, each = latest.content() if latest else {}, epoch_steps(trial.shared.dataset.name, trial.shared.train)
        steps = each and each * trial.shared.train.epochs
        epoch = len(read_json_lines(overview.folder(trial).history))
        found.append(Running(trial, str(lease.get("host", "?")), int(lease.get("step", 0)), steps, epoch))
    return found


def collapsed(overview: Overview) -> list[Trial]:
    """Trials whose validation recall, at their last epoch, was no better than chance."""
    begun = [trial for trial in overview.trials if overview.states[trial.id] is not State.PLANNED]
    last = [(trial, last_json_line(overview.folder(trial).history)) for trial in begun]
    return [trial for trial, row in last if row and "val_chance" in row and row["val_rsum"] <= row["val_chance"]]


def stale(overview: Overview) -> dict[str, dict[str, list[str]]]:
    """Stale trials' ids by cause, then by what exactly differs."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for trial_id, reasons in overview.stale.items():
        for reason in reasons:
            grouped.setdefault(reason.cause.value, {}).setdefault(reason.what, []).append(trial_id)
    return grouped


def to_dict(overview: Overview) -> dict[str, Any]:
    """For `--json`."""
    return {
        **overview.to_dict(),
        "running": [each.to_dict() for each in running(overview)],
        "failed": [
            {
                "class": alike.failure.value,
                "message": alike.message,
                "trials": [trial.id for trial in alike.trials],
                "attempts": alike.attempts,
                "log": str(alike.log),
                "advice": POLICY[alike.failure].advice,
                "alone": alike.alone,
            }
            for alike in failures(overview)
        ],
        "collapsed": [trial.id for trial in collapsed(overview)],
        "stale": stale(overview),
        "former": overview.former(),
        "left": [trial.id for trial in overview.left()],
    }


def lines(overview: Overview) -> list[str]:
    """A few lines, however many trials there are."""
    return [
        f"{overview.grid.name}: {overview.headline()}",
        *running_lines(overview),
        *failure_lines(overview),
        *note_lines(overview),
    ]


def note_lines(overview: Overview) -> list[str]:
    """What is collapsed, stale, or no part of the grid any more."""
    return [
        *(f"collapsed: {trial.id}: validation recall is at chance level" for trial in collapsed(overview)),
        *_stale_lines(overview),
        *_former_lines(overview),
    ]


def running_lines(overview: Overview) -> list[str]:
    """`running: 2 (vm: step 120, 80 of 600)`, a line a host."""
    hosts: dict[str, list[Running]] = {}
    for each in running(overview):
        hosts.setdefault(each.host, []).append(each)
    return [f"running: {len(trials)} ({host}: {_steps(trials)})" for host, trials in hosts.items()]


def failure_lines(overview: Overview) -> list[str]:
    """Failures by class with what helps, then by message, each with a log and the command that runs one alone."""
    told: list[str] = []
    found = failures(overview)
    for failure in dict.fromkeys(alike.failure for alike in found):
        members = [alike for alike in found if alike.failure is failure]
        count, attempts = (sum(each) for each in zip(*((len(m.trials), m.attempts) for m in members), strict=True))
        told.append(f"failed: {count} x {failure} ({many(attempts, 'attempt')}). {sentence(POLICY[failure].advice)}")
        for alike in members:
            told += [
                f"  {len(alike.trials)} x {alike.message}",
                f"    log:   {alike.log}",
                f"    alone: {alike.alone}",
            ]
    return told


def runs_option(home: Home) -> str:
    """The option that names the runs folder, where it is not the one that is taken without."""
    default = Path(os.environ.get("GOALGRID_RUNS", RUNS))
    return "" if home.path == default.expanduser() else f" --runs {shlex.quote(str(home.path))}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def _stale_lines(overview: Overview) -> list[str]:
    told = []
    for cause, reasons in stale(overview).items():
        for what, ids in reasons.items():
            detail = what if cause == "code" else f"{cause}: {what}"
            told.append(f"stale: {len(ids)} of {overview.count(State.DONE)} done, {detail}")
    if told:
        told.append(f"  train them anew: goalgrid run {overview.grid.name} --stale{runs_option(overview.home)}")
    return told


def _former_lines(overview: Overview) -> list[str]:
    former = overview.former()
    if not former:
        return []
    more = f" and {len(former) - LISTED} more" if len(former) > LISTED else ""
    left = f"{many(len(former), 'trial')} left the grid: {', '.join(former[:LISTED])}{more}"
    return [left, f"  remove what no grid names: goalgrid prune{runs_option(overview.home)}"]


def _alike(overview: Overview, failure: Failure, trials: list[Trial]) -> Alike:
    first = overview.folder(trials[0])
    latest = first.latest()
    log = latest.log if latest else first.error
    attempts = sum(len(overview.folder(trial).attempts()) for trial in trials)
    alone = (
        f"goalgrid resume {overview.grid.name} --only {_only(trials[0], overview)} --here{runs_option(overview.home)}"
    )
    return Alike(failure, _message(overview, trials[0]), tuple(trials), attempts, log, alone)


def _message(overview: Overview, trial: Trial) -> str:
    """The last attempt's message, else the last line of the error."""
    folder = overview.folder(trial)
    latest = folder.latest()
    return (latest.message() if latest else "") or folder.reason()


def _steps(trials: list[Running]) -> str:
    each = [f"{running.step:,}" for running in trials]
    steps = ", ".join(each)
    if len(trials) > LISTED:
        reached = [running.step for running in trials]
        steps = f"{min(reached):,} to {max(reached):,}"
    totals = {running.steps for running in trials}
    total = next(iter(totals)) if len(totals) == 1 else None
    return f"step {steps} of {total:,}" if total else f"step {steps}"


def _only(trial: Trial, overview: Overview) -> str:
    """The filter that names this trial, as a shell takes it."""
    cell = next(cell for cell in overview.cells if trial in cell.trials)
    others = [other.axes for other in overview.cells]
    words = [f"{name}={value}" for name, value in cell.axes.items() if any(o[name] != value for o in others)]
    return "'" + " ".join([*words, f"seed={trial.seed}"]) + "'"
