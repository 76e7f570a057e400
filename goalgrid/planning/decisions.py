"""Why each trial of a grid would be trained now, or why not; and which are trained anew because a user says so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from goalgrid.planning.overview import Overview
from goalgrid.planning.work import reached
from grid.errors import UserError
from grid.expansion import Trial
from grid.store.home import State

LEFT = frozenset(State) - {State.DONE}
PLANNED = State.PLANNED


class Why(StrEnum):
    """The kind of a reason."""

    NEW = "new"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    RUNNING = "running"
    DONE = "done"
    STALE = "stale"
    FORCED = "forced"


NEW = (Why.NEW, "new", "")
"""The reason of most of a large grid's trials."""


@dataclass(frozen=True)
class Choice:
    """What a user asks to be trained.

    Args:
        only: a filter.
        states: those that are trained, without the further ones.
        force: from the beginning, whatever is there.
        stale: from the beginning, where another run now might give other numbers.
    """

    only: str = ""
    states: frozenset[State] = LEFT
    force: bool = False
    stale: bool = False


class TrialDecision(NamedTuple):
    """One trial's reason.

    Args:
        alike: what trials with the same reason have in common: `failed: out-of-memory`.
        detail: what is this one's own: `at epoch 3 of 30 (step 1,200)`.
        trains: whether a driver gets it.
    """

    trial: Trial
    why: Why
    alike: str
    detail: str
    trains: bool

    @property
    def starts(self) -> bool:
        """Whether a run begins to train it: what is running is left to who runs it."""
        return self.trains and self.why is not Why.RUNNING

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.alike, self.detail) if part)

    def to_dict(self) -> dict[str, Any]:
        return {"trial": self.trial.id, "why": self.why.value, "reason": self.text, "trains": self.starts}


def decide(overview: Overview, choice: Choice = Choice()) -> list[TrialDecision]:
    """The reasons of all trials that are asked for, of those that they start from, and of those that start from them.

    Raises:
        UserError: the filter names nothing, or what is to be trained anew is in use.
    """
    wanted = overview.selected(choice.only)
    anew = _anew(overview, choice, wanted)
    asked = {trial.id for trial in wanted} if choice.only else overview.states.keys()
    chosen, done = tuple(choice.states), State.DONE  # hashing a member, or looking it up, is Python's own slow code
    parents, decisions = set[str](), list[TrialDecision]()
    for trial in reversed(overview.trials):  # those that start from others come before these
        state, forced, shown = overview.states[trial.id], anew.get(trial.id), trial.id in asked
        needed = forced is not None or (shown and state in chosen) or trial.id in parents
        if needed and trial.parent:
            parents.add(trial.parent)
        trains = needed and (forced is not None or state is not done)
        if trains or shown:
            decisions.append(TrialDecision(trial, *_reason(overview, trial, forced), trains))
    decisions.reverse()
    return decisions


def to_train(decisions: Iterable[TrialDecision]) -> list[Trial]:
    """Parents first. Those that somebody else seems to train are among them: a driver finds out."""
    return [decision.trial for decision in decisions if decision.trains]


def starting(decisions: Iterable[TrialDecision]) -> list[Trial]:
    """The same without those that are left to who runs them."""
    return [decision.trial for decision in decisions if decision.starts]


def to_replace(decisions: Iterable[TrialDecision]) -> list[str]:
    """Ids of trials whose folders make room for a new beginning."""
    return [decision.trial.id for decision in decisions if decision.why is Why.FORCED]


def _anew(overview: Overview, choice: Choice, wanted: Sequence[Trial]) -> dict[str, str]:
    """Trials that begin anew, with what says so: the user, what made them stale, or their parent."""
    begun = {State.DONE, State.FAILED, State.INTERRUPTED}
    anew: dict[str, str] = {}
    if choice.force:
        anew = {trial.id: "" for trial in wanted if overview.states[trial.id] in begun}
    if choice.stale:
        stale = [trial.id for trial in wanted if trial.id in overview.stale]
        anew |= {trial_id: f"stale: {_causes(overview, trial_id)}" for trial_id in stale}
    for trial in overview.trials:
        if trial.parent not in anew:
            continue
        if overview.states[trial.id] is State.RUNNING:
            raise UserError(
                f"cannot train {trial.parent} anew: {trial.id}, which starts from it, is running on "
                f"{_host(overview, trial)}. Wait for that, or leave it out with --only."
            )
        if overview.states[trial.id] in begun:
            anew.setdefault(trial.id, "what it starts from is trained anew")
    return anew


def _causes(overview: Overview, trial_id: str) -> str:
    """What differs for a stale trial: `code`, `code and data`; empty for any other."""
    return " and ".join(reason.cause.value for reason in overview.stale.get(trial_id, ()))


def _reason(overview: Overview, trial: Trial, anew: str | None) -> tuple[Why, str, str]:
    if anew is not None:
        return Why.FORCED, f"forced, {anew}" if anew else "forced", ""
    state = overview.states[trial.id]
    if state is PLANNED:
        return NEW
    if state is State.DONE:
        stale = _causes(overview, trial.id)
        return (Why.STALE, f"done, stale: {stale}", "") if stale else (Why.DONE, "done", "")
    if state is State.RUNNING:
        return Why.RUNNING, f"running on {_host(overview, trial)}", ""
    if state is State.FAILED:
        return Why.FAILED, f"failed: {overview.folder(trial).failure() or 'of unknown class'}", ""
    epoch, step = reached(overview.folder(trial))
    return Why.INTERRUPTED, "interrupted", f"at epoch {epoch} of {trial.shared.train.epochs} (step {step:,})"


def _host(overview: Overview, trial: Trial) -> str:
    latest = overview.folder(trial).latest()
    return str(latest.content().get("host", "another machine")) if latest else "another machine"
