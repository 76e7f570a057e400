"""What `goalgrid plan` says of a grid.

The axes, why each trial would be trained or not, which of the papers' tables it fills, the work that is left, its cost.
"""

from collections.abc import Sequence
from typing import Any

from goalgrid.planning import gpu_costs, paper_coverage
from goalgrid.planning.costs import GridCost
from goalgrid.planning.decisions import TrialDecision, starting, to_train
from goalgrid.planning.overview import Overview
from goalgrid.planning.work import work_of
from grid.expansion import Trial

LABEL = 11
"""Width of what stands before each group of lines."""


def to_dict(overview: Overview, decisions: Sequence[TrialDecision], cost: GridCost) -> dict[str, Any]:
    """For `--json`."""
    return {
        **overview.to_dict(),
        "left": [trial.id for trial in to_train(decisions)],
        "reasons": [decision.to_dict() for decision in decisions],
        "work": [part.to_dict() for part in work_of(starting(decisions))],
        "cost": cost.to_dict(),
        "gpu_shares": {str(key): share for key, share in gpu_costs.shares(overview, starting(decisions)).items()},
        "tables": [paper_coverage.to_dict(table) for table in paper_coverage.fills(overview)],
    }


def lines(overview: Overview, decisions: Sequence[TrialDecision], cost: GridCost, *, each: bool) -> list[str]:
    """The plan as a reader wants it.

    Args:
        each: whether every trial gets a line.
    """
    grid = overview.grid
    axes = [f"{name:{LABEL}}{len(values):3}  {', '.join(map(str, values))}" for name, values in grid.axes().items()]
    starts, leaves = list[TrialDecision](), list[TrialDecision]()
    for decision in decisions:
        (starts if decision.starts else leaves).append(decision)
    trials = [decision.trial for decision in starts]
    work = _work(trials)
    return [
        f"{grid.name}: {overview.headline()}",
        *(f"  {line}" for line in axes),
        *_labelled("trains", _grouped(starts)),
        *_labelled("leaves", _grouped(leaves)),
        *_labelled("tables", paper_coverage.lines(paper_coverage.fills(overview))),
        *_labelled("work", work),
        *_labelled("costs", cost.lines() if work else ["nothing: nothing is left to train"]),
        *_labelled("GPU", gpu_costs.lines(overview, trials)),
        *(_each(decisions) if each else ()),
    ]


def _work(trials: Sequence[Trial]) -> list[str]:
    parts = work_of(trials)
    steps = [part.all_steps for part in parts if part.all_steps is not None]
    together = [f"in all {sum(steps):,} steps"] if 1 < len(parts) == len(steps) else []
    return [*(part.line() for part in parts), *together]


def _grouped(decisions: Sequence[TrialDecision]) -> list[str]:
    """`  3 x interrupted`, the most frequent reason first."""
    groups: dict[str, list[TrialDecision]] = {}
    for decision in decisions:
        groups.setdefault(decision.alike, []).append(decision)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [f"{len(members):3} x {_reason(alike, members)}" for alike, members in ordered]


def _reason(alike: str, members: Sequence[TrialDecision]) -> str:
    """With the detail where all have the same, which is the case where there is one."""
    details = {decision.detail for decision in members}
    return f"{alike} {details.pop()}".rstrip() if len(details) == 1 else alike


def _labelled(label: str, told: Sequence[str]) -> list[str]:
    return [f"  {label if place == 0 else '':{LABEL}}{line}" for place, line in enumerate(told)]


def _each(decisions: Sequence[TrialDecision]) -> list[str]:
    width = max((len(decision.trial.id) for decision in decisions), default=0)
    return [f"  {decision.trial.id:{width}}  {decision.text}" for decision in decisions]
