"""The live matrix of a running grid, fed by events: a table that fills in on a terminal, else plain lines."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grid.expansion import Cell
from grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from grid.store.home import State
from results.records.rounding import written
from runners.trial.events import Event

SEEDS = 10
"""Most seeds of a cell that have a mark each; more are counted."""

BLOCKS = 8
"""Most matrices drawn at a time; matrices with running trials come first."""

MatrixKey = tuple[str, str, tuple[tuple[str, object], ...]]
"""Data set, recipe and swept settings: one matrix."""

MARKS = {
    State.DONE: ("●", "green"),
    State.RUNNING: ("◐", "yellow"),
    State.FAILED: ("✗", "red"),
    State.INTERRUPTED: ("○", "dim"),
    State.PLANNED: ("○", "dim"),
}

LOUD = ("failed", "retry", "busy", "warning")
"""Events that are printed at once on every display."""


@dataclass
class TrialProgress:
    """The progress of a trial, as the driver knows it."""

    state: State
    epochs: int
    epoch: int = 0
    best: dict[str, float] = field(default_factory=dict)
    """Best validation Recall@1 so far, by direction."""

    @property
    def behind(self) -> int:
        """Epochs trained."""
        return self.epochs if self.state is State.DONE else self.epoch

    @property
    def ahead(self) -> int:
        """Epochs to train."""
        return 0 if self.state in (State.DONE, State.FAILED) else self.epochs - self.epoch


class Board:
    """The state of all trials of a grid, in text: `line` for an event, `render` for the whole.

    The sums are updated by each event, so that its cost does not grow with the number of trials.
    """

    def __init__(self, cells: Sequence[Cell], states: dict[str, State]) -> None:
        self.cells = cells
        self.started = time.monotonic()
        self.trials: dict[str, TrialProgress] = {
            trial.id: TrialProgress(states[trial.id], trial.epochs) for cell in cells for trial in cell.trials
        }
        self.blocks: dict[MatrixKey, dict[str, Cell]] = {}
        """The cells of each matrix, by objective."""
        for cell in cells:
            self.blocks.setdefault((cell.dataset, cell.recipe, cell.swept), {})[cell.objective] = cell
        self._block_of = {t.id: (c.dataset, c.recipe, c.swept) for c in cells for t in c.trials}
        self._at_work = Counter[MatrixKey]()
        self._states = Counter(trial.state for trial in self.trials.values())
        self._behind = sum(trial.behind for trial in self.trials.values())
        self._ahead = sum(trial.ahead for trial in self.trials.values())
        self._before = self._behind

    def update(self, event: Event) -> None:
        """Update the state of a trial by an event."""
        trial = self.trials[event.trial_id]
        self._count(trial, event.trial_id, -1)
        states = {"done": State.DONE, "failed": State.FAILED, "retry": State.INTERRUPTED, "stopped": State.INTERRUPTED}
        trial.state = states.get(event.kind, State.RUNNING)
        trial.epoch = max(trial.epoch, event.epoch)
        for name in ("val_i2t_r1", "val_t2i_r1"):
            if name in event.metrics:
                trial.best[name] = max(trial.best.get(name, 0.0), event.metrics[name])
        self._count(trial, event.trial_id, 1)

    def _count(self, trial: TrialProgress, trial_id: str, sign: int) -> None:
        self._states[trial.state] += sign
        self._behind += sign * trial.behind
        self._ahead += sign * trial.ahead
        if trial.state is State.RUNNING:
            self._at_work[self._block_of[trial_id]] += sign

    def count(self, state: State) -> int:
        return self._states[state]

    def summary(self) -> str:
        """`12/45 done, 2 running, 1 failed; 1:03 elapsed, 2:10 to go`."""
        parts = [f"{self.count(State.DONE)}/{len(self.trials)} done"]
        parts += [f"{self.count(state)} {state}" for state in (State.RUNNING, State.FAILED) if self.count(state)]
        elapsed = time.monotonic() - self.started
        return f"{', '.join(parts)}; {clock(elapsed)} elapsed{self._to_go(elapsed)}"

    def line(self, event: Event) -> str:
        """A line about an event; empty for events that are not printed."""
        if event.kind == "done" and event.metrics:
            scores = "  ".join(f"{name} R@1 {written(event.metrics[f'test_{name}_r1'])}" for name in ("i2t", "t2i"))
            return f"done    {event.trial_id}  {scores}  ({self.summary()})"
        if event.kind in LOUD:
            return f"{event.kind:7} {event.trial_id}: {event.message}"
        return ""

    def render(self) -> RenderableType:
        """The matrices, and the summary below."""
        blocks = sorted(self.blocks, key=lambda block: not self._at_work[block])[:BLOCKS]
        others = len(self.blocks) - len(blocks)
        more = [Text(f"and {others} more", style="dim")] if others else []
        return Group(*map(self._block, blocks), *more, Text(self.summary(), style="bold"))

    def _block(self, block: MatrixKey) -> Table:
        cells = self.blocks[block]
        swept = "".join(f", {name} = {value}" for name, value in block[2])
        table = Table(title=f"{block[1]} on {block[0]}{swept}: best validation R@1 (i2t / t2i)", title_justify="left")
        if set(cells) <= set(CELLS):
            triplets = [name for name in TRIPLET_WEIGHTS if any(cell.endswith(f"_{name}") for cell in cells)]
            table.add_column("pair \\ triplet")
            for triplet in triplets:
                table.add_column(triplet, min_width=18)
            for pair in PAIR_WEIGHTS:
                row = [cells.get(f"{pair}_{triplet}") for triplet in triplets]
                if any(row):
                    table.add_row(pair, *(self._cell(cell) if cell else Text("--") for cell in row))
        else:
            table.add_column("objective")
            table.add_column("", min_width=18)
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
        scored = [trial.best for trial in trials if trial.best]
        if scored:
            best = (max(score[name] for score in scored) for name in ("val_i2t_r1", "val_t2i_r1"))
            text.append(" " + " / ".join(written(value) for value in best))
        return text

    def _to_go(self, elapsed: float) -> str:
        """The remaining time by the pace of epochs since the launch; empty before the first epoch."""
        done = self._behind - self._before
        return f", {clock(elapsed / done * self._ahead)} to go" if done > 0 and self._ahead else ""


class Display:
    """Shows a board while the block runs: live on a terminal, else a line for each finished trial."""

    def __init__(self, board: Board, console: Console, *, live: bool) -> None:
        self.board, self.console = board, console
        self.live = Live(get_renderable=board.render, console=console, refresh_per_second=4) if live else None

    def __enter__(self) -> "Display":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, event: Event) -> None:
        self.board.update(event)
        line = self.board.line(event)
        if line and (self.live is None or event.kind in LOUD):
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """Minutes and seconds, hours where there are any.

    >>> clock(63), clock(7325)
    ('1:03', '2:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
