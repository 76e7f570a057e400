"""Training what is not done of a grid: decides which trials, and launches them."""

from functools import partial

from goalgrid.planning.decisions import Choice, TrialDecision, decide, to_replace, to_train
from goalgrid.planning.overview import Overview, many
from goalgrid.terminal.views import err, out, say
from grid.store.saved_grid import save_grid


def train(
    overview: Overview,
    choice: Choice,
    *,
    here: bool = False,
    address: str | None = None,
    mlflow_uri: str | None = None,
    allow_leak: bool = False,
) -> list[TrialDecision]:
    """Train the chosen trials, and save the grid as it is run; the decisions on them. The disk tells how they ended.

    Args:
        here: train in this process, without Ray.
        address: of a Ray cluster; None: a Ray for this launch.
        mlflow_uri: what to mirror to; None: a file in the runs folder; empty: no mirror.
        allow_leak: train even if test images stand in the training split.

    Raises:
        UserError: the filter names no trial, or data, runs folder or cluster cannot be used; nothing was trained.
    """
    overview.data.check(overview.selected(choice.only))
    decisions = decide(overview, choice)
    todo, anew = to_train(decisions), to_replace(decisions)
    save = partial(save_grid, overview.grid, overview.trials, overview.home)
    uri = f"sqlite:///{overview.home.mlflow.absolute()}" if mlflow_uri is None else mlflow_uri
    if not todo:
        save()
        _mirror(overview, uri)
        return decisions
    from runners.launch.launch import Launch

    begun = f", {len(anew)} of them anew" if anew else ""
    say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}")
    live = out.is_terminal and err.is_terminal
    launch = Launch(overview.home, err, here, address, uri or None, live, allow_leak)
    launch.run(overview.grid, overview.cells, todo, anew, checked=save)
    return decisions


def _mirror(overview: Overview, uri: str) -> None:
    """Copy finished trials into MLflow that an earlier launch could not copy."""
    from runners.watching.mlflow_mirror import Mirror, unmirrored

    home, held = overview.home, overview.home.grid(overview.grid.name).mirrored
    late = unmirrored((home.trial(trial.id) for trial in overview.trials), uri, held) if uri else []
    if late:
        say(f"{overview.grid.name}: copying {many(len(late), 'trial')} to MLflow")
        mirror = Mirror(uri, overview.grid.name, lambda message: say(f"warning: {message}"), held)
        for folder in late:
            mirror.sync(folder)
        mirror.close()
