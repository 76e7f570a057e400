"""Describe the state of a grid, with suggested next steps, for `goalgrid status`, plans and reports."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Trial, trials_of
from goalgrid.grid.groups import grouped
from goalgrid.grid.messages import Note, Step
from goalgrid.grid.store.files import read_json
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.kept_launch import version_words
from goalgrid.state import named_grids, slurm_jobs
from goalgrid.state.grid_state import ORDER, GridState
from goalgrid.state.status import (
    RunningTrial,
    collapsed,
    failures,
    launches,
    merged,
    of_other_code,
    only_filter,
    running,
    searched_before,
    stale,
    states_of,
    waiting,
)

if TYPE_CHECKING:
    from goalgrid.results.statistics.resolving import Resolution

FEW_IMAGES = 1000
"""A training split with fewer images than this may be too small to learn from."""
LISTED = 4
"""Number of names listed on a line before the rest are only counted; for steps of trials, before a range is shown."""


def by_ids(names: Sequence[str], home: Home) -> list[str]:
    """Return one line per grid that has run: the trial states of its last run, without reading the grid itself."""
    lines = []
    for name, counts in states_of(home, names).items():
        states = ", ".join(f"{counts[state]:,} {state}" for state in ORDER if counts[state])
        lines.append(f"{name}: {counted(sum(counts.values()), 'trial')}: {states}")
    return lines


def grid_lines(home: Home) -> list[Note]:
    """Return one line per grid that has run, and the command that shows one of them."""
    if not (lines := by_ids(home.grids(), home)):
        step = Step.of("run", "demo", runs=home.path, load=True)
        return [Note(f"no grid has run under {home.path} yet. Start one: {{step}}", step)]
    return [
        *map(Note, lines),
        Note("details of one grid: {step}", Step.of("status", "GRID", runs=home.path, load=True)),
    ]


def lines(grid_state: GridState) -> list[Note]:
    """Summarise the state of a grid in a few lines, however many trials it has."""
    return [
        *_head(grid_state),
        *map(Note, running_lines(grid_state)),
        *map(Note, slurm_jobs.lines(grid_state.home.grid(grid_state.grid.name))),
        *map(Note, launch_lines(grid_state)),
        *failure_lines(grid_state),
        *map(Note, earlier_lines(grid_state)),
        *note_lines(grid_state),
    ]


def _head(grid_state: GridState) -> list[Note]:
    return [Note(f"{grid_state.grid.name}: {grid_state.headline()}"), *map(Note, unreadable_lines(grid_state))]


def seed_lines(grid_state: GridState) -> list[str]:
    """List per block which cells still compete for the best and which are out, with their numbers of seeds.

    Empty unless the grid adds seeds until resolved.
    """
    if (budget := grid_state.grid.budget) is None:
        return []
    words = {
        "open": f"open, at most {budget.seeds} seeds",
        "resolved": f"resolved: competing cells differ by less than {budget.difference:g} points, or one is left",
        "spent": f"the budget of {budget.seeds} seeds is spent",
    }

    def counts(block: "Resolution", names: Sequence[str]) -> str:
        """Return `con_con, lin_con (3 seeds); sig_cir (5 seeds)`."""
        groups = sorted(grouped((block.seeds[name], name) for name in names).items())
        return "; ".join(f"{', '.join(members)} ({number} seeds)" for number, members in groups)

    return [
        f"seeds of {title}: {words[block.state]}; competing: {counts(block, block.competing)}"
        + (f"; out: {counts(block, block.out)}" if block.out else "")
        + (f"; excluded until their failed trials are done: {', '.join(block.failed)}" if block.failed else "")
        for title, block in grid_state.contests.items()
    ]


def choice_lines(grid_state: GridState) -> list[Note]:
    """Report how many cells have selected settings, which cannot, and which values are at the edge of the range."""
    if not (searches := grid_state.searches):
        return []
    chosen = [(search.title, search.chosen) for search in searches if search.chosen]
    every, waiting = sum(len(search.states) for search in searches), sum(search.waiting for search in searches)
    text = f"choices: {len(chosen)} of {counted(len(searches), 'cell')}"
    lost = [search for search in searches if not search.chosen and not search.waiting]
    return [
        Note(f"{text}; {every - waiting} of {counted(every, 'search trial')} have ended" if waiting else text),
        *(
            Note(
                f"no choice for {search.title}: its {counted(len(search.states), 'search trial')} failed; "
                "other cells go on"
            )
            for search in lost
        ),
        *_of_search(grid_state),
        *(
            Note(
                f"{title}: the chosen {name} = {dict(choice.best.point)[name]} is at the edge of the searched range, "
                f"{choice.range(name)}; a better value may lie beyond it"
            )
            for title, choice in chosen
            for name in choice.edges
        ),
    ]


def earlier_lines(grid_state: GridState) -> list[str]:
    """Report how much had been searched here before this grid's search; empty if nothing, or if it has no search."""
    earlier = searched_before(grid_state) if grid_state.searches else EarlierSearches()
    return [f"test results of {earlier} were known when this search began"] if earlier.trials else []


def _of_search(grid_state: GridState) -> list[Note]:
    """Report how many search trials diverged, and the command that retrains one of them."""
    if not (diverged := grid_state.having(State.DIVERGED)):
        return []
    only = only_filter(diverged[0], grid_state)
    again = Step.of("run", grid_state.grid.name, force=True, only=only, runs=grid_state.home.path)
    words = (
        "counts as the worst point of its cell, and is not tried again"
        if len(diverged) == 1
        else ("count as the worst points of their cells, and are not tried again")
    )
    return [Note(f"{counted(len(diverged), 'search trial')} diverged: {words}. To train one again: {{step}}", again)]


def ended(grid_state: GridState) -> list[Note]:
    """Report at the end of a launch: trial states, why trials failed, and which trials are missing from tables."""
    retrain = Step.of("resume", grid_state.grid.name, stale=True, runs=grid_state.home.path)
    lines = [*_head(grid_state), *choice_lines(grid_state), *map(Note, seed_lines(grid_state))]
    lines += [*failure_lines(grid_state), *_evaluation_lines(grid_state), *_uncompared(grid_state)]
    if other := grid_state.trained_on_other_data:
        trained = f"{counted(len(other), 'trial')} trained on data that has changed since; not shown in tables."
        lines += [Note(f"{trained} Retrain with: {{step}}", retrain)]
    if old := of_other_code(grid_state):
        trained = f"{counted(len(old), 'trial')} trained with older code; old results kept."
        lines += [Note(f"{trained} Retrain with: {{step}}", retrain)]
    lines += [note for note in _imported_lines(grid_state) if note.step]
    return [*lines, *map(Note, _collapsed_lines(grid_state))]


def written(grid_state: GridState) -> str:
    """Report where a grid's tables and records were written."""
    folder = grid_state.home.grid(grid_state.grid.name)
    return f"written: {folder.tables} (Parquet, LaTeX, Markdown, ...) and {folder.results}"


def next_steps(grid_state: GridState) -> dict[Step, str]:
    """Return the suggested next steps for a finished grid, with what each one produces."""
    name, runs = grid_state.grid.name, grid_state.home.path
    return {
        Step.of("report", name, runs=runs): "one HTML page: tables, figures, and which differences are significant",
        Step.of(
            "table", name, output="table.tex", runs=runs
        ): "LaTeX; the suffix selects the format, e.g. .md or .parquet",
        Step.of("figures", name, runs=runs): "training curves, effects and other figures",
    }


def _collapsed_lines(grid_state: GridState) -> list[str]:
    """Report how many trials are at chance level, the rsum that chance may reach, and possible remedies."""
    if not (chances := collapsed(grid_state)):
        return []
    count = f"{len(chances)} of {grid_state.counts[State.DONE]} done perform at chance level on the validation split"
    most = max(chances.values())
    small = ", the maximum: use more validation images" * (most >= 600)
    line = f"collapsed: {count}, where chance reaches an rsum of up to {most:.0f}{small}: {listed(list(chances))}"
    return [line, *_ways_out(grid_state, next(trial for trial in trials_of(grid_state.cells) if trial.id in chances))]


def _ways_out(grid_state: GridState, trial: Trial) -> list[str]:
    """Return possible remedies for a trial that has learnt nothing, one per line."""
    from goalgrid.retrieval.splits.problems import check_command

    shared, name = trial.shared, trial.shared.dataset.name
    images, _ = grid_state.data.sizes(shared).get("train", (FEW_IMAGES, 0))
    images = min(images, shared.dataset.train_images or images)
    root = grid_state.grid.root(name)
    mines = shared.objective.entry.warms_up(shared.objective.parameters) and not shared.train.warmup_epochs
    ways = {
        f"more images: {name} trains on {images:,}": images < FEW_IMAGES,
        "warm up with all negatives, as the hardest may collapse all embeddings: train.warmup_epochs = 1": mines,
        "another learning rate: train.lr": True,
        f"check for unknown words or identical features: {check_command(name, root or 'DIR')}": root is not None,
    }
    return [f"  may help: {way}" for way, fits in ways.items() if fits]


def note_lines(grid_state: GridState) -> list[Note]:
    """Report which trials are collapsed, stale or merged, and which variants of the grid have run with overrides."""
    others = named_grids.variants(grid_state.grid.name, grid_state.home)
    lines = [*choice_lines(grid_state), *map(Note, [*seed_lines(grid_state), *_collapsed_lines(grid_state)])]
    lines += [*_imported_lines(grid_state), *_stale_lines(grid_state)]
    places = Counter(merged(grid_state).values())
    lines += [Note(f"merged: {counted(count, 'trial')} from {place}") for place, count in places.items()]
    lines += _evaluation_lines(grid_state)
    return [*lines, *([Note(f"also run with overrides: {listed(others)}")] if others else [])]


def _imported_lines(grid_state: GridState) -> list[Note]:
    """List the imported checkpoints; for those whose data has changed, with the command that imports them again."""
    again = Step.of("evaluate", "FILE", into=grid_state.grid.name, runs=grid_state.home.path)
    lines = {trial.id: f"imported: {trial.id}: {trial.shared.published}" for trial in grid_state.imported}
    return [
        Note(f"{line}; not shown, as its data has changed; import it again: {{step}}", again)
        if trial_id in grid_state.of_other_data
        else Note(line)
        for trial_id, line in lines.items()
    ]


def unreadable_lines(grid_state: GridState) -> list[str]:
    """Return `unreadable: 2 trials: Permission denied: ...` with a remedy; empty if all folders are readable."""
    reasons = {trial.id: grid_state.folder(trial).unreadable() for trial in grid_state.having(State.UNREADABLE)}
    if not reasons:
        return []
    helps = "ask the owner for read access (chmod -R g+rX), or fix the disk; then run the same command again"
    return [f"unreadable: {counted(len(reasons), 'trial')}: {listed(list(reasons.values()))}; {helps}"]


def running_lines(grid_state: GridState) -> list[str]:
    """Return `running: 2 (vm: step 120, 80 of 600)`, one line per host."""
    hosts = grouped((trial.host, trial) for trial in running(grid_state))
    return [f"running: {len(trials)} ({host}: {_steps(trials)})" for host, trials in hosts.items()]


def launch_lines(grid_state: GridState) -> list[str]:
    """Return `launch 3fa94c210b7e5d18: trained 12 trials; goalgrid 0.2.0 (commit 1a2b3c4d5e6f)`."""
    folder, lines = grid_state.home.grid(grid_state.grid.name), list[str]()
    for name, ids in launches(grid_state).items():
        trained = counted(len(ids), "trial") if ids else "no trial yet"
        made_by = read_json(folder.launch(name).content).get("made_by")
        lines.append(f"launch {name}: trained {trained}; {version_words(made_by if isinstance(made_by, dict) else {})}")
    return lines


def failure_lines(grid_state: GridState) -> list[Note]:
    """List failures by class with advice, then by message, each with a log and the command that runs one trial alone.

    The last line lists the trials that wait for a failed trial.
    """
    text = list[Note]()
    for failure, members in groupby(failures(grid_state), key=lambda group: group.failure):
        groups = list(members)
        count, attempts = sum(len(group.trials) for group in groups), sum(group.attempts for group in groups)
        advice = groups[0].advice[0].upper() + groups[0].advice[1:]
        text.append(Note(f"failed: {count} x {failure} ({counted(attempts, 'attempt')}). {advice}."))
        for group in groups:
            text += [Note(f"  {len(group.trials)} x {group.message}"), Note(f"    log:   {group.log}")]
            text += [Note("    alone: {step}", group.alone)]
    waits = [f"{trial} ({', '.join(failed)})" for trial, failed in waiting(grid_state).items()]
    return [*text, *([Note(f"waiting for trials that failed: {listed(waits)}")] if waits else [])]


def _stale_lines(grid_state: GridState) -> list[Note]:
    done = grid_state.counts[State.DONE]
    lines = [
        Note(f"stale: {len(ids)} of {done} done, {what if cause == 'code' else f'{cause}: {what}'}")
        for cause, reasons in stale(grid_state).items()
        for what, ids in reasons.items()
    ]
    if lines:
        retrain = Step.of("resume", grid_state.grid.name, stale=True, runs=grid_state.home.path)
        lines += [Note("  to retrain them: {step}", retrain)]
    for versions, count in Counter(grid_state.patched.values()).items():
        lines += [Note(f"note: {count} done with other versions, without effect on results: {versions}")]
    return lines + _uncompared(grid_state)


def _evaluation_lines(grid_state: GridState) -> list[Note]:
    """Report which further evaluations are missing, and the command that computes them."""
    resume = Step.of("resume", grid_state.grid.name, runs=grid_state.home.path)
    return [Note(f"{line}; to compute them: {{step}}", resume) for line in grid_state.evaluation_lines()]


def _uncompared(grid_state: GridState) -> list[Note]:
    return [Note(f"data of {name} cannot be compared: {why}") for name, why in grid_state.data.unreadable.items()]


def listed(names: Sequence[str]) -> str:
    """Join the first names, and count the others: `a, b, c, d and 3 more`."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _steps(trials: list[RunningTrial]) -> str:
    reached, totals = [trial.step for trial in trials], {trial.steps for trial in trials}
    few = ", ".join(f"{step:,}" for step in reached)
    steps = few if len(trials) <= LISTED else f"{min(reached):,} to {max(reached):,}"
    total = totals.pop() if len(totals) == 1 else None
    return f"step {steps} of {total:,}" if total else f"step {steps}"
