"""The Python interface: `goalgrid.load` and the methods of the grid that it returns."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.display import EffectsOutput, FigureOutput, TableOutput, TextOutput
from goalgrid.grid.errors import UserError, check_known, user_path
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import Step, leave_out
from goalgrid.grid.store.home import Home
from goalgrid.grid.trusted_code import trust_everything
from goalgrid.launching.training import train
from goalgrid.planning.decisions import Choice
from goalgrid.planning.plan import Plan
from goalgrid.reports.tables import draw, keep_table, some_scores
from goalgrid.results.export.table_request import TableRequest
from goalgrid.runners.launch import LaunchOptions
from goalgrid.state import status, status_lines
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall

if TYPE_CHECKING:
    import pandas as pd

    from goalgrid.objectives.objective import Objective

Names = str | Sequence[str]
Overrides = Mapping[str, object] | Sequence[str]
"""Overrides of a grid's settings: `{"train.epochs": 2, "seeds": [0, 1]}`, or as for --set, `["train.epochs=2"]`."""


def load(
    grid: str | Path,
    runs: str | Path = "runs",
    *,
    set: Overrides = (),
    root: str | Path | Mapping[str, str | Path] = "",
    weights: Mapping[str, str | Path] = {},
    trust_code: bool = False,
) -> "LoadedGrid":
    """Load a grid by name or file: as it was last run in this runs folder, or as shipped if it has not run.

    Messages are sent to the logger "goalgrid", and to stderr if it has no handler.

    Args:
        grid: the name of a shipped grid or of a grid that has run, or the path of a grid file.
        runs: the runs folder.
        set: overrides of settings by dotted name, or of fields of the grid file such as `seeds`.
        root: the folder of the grid's data set, or a mapping from data set names to folders.
        weights: a mapping from names of pretrained weights to their folders.
        trust_code: run the Python code that the grid `uses` even if you have not approved it on this machine, and
            remember the approval.

    Raises:
        UserError: if no grid has this name, or the grid file is invalid; the message lists all problems.
    """
    changes = [f"{key}={json.dumps(value)}" for key, value in set.items()] if isinstance(set, Mapping) else set
    overrides = tuple(_several(changes))
    named = [f"{name}={folder}" for name, folder in root.items()] if isinstance(root, Mapping) else [str(root)]
    places = [f"{name}={folder}" for name, folder in weights.items()]
    home = Home(user_path(runs))
    trust_everything(trust_code)
    recalled = recall(str(grid), home, overrides, roots=filter(None, named), weights=places)
    return LoadedGrid(str(grid), overrides, recalled, home)


def paper_table(
    name: str,
    runs: str | Path = "runs",
    *,
    layout: str | None = None,
    metric: str = "r1",
    against: str | None = None,
    marks: bool = False,
) -> TableOutput:
    """Fill a table of a paper with the finished trials of a runs folder. Other options are those of `goalgrid table`.

    Args:
        name: the table, e.g. "selhn-table5"; `goalgrid table --reference` lists all.
        runs: the runs folder.

    Raises:
        UserError: if the name is unknown, the options contradict each other, or no trial is done.
    """
    request = TableRequest("", layout=layout, metric=metric, paper=name, against=against, marks=marks)
    return TableOutput(draw(request, Home(user_path(runs))))


class LoadedGrid:
    """A grid and its runs folder, returned by `load`. States and records are read from the disk at each call.

    Raises:
        UserError: from any method, if a name is unknown, options contradict each other, no trial is done or matches the
            filter, or the data, runs folder or cluster cannot be used. Nothing has been trained in that case.
    """

    def __init__(self, source: str, overrides: tuple[str, ...], grid: Grid, home: Home) -> None:
        """Args: the name or file as the user gave it, the overrides as KEY=VALUE, and the grid with these overrides."""
        self._source, self._overrides, self._grid, self._home = source, overrides, grid, home

    @property
    def name(self) -> str:
        """The name of the grid, including its overrides."""
        return self._grid.name

    @property
    def trials(self) -> list[str]:
        """The ids of all trials; parents precede the trials that start from them."""
        return [trial.id for trial in self._grid_state().trials]

    @property
    def states(self) -> dict[str, str]:
        """The state of each trial by its id: planned, running, interrupted, stopped, failed or done."""
        return {trial_id: state.value for trial_id, state in self._grid_state().states.items()}

    def status(self) -> TextOutput:
        """Show which trials are done, running, failed or planned, why trials failed, and which are stale."""
        grid_state = self._grid_state()
        return TextOutput("\n".join(map(str, status_lines.lines(grid_state))), status.to_dict(grid_state))

    def records(self) -> "pd.DataFrame":
        """Return the records of the finished trials, one row per trial id: metrics in percent, settings by dotted name.

        The column `stale` lists what has changed since a trial was trained (empty if nothing). Unreadable records are
        skipped with a warning.
        """
        from goalgrid.results.records.record import data_frame

        grid_state, unreadable = self._grid_state(), dict[Path, str]()
        frame = data_frame(self._home, list(grid_state.records), unreadable)
        for message in [*grid_state.unreadable.values(), *unreadable.values()]:
            leave_out(message)
        reasons = [grid_state.stale.get(str(trial_id), ()) for trial_id in frame.index]
        frame["stale"] = [", ".join(reason.what for reason in of_trial) for of_trial in reasons]
        return frame

    def plan(
        self,
        only: str = "",
        *,
        force: bool = False,
        stale: bool = False,
        jobs: int | None = None,
        trials: bool = False,
        allow_leak: bool = False,
    ) -> TextOutput:
        """Show which trials would be trained and why, and what that would cost. Other options are those of `run`.

        Args:
            jobs: number of concurrent trials; None: the grid's setting, or else as many as fit here.
            trials: add one line per trial.
        """
        plan = Plan.of(self._grid_state(), Choice(only, force=force, stale=stale), jobs=jobs, allow_leak=allow_leak)
        return TextOutput("\n".join(map(str, plan.lines(per_trial=trials))), plan.to_dict())

    def run(
        self,
        only: str = "",
        *,
        failed: bool = False,
        force: bool = False,
        stale: bool = False,
        here: bool = False,
        address: str | None = None,
        mlflow_uri: str | None = None,
        allow_leak: bool = False,
    ) -> "LoadedGrid":
        """Train all unfinished trials with Ray; if it is interrupted, call it again to continue.

        On an interrupt (Ctrl-C, a notebook's stop button, SIGTERM or SIGHUP) the running trials write a checkpoint; a
        second interrupt ends them at once. Then it raises KeyboardInterrupt.

        Args:
            only: a filter of trials, e.g. "objective=*_cir seed=0".
            failed: train only the trials that failed.
            force: retrain from scratch, even finished trials.
            stale: also retrain finished trials whose code, library versions or data have changed.
            here: train in this process, without Ray.
            address: the address of a Ray cluster; None: start Ray for this launch.
            mlflow_uri: the MLflow tracking URI; None: a file in the runs folder; empty: no MLflow.
            allow_leak: train even if test images leak into training or validation.
        """
        choice = Choice(only, failed=failed, force=force, stale=stale)
        options = LaunchOptions(mlflow_uri, here=here, address=address, allow_leak=allow_leak)
        interrupted = train(self._grid_state(), choice, options).interrupted
        keep_table(self._grid_state())
        if interrupted:
            again = Step.of("run", self.name, runs=self._home.path)
            raise KeyboardInterrupt(f"grid {self.name!r} was interrupted. To continue: {again}")
        return self

    def table(
        self,
        *,
        layout: str | None = None,
        rows: str | None = None,
        columns: str | None = None,
        blocks: str | None = None,
        metric: str = "r1",
        protocol: str | None = None,
        against: str | None = None,
        marks: bool = False,
        only: str = "",
    ) -> TableOutput:
        """Return the paper's table of the trials done so far. The options are those of `goalgrid table`."""
        request = TableRequest(
            self._source, layout=layout, rows=rows, columns=columns, blocks=blocks, metric=metric, protocol=protocol,
            against=against, marks=marks, only=only, set_=self._overrides,
        )  # fmt: skip
        return TableOutput(draw(request, self._home, self._grid))

    def effects(
        self,
        *,
        metric: str = "r1",
        direction: str = "both",
        protocol: str | None = None,
        baseline: str | None = None,
        across: Names = (),
    ) -> EffectsOutput:
        """Report main effects and interactions with their uncertainty, and which cells differ from a baseline.

        Args:
            metric: r1, r5, r10, medr or rsum.
            direction: i2t, t2i or both.
            protocol: a protocol of the data set; None: the protocol of the grid's first table.
            baseline: an objective; None: con_con if the grid has it, otherwise the first.
            across: an axis, e.g. "objective.tau", or several, to add as factors.
        """
        from goalgrid.reports.analyses import analysed

        grid_state = self._grid_state()
        analyses = analysed(
            grid_state, metric=metric, direction=direction, protocol=protocol, baseline=baseline,
            across=_several(across), source=self._source, overrides=self._overrides,
        )  # fmt: skip
        return EffectsOutput(analyses, grid_state.cells)

    def figure(self, kind: str = "matrix", *, block: str | None = None, quantities: Names = ()) -> FigureOutput:
        """Draw a figure of the trials done so far. Attention and examples, of one trial, need the command line.

        Args:
            kind: "matrix", "effects", "training", ...; an unknown name lists all.
            block: a recipe on a data set, e.g. "cnn-bow on shapes"; None: the only block that has this figure.
            quantities: a logged value, e.g. "val_s_pos", or several, for `training` to draw; default: its standard set.
        """
        from goalgrid.results import figures

        check_known(
            "figure", kind, figures.FIGURES, hint="Figures of one trial: goalgrid figures GRID attention, or examples."
        )
        grid_state = self._grid_state()
        scores = some_scores(grid_state, None, self._source, self._overrides)
        studies = figures.Study.read(grid_state.cells, scores, self._home)
        pictures = {study.title: figure for _, study, figure in figures.draw_all(studies, [kind], _several(quantities))}
        if not pictures:
            needs = figures.FIGURES[kind].needs
            raise UserError(f"the finished trials of {self.name!r} have nothing to draw as {kind!r}: it needs {needs}.")
        if block is None and len(pictures) > 1:
            raise UserError(
                f"{len(pictures)} blocks have a figure {kind!r}; choose one with block=: {'; '.join(pictures)}."
            )
        title = block or next(iter(pictures))
        check_known("block", title, pictures, where=f"of grid {self.name!r}")
        return FigureOutput(kind, title, pictures[title])

    def objective(self, name: str, *, variant: str = "paper", **parameters: Any) -> "Objective":
        """Build an objective known to this grid, including user-defined losses: a function of (b, d) unit vectors.

        Args:
            name: an objective, e.g. "sig-ms_cir", or one registered by a file that the grid `uses`.
            variant: "paper" follows the papers' equations, "released" their published code.
            parameters: its parameters; default: those of the variant.
        """
        from goalgrid.objectives import build

        return build(name, self._grid.catalog.objectives, variant=variant, **parameters)

    def __repr__(self) -> str:
        return repr(self.status())

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def _grid_state(self) -> GridState:
        return GridState.of(self._grid, self._home)


def _several(names: Names) -> Sequence[str]:
    return [names] if isinstance(names, str) else names
