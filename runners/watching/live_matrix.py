"""The live view of a running grid, updated by events: a matrix on a terminal, plain lines elsewhere."""

import math
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from types import TracebackType
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from goalgrid.grid.expansion import BlockKey, Cell, Trial, block_title
from goalgrid.grid.groups import nested
from goalgrid.grid.messages import tell
from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS, is_matrix
from goalgrid.grid.store.home import ENDED, State
from goalgrid.results.records.rounding import written
from goalgrid.runners.trial.events import Event
from goalgrid.runners.watching.view import View

LOOK_SECONDS = 5.0
"""Seconds between two queries of the GPUs."""
QUERY = ("--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")

SEEDS = 8
"""Maximum number of seeds per cell that are shown one by one; more are summarised by counts."""

BLOCKS = 8
"""Maximum number of matrices shown; those with running trials come first."""

TRIALS = 12
"""Maximum number of running trials shown, one per line."""

SETTLED = 10.0
"""Seconds of progress after which the remaining time is estimated; one finished trial also suffices."""
PACE = 20
"""Number of latest step reports from which a trial's rate is computed."""

SHOWN = ("val_i2t_r1", "val_t2i_r1")
"""Metrics shown in a cell."""

WIDTH = 16
"""Width of a cell in characters: the marks of three seeds, and two recalls."""

MARKS = {
    State.DONE: ("●", "green"),
    State.RUNNING: ("◐", "yellow"),
    State.FAILED: ("✗", "red"),
    State.STOPPED: ("◌", "dim"),
    State.DIVERGED: ("✗", "dim"),
    State.INTERRUPTED: ("○", "dim"),
    State.PLANNED: ("○", "dim"),
    State.UNREADABLE: ("✗", "red"),
}

LOUD = ("failed", "retry", "busy", "stopped", "diverged", "warning")
"""Events that every display prints immediately."""

ENDS = {"retry": State.INTERRUPTED, **{state.value: state for state in (*ENDED, State.INTERRUPTED)}}
"""State of a trial after an event; after any other event it is running."""


@dataclass(slots=True)
class TrialProgress:
    cell: Cell
    trial: Trial
    state: State
    to_train: bool
    epoch: int = 0
    steps: int = 0
    """Total number of training steps; 0 until reported by its process."""
    rows: dict[int, dict[str, float]] | None = None
    """Displayed and selection metrics, by epoch; None until the trial's history is read."""
    selected: Mapping[str, float] = field(default_factory=dict)
    """Row of the epoch that the selection rule picks so far, i.e. the one that would be tested."""
    reports: tuple[tuple[float, int], ...] = ()
    """Latest step reports of this attempt: (time in seconds, step)."""

    def note(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows of epochs; they replace rows of the same and later epochs, left from before a restart."""
        for row in rows:
            if row.keys() >= {"val_rsum", *SHOWN}:
                shown = {name: row[name] for name in ("epoch", "val_rsum", *SHOWN)}
                before = {epoch: of for epoch, of in (self.rows or {}).items() if epoch < row["epoch"]}
                self.rows = before | {row["epoch"]: shown}
        rank = self.trial.shared.train.selection_rank
        self.selected = max((self.rows or {}).values(), key=rank, default={})

    @property
    def current(self) -> int:
        """Return the number of the current epoch, or of the last one."""
        epochs = self.trial.epochs
        return (self.step - 1) * epochs // self.steps + 1 if self.step else max(1, min(self.epoch + 1, epochs))

    @property
    def step(self) -> int:
        return self.reports[-1][1] if self.reports else 0

    @property
    def rate(self) -> float:
        """Return the steps per second; 0 if unknown."""
        (begin, first), (end, last) = (self.reports[0], self.reports[-1]) if self.reports else ((0, 0), (0, 0))
        return (last - first) / (end - begin) if end > begin else 0.0

    @property
    def behind(self) -> float:
        """Return the epochs trained so far, including the fraction of the current epoch."""
        if self.state is State.DONE:
            return self.trial.epochs
        return max(self.epoch, min(self.epoch + 1, self.trial.epochs * self.step / self.steps) if self.steps else 0)

    @property
    def ahead(self) -> float:
        """Return the epochs that this launch still has to train."""
        return 0 if not self.to_train or self.state in ENDED else max(0, self.trial.epochs - self.behind)


class Board:
    """The state of all trials of a grid, as text: `line` describes an event, `render` the whole board.

    Args:
        states: state of each trial, by id.
        to_train: ids of the trials that this launch trains.
        stopping: returns whether the trials were asked to stop.
        history: returns the rows of a trial's epochs before the launch; called for the displayed cells.
        search_seeds: seeds of search trials, whose test metrics are hidden.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        states: Mapping[str, State],
        to_train: Collection[str],
        *,
        stopping: Callable[[], bool] = lambda: False,
        history: Callable[[str], Iterable[Mapping[str, Any]]] = lambda trial_id: (),
        search_seeds: Collection[int] = (),
    ) -> None:
        self._search_seeds = search_seeds
        self.cells, self.stopping, self._history = cells, stopping, history
        self._reading = threading.Lock()
        """Held while rows are added, since events and rendering run in two threads."""
        self.started = time.monotonic()
        self.phase = ""
        """Current activity of the launch before the first trial begins."""
        self.gpus = ""
        self._first_report: float | None = None
        self._settled = math.inf
        """Time from which the remaining time is estimated."""
        self.trials: dict[str, TrialProgress] = {
            trial.id: TrialProgress(cell, trial, states[trial.id], to_train=trial.id in to_train)
            for cell in cells
            for trial in cell.trials
        }
        self.blocks = nested((cell.block, cell.objective, cell) for cell in cells)
        """Cells of each matrix, keyed by objective."""
        self._differs = [len(set(values)) > 1 for values in zip(*self.blocks, strict=True)]
        """Which of data set, recipe and swept settings vary in the grid."""
        self._begun = {trial_id for trial_id, state in states.items() if state is not State.PLANNED}
        self._before = self._behind()

    def update(self, event: Event) -> None:
        """Update the state of a trial by an event."""
        trial = self.trials[event.trial_id]
        self._first_report = self._first_report or time.monotonic()
        before = trial.behind
        begins = not trial.reports  # from a checkpoint: what lies behind it was trained before
        trial.state = ENDS.get(event.kind, State.RUNNING)
        if event.kind == "step":
            trial.steps = event.steps
            trial.reports = (*trial.reports, (event.at, event.step))[-PACE:]
            trial.epoch = trial.current - 1
        elif event.kind == "epoch":
            trial.epoch = event.epoch
            if trial.steps:
                trial.reports = (*trial.reports, (event.at, trial.steps * event.epoch // trial.trial.epochs))[-PACE:]
            with self._reading:
                self._read(trial).note([{"epoch": event.epoch, **event.metrics}])
        else:  # another attempt begins from its checkpoint
            trial.reports = ()
        if begins:
            self._before += (trial.behind - before) * (event.kind in ("step", "epoch"))
        if event.kind == "done":
            self._settled = 0.0
        elif trial.behind > before:
            self._settled = min(self._settled, time.monotonic() + SETTLED)

    def _read(self, progress: TrialProgress) -> TrialProgress:
        """Return the trial with the epochs of earlier launches; a planned trial has none or starts from scratch."""
        if progress.rows is None:
            progress.rows = {}
            progress.note(self._history(progress.trial.id) if progress.trial.id in self._begun else ())
        return progress

    def searched(self, trial_id: str) -> bool:
        """Return whether it is a search trial, which is only validated."""
        return self.trials[trial_id].trial.seed in self._search_seeds

    def _behind(self) -> float:
        return sum(trial.behind for trial in self.trials.values())

    def count(self, state: State) -> int:
        return sum(trial.state is state for trial in self.trials.values())

    def sums(self) -> dict[str, int]:
        """Return the number of trials, in total and in each final state."""
        return {"trials": len(self.trials), **{state.value: self.count(state) for state in ENDED}}

    def summary(self) -> str:
        """Return e.g. `12/45 done, 2 running, 1 failed; 1:03 elapsed, 2:10 to go`, or the activity before any trial."""
        parts = [f"{self.count(State.DONE)}/{len(self.trials)} done"]
        shown = (State.RUNNING, State.FAILED, State.STOPPED, State.DIVERGED)
        parts += [f"{self.count(state)} {state}" for state in shown if self.count(state)]
        now = time.monotonic()
        phase = f"; {self.phase}" if self.phase and self._first_report is None else ""
        to_go = ", stopping" * bool(self.count(State.RUNNING)) if self.stopping() else self._to_go(now)
        return f"{', '.join(parts)}; {clock(now - self.started)} elapsed{to_go}{phase}"

    def line(self, event: Event) -> str:
        """Return a line that describes an event; empty for events that are not printed."""
        if event.kind == "done" and event.metrics:
            searched = self.searched(event.trial_id)
            with self._reading:
                validation = self._read(self.trials[event.trial_id]).selected
            metrics, split = (validation, "val") if searched else (event.metrics, "test")
            shown = {name: metrics.get(f"{split}_{name}_r1") for name in ("i2t", "t2i")}
            scores = "".join(f"  {name} R@1 {written(value)}" for name, value in shown.items() if value is not None)
            return f"done    {event.trial_id}{'  validation' * searched}{scores}  ({self.summary()})"
        if event.kind in LOUD:
            return f"{event.kind:7} {event.trial_id}: {event.message}"
        return ""

    def render(self, height: int = 1000) -> RenderableType:
        """Render as many matrices as fit `height` lines, the number of others, the running trials and the summary."""
        running = [progress for progress in self.trials.values() if progress.state is State.RUNNING]
        room = height - 4 - min(len(running), TRIALS + 1)
        blocks, at_work = list[RenderableType](), {progress.cell.block for progress in running}
        for block in sorted(self.blocks, key=lambda block: block not in at_work)[:BLOCKS]:
            table = self._block(block)
            room -= len(table.rows) + 5
            if blocks and room < 0:
                break
            blocks += [
                Text(f"{block_title(block)}: validation R@1 (i2t / t2i), mean over seeds, selected epoch"),
                table,
            ]
        others = len(self.blocks) - len(blocks) // 2
        more = [Text(f"and {others} more", style="dim")] if others else []
        trials = [self._running(running)] if running else []
        gpus = [Text(self.gpus)] if self.gpus else []
        return Group(*blocks, *more, *trials, *gpus, Text(self.summary(), style="bold"))

    def _running(self, running: Sequence[TrialProgress]) -> Table:
        """Return a line for each running trial, with its progress, speed and remaining time."""
        table = Table(box=None, pad_edge=False)
        table.add_column("running", no_wrap=True, overflow="ellipsis")
        for title in ("epoch", "step", "steps/s", "to go"):
            table.add_column(title, justify="right", no_wrap=True)
        for progress in running[:TRIALS]:
            step = f"{progress.step:,}/{progress.steps:,}" if progress.steps else "starting"
            rate = progress.rate
            to_go = clock((progress.steps - progress.step) / rate) if rate and not self.stopping() else ""
            epoch = f"{progress.current}/{progress.trial.epochs}"
            table.add_row(self._name(progress), epoch, step, f"{rate:.3g}" if rate else "", to_go)
        if len(running) > TRIALS:
            table.add_row(f"and {len(running) - TRIALS} more")
        return table

    def _name(self, progress: TrialProgress) -> str:
        """Return the values that identify a trial within the grid."""
        cell = progress.cell
        axes = [cell.dataset, cell.recipe, *(f"{name}={value}" for name, value in cell.swept)]
        differs = [*self._differs[:2], *(self._differs[2] for _ in cell.swept)]
        words = [word for word, shown in zip(axes, differs, strict=True) if shown]
        return " ".join([cell.objective or cell.recipe, f"seed {progress.trial.seed}", *words])

    def _block(self, block: BlockKey) -> Table:
        cells = self.blocks[block]
        table = Table()
        if is_matrix(cells):
            triplets = [name for name in TRIPLET_WEIGHTS if any(cell.endswith(f"_{name}") for cell in cells)]
            table.add_column("")
            for triplet in triplets:
                table.add_column(triplet, min_width=WIDTH)
            for pair in PAIR_WEIGHTS:
                row = [cells.get(f"{pair}_{triplet}") for triplet in triplets]
                if any(row):
                    table.add_row(pair, *(self._cell(cell) if cell else Text("--") for cell in row))
        else:
            table.add_column("objective")
            table.add_column("", min_width=WIDTH)
            for objective, cell in cells.items():
                table.add_row(objective, self._cell(cell))
        return table

    def _cell(self, cell: Cell) -> Text:
        text = Text()
        trials = [self.trials[trial.id] for trial in cell.trials]
        if len(trials) <= SEEDS:
            for trial in trials:
                text.append(*MARKS[trial.state])
        else:
            counts = Counter(MARKS[trial.state] for trial in trials)
            marks = [mark for mark in dict.fromkeys(MARKS.values()) if counts[mark]]
            text = Text(" ").join(Text(f"{counts[mark]}{mark[0]}", mark[1]) for mark in marks)
        with self._reading:
            scored = [row for trial in trials if (row := self._read(trial).selected)]
        if scored:
            text.append(" " + " / ".join(written(fmean(row[name] for row in scored)) for name in SHOWN))
        return text

    def _to_go(self, now: float) -> str:
        """Return the remaining time, estimated from the epochs since the first report; empty if unknown."""
        if self._first_report is None or now < self._settled:
            return ""
        done, elapsed = self._behind() - self._before, now - self._first_report
        rest = sum(trial.ahead for trial in self.trials.values())
        return f", {clock(elapsed / done * rest)} to go" if done > 1e-6 and rest > 1e-6 else ""


class Display:
    """Shows a board in the with-block: in a live view, or as a note per finished trial."""

    def __init__(self, board: Board, view: View) -> None:
        self.board, self.view = board, view
        self._over, self._shown = threading.Event(), ExitStack()

    def __enter__(self) -> "Display":
        self._shown.enter_context(self.view.matrix(self.board.render))
        if self.view.live and (program := shutil.which("nvidia-smi")):
            threading.Thread(target=self._watch_gpus, args=(program,), name="gpu use", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._shown.__exit__(kind, error, trace)

    def _watch_gpus(self, program: str) -> None:
        while not self._over.is_set():
            try:
                asked = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=30, check=True)
                self.board.gpus = utilisation(asked.stdout)
            except (OSError, subprocess.SubprocessError):
                self.board.gpus = ""
            self._over.wait(LOOK_SECONDS)

    def __call__(self, event: Event) -> None:
        self.board.update(event)
        line = self.board.line(event)
        if line and (not self.view.live or event.kind in LOUD):
            tell(line)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any.

    >>> clock(63), clock(7325)
    ('1:03', '2:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def utilisation(answer: str) -> str:
    """Summarise the output of nvidia-smi; lines without numbers, e.g. of a partitioned GPU (MIG), are skipped.

    >>> utilisation("0, 87, 21810, 143771\\n1, [N/A], 3, 143771\\n2, 4, 1024, 81920\\n")
    'GPU 0: 87 %, 21.3 of 140.4 GiB; GPU 2: 4 %, 1.0 of 80.0 GiB'
    """
    rows = [[word.strip() for word in line.split(",")] for line in answer.splitlines()]
    gpus = [[int(word) for word in row] for row in rows if len(row) == 4 and all(word.isdecimal() for word in row)]
    return "; ".join(f"GPU {n}: {busy} %, {used / 1024:.1f} of {size / 1024:.1f} GiB" for n, busy, used, size in gpus)
