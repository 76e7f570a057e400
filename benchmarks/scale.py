"""How `plan` and `status` do with very many trials: `python benchmarks/scale.py`.

`goalgrid plan` of a grid of a million different trials: two data sets by four recipes, of which one starts from
another, by 15 objectives and five seeds, with learning rates and temperatures swept. `goalgrid status` of a grid whose
100,000 trials all have a folder: 79 % interrupted, 10 % failed in two ways, 1 % running and 10 % only begun, each with
its attempts and history as a process leaves them. None is done: what records cost to read is another matter. Each
command runs in a process of its own: CPU time, its start included, and peak memory. The live view of a launch is made
and drawn once for 100,000 trials, in this process.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store import processes
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.runners.watching.live_matrix import Board

SECONDS, MEGABYTES = 10.0, 1000.0


def grid_file(path: Path, rates: int, recipes: list[str]) -> None:
    """2,200 different trials a learning rate with all four recipes: objectives without a temperature share theirs."""
    path.write_text(
        f"""name = "large"
datasets = ["flickr30k", "coco"]
recipes = {json.dumps(recipes)}
objectives = "goal"
seeds = [0, 1, 2, 3, 4]
[sweep]
"objective.tau" = [1, 2, 5, 10, 20]
"train.lr" = {[round(1e-6 * (1 + number), 7) for number in range(rates)]}
"""
    )


def populate(home: Home, grid: Path, count: int) -> None:
    """Give the first so many trials of the grid a folder in some state."""
    content = load(str(grid))
    trials = trials_of(expand(content))[:count]
    save_grid(content, trials, home)
    (home.path / "trials").mkdir(parents=True, exist_ok=True)
    lease = {"launch": "one", "machine": processes.machine(), "host": "here", "step": 7, "heartbeat": 0.0}
    alive = json.dumps(lease | {"pid": os.getpid(), "started": processes.started(os.getpid())})
    dead = json.dumps(lease | {"pid": os.getpid(), "started": "before"})
    rows = "".join(json.dumps({"epoch": n, "step": 20 * n, "val_spread": 0.2}) + "\n" for n in range(1, 31))
    for number, trial in enumerate(trials):
        _populate(home.trial(trial.id), number % 100, alive, dead, rows)


def _populate(folder: TrialFolder, kind: int, alive: str, dead: str, rows: str) -> None:
    folder.path.mkdir()
    folder.settings.touch()
    if kind >= 90:
        return
    folder.attempts_folder.mkdir()
    attempt = folder.attempts_folder / "001.json"
    attempt.write_text(alive if kind == 0 else dead)
    folder.history.write_text(rows)
    folder.last_checkpoint.touch()
    if kind > 10:
        return
    if kind > 0:
        failure = "out-of-memory" if kind < 6 else "bug"
        end = {"outcome": failure, "message": f"no memory for {kind} bytes", "step": 7}
        attempt.with_name("001.end.json").write_text(json.dumps(end))
        folder.error.write_text(f"{failure}: no memory\n")


def rows(what: str, *words: str) -> list[str]:
    spent = measuring.goalgrid(*words)
    return [
        measuring.row(what, f"{spent.cpu:.1f} s", goal=f"<= {SECONDS:.0f} s", met=spent.cpu <= SECONDS),
        measuring.row(
            f"{what}: memory",
            f"{spent.megabytes:.0f} MB",
            goal=f"<= {MEGABYTES:.0f} MB",
            met=spent.megabytes <= MEGABYTES,
        ),
    ]


def live_view(path: Path) -> str:
    """A row of the start of a launch's display."""
    cells = expand(load(str(path)))
    states = dict.fromkeys([trial.id for trial in trials_of(cells)], State.PLANNED)
    seconds = min(measuring.cpu_seconds(lambda: Board(cells, states, set(states)).render(40)) for _ in range(5))
    return measuring.row(
        f"live view of {len(states):,} trials begins", f"{seconds:.2f} s", goal="<= 0.5 s", met=seconds <= 0.5
    )


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000_000, help="of the grid that is planned")
    parser.add_argument("--folders", type=int, default=100_000, help="of the grid whose status is asked")
    given = parser.parse_args()
    measuring.begin()
    with tempfile.TemporaryDirectory() as name:
        home, grid = Home(Path(name) / "runs"), Path(name) / "large.toml"
        for count in (given.trials // 10, given.trials):
            grid_file(grid, -(-count // 2200), ["fc-bow", "fc-gru", "vsepp-r152", "vsepp-r152-ft"])
            measuring.show(rows(f"plan of {count:,} trials", "plan", str(grid), "--runs", str(home.path)))
        grid_file(grid, -(-given.folders // 1100), ["fc-bow", "fc-gru"])
        measuring.show([live_view(grid)])
        populate(home, grid, given.folders)
        measuring.show(rows(f"status over {given.folders:,} folders", "status", "large", "--runs", str(home.path)))


if __name__ == "__main__":
    main()
