"""Decide which trials of a grid are trained or retrained, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial
from goalgrid.grid.store.home import ENDED, State
from goalgrid.planning.costs import reached
from goalgrid.state.grid_state import GridState

Why = Literal["new", "interrupted", "failed", "running", "done", "stale", "forced", "stopped", "diverged", "unreadable"]


@dataclass(frozen=True)
class Choice:
    """The user's choice of trials to train."""

    only: str = ""
    failed: bool = False
    force: bool = False
    stale: bool = False
    """Retrain finished trials from scratch if a rerun might give different results."""
    before: frozenset[str] = frozenset()
    """Ids of trials that an earlier round of the launch has trained or given up."""


class TrialDecision(NamedTuple):
    """Whether a trial is trained, and why."""

    trial: Trial
    why: Why
    alike: str
    """The reason, which several trials may share: `failed: out-of-memory`."""
    detail: str
    """Details of this trial: `at epoch 3 of 30 (step 1,200)`."""
    trains: bool
    """Whether the trial is passed to a launch."""

    @property
    def starts(self) -> bool:
        """Whether a run starts training it; a running trial is left to its process."""
        return self.trains and self.why != "running"

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.alike, self.detail) if part)

    def to_dict(self) -> dict[str, Any]:
        return {"trial": self.trial.id, "why": self.why, "reason": self.text, "trains": self.starts}


def decide(grid_state: GridState, choice: Choice = Choice()) -> list[TrialDecision]:
    """Decide on the trials that match the filter, their untrained parents, and the children of replaced trials.

    Raises UserError if no trial matches the filter, or a trial that depends on a replaced trial is running.
    """
    chosen_trials = [trial for trial in grid_state.selected(choice.only) if not trial.shared.published]
    anew = _anew(grid_state, choice, chosen_trials)
    asked = {trial.id for trial in chosen_trials} if choice.only else grid_state.states.keys()
    done = State.DONE  # looking a member up, or hashing it, is Python's own slow code
    chosen = (State.FAILED,) if choice.failed else tuple(state for state in State if state is not done)
    over = (trial.id for state in (State.STOPPED, State.DIVERGED) for trial in grid_state.having(state))
    barred = grid_state.with_children(name for name in over if name not in anew)
    parents, decisions = set[str](), list[TrialDecision]()
    for trial in reversed(grid_state.trials):  # children come before their parents
        if trial.shared.published:
            continue
        state, forced, shown = grid_state.states[trial.id], anew.get(trial.id), trial.id in asked
        fresh = shown and state in chosen and trial.id not in choice.before
        needed = forced is not None or (trial.id not in barred and (fresh or trial.id in parents))
        if needed:
            parents.update(trial.parents)
        astray = needed and any(  # it is done on other data than are here now, and stays so
            parent not in anew and grid_state.states.get(parent) is done and parent in grid_state.of_other_data
            for parent in trial.parents
        )
        trains = needed and (forced is not None or (state is not done and not astray))
        if trains or shown:
            why = _reason(grid_state, trial, forced)
            if astray and not trains and state is not done:
                why = "stale", f"the trial it {_needs(trial)} was trained on other data; --stale retrains both", ""
            decisions.append(TrialDecision(trial, *why, trains))
    decisions.reverse()
    return decisions


def to_train(decisions: Iterable[TrialDecision]) -> list[Trial]:
    """Return the trials to launch, parents first; the launch checks whether running trials are still alive."""
    return [decision.trial for decision in decisions if decision.trains]


def to_evaluate(decisions: Iterable[TrialDecision], grid_state: GridState) -> list[Trial]:
    """Return the trials that need the evaluations of [evaluate]: those trained now, and finished ones that lack them.

    Trials done on other data are excluded, and search trials, which are only validated.
    """
    if not grid_state.grid.evaluate.names:
        return []
    done = {trial.id for trial in grid_state.having(State.DONE)} & grid_state.lacking.keys() - grid_state.of_other_data
    asked = [d.trial for d in decisions if d.trains or d.trial.id in done]
    return [trial for trial in asked if trial.seed not in grid_state.grid.search_seeds]


def to_replace(decisions: Iterable[TrialDecision]) -> list[str]:
    """Return the ids of trials that are retrained from scratch; their old folders are archived."""
    return [decision.trial.id for decision in decisions if decision.why == "forced"]


def _anew(grid_state: GridState, choice: Choice, selected: Sequence[Trial]) -> dict[str, str]:
    """Map trials that are retrained from scratch to the reason: empty for --force, otherwise staleness or a parent."""
    begun = {*ENDED, State.INTERRUPTED}
    anew: dict[str, str] = {}
    if choice.force:
        anew = {trial.id: "" for trial in selected if grid_state.states[trial.id] in begun}
    if choice.stale:
        stale = [trial.id for trial in selected if trial.id in grid_state.stale]
        anew |= {trial_id: f"stale: {_causes(grid_state, trial_id)}" for trial_id in stale}
    for trial in grid_state.trials:
        replaced = [parent for parent in trial.parents if parent in anew]
        if not replaced:
            continue
        if grid_state.states[trial.id] is State.RUNNING:
            raise UserError(
                f"cannot retrain {replaced[0]}: {trial.id}, which {_needs(trial)} it, is running on "
                f"{_host(grid_state, trial)}. Wait until it has ended, or exclude {replaced[0]} with --only."
            )
        if grid_state.states[trial.id] in begun:
            anew.setdefault(trial.id, f"the trial it {_needs(trial)} is retrained")
    return anew


def _needs(trial: Trial) -> str:
    return "averages" if trial.shared.members else "is ranked by" if trial.ranker else "starts from"


def _causes(grid_state: GridState, trial_id: str) -> str:
    """Return the causes why a trial is stale, e.g. `code and data`; empty if it is not."""
    return " and ".join(reason.cause for reason in grid_state.stale.get(trial_id, ()))


def _reason(grid_state: GridState, trial: Trial, anew: str | None) -> tuple[Why, str, str]:
    if anew is not None:
        return "forced", f"forced, {anew}" if anew else "forced", ""
    state = grid_state.states[trial.id]
    if state is State.PLANNED:
        return "new", "new", ""
    if state is State.DONE:
        stale = _causes(grid_state, trial.id)
        return ("stale", f"done, stale: {stale}", "") if stale else ("done", "done", "")
    if state is State.RUNNING:
        return "running", f"running on {_host(grid_state, trial)}", ""
    if state is State.FAILED:
        return "failed", f"failed: {grid_state.folder(trial).failure() or 'of unknown class'}", ""
    if state is State.UNREADABLE:
        return "unreadable", "its folder cannot be read", grid_state.folder(trial).unreadable()
    epoch, step = reached(grid_state.folder(trial))
    ends: dict[State, Why] = {State.STOPPED: "stopped", State.DIVERGED: "diverged"}
    why = ends.get(state, "interrupted")
    return why, why, f"at epoch {epoch} of {trial.epochs} (step {step:,})" if trial.epochs else ""


def _host(grid_state: GridState, trial: Trial) -> str:
    latest = grid_state.folder(trial).latest()
    return str(latest.content().get("host", "another machine")) if latest else "another machine"
