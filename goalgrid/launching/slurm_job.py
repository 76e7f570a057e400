"""Prepare and submit a Slurm job for grids: its resources from the plan, its saved launches and its script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import tell
from goalgrid.grid.store.home import Home, LaunchFolder
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.grid.store.output_files import write_output
from goalgrid.launching import kept
from goalgrid.launching.host_needs import HostNeeds, at_work, most, needs_of_host
from goalgrid.launching.slurm import SlurmOptions, check_places, command_words, gpus_asked, script, tasks_asked
from goalgrid.launching.snapshot import taken
from goalgrid.launching.together import groups_of
from goalgrid.planning.decisions import Choice
from goalgrid.state import named_grids, slurm_jobs
from goalgrid.state.grid_state import GridState


@dataclass(frozen=True)
class JobRequest:
    """A user's request for a job.

    Args:
        sources: the grids, by name or file.
        overrides: KEY=VALUE each.
        roots: [DATASET=]DIR each.
        weights: NAME=DIR each.
        sbatch: options of sbatch, as NAME=VALUE.
        snapshot: whether the job runs a copy of the current code; None: only if it is submitted from a checkout.
    """

    sources: Sequence[str]
    overrides: Sequence[str]
    roots: Sequence[str]
    weights: Sequence[str]
    choice: Choice
    options: SlurmOptions
    sbatch: Sequence[str]
    submit: bool
    snapshot: bool | None

    def grids(self, home: Home, *more: str) -> list[Grid]:
        """Read the grids with `more` overrides, and return those with trials that match the filter."""
        overrides = [*self.overrides, *more]
        grids = named_grids.grids_to_train(self.sources, home, overrides, roots=self.roots, weights=self.weights)
        return named_grids.of_filter(grids, home, self.choice.only)


@dataclass(frozen=True)
class SlurmJob:
    """A job ready to be submitted: its script, its grids and their saved launches."""

    script: str
    grids: Sequence[Grid]
    launches: Sequence[KeptLaunch]
    home: Home

    @property
    def default_path(self) -> Path:
        """Default path of the script of a submitted job."""
        return self.home.grid(self.grids[0].name).path / "job.sh"

    def submit(self, path: Path) -> str:
        """Write the script, submit it and return the job's id; raise UserError if Slurm refuses it."""
        write_output(path, self.script.encode())
        job = slurm_jobs.submit(path, [self.home.grid(grid.name) for grid in self.grids])
        for grid, launch in zip(self.grids, self.launches, strict=True):
            kept.save_new(GridState.of(grid, self.home), launch)
        return job


def prepare(request: JobRequest, home: Home) -> SlurmJob:
    """Determine a job's resources, and save its launches; raise UserError if the grids cannot be trained by it."""
    options, choice = request.options, request.choice
    grids = request.grids(home)
    for grid in grids:
        grid_state = GridState.of(grid, home)  # else the job would be the first to tell
        for reason in check_places(grid_state, grid_state.selected(choice.only)):
            tell(reason, kind="note")
    if options.hourly is not None and not options.device:
        raise UserError("--hourly needs the type of GPU, e.g. --device h100.")
    gpus, tasks = gpus_asked(grids, options, request.sbatch), tasks_asked(options, request.sbatch)
    needs_of = partial(_needs, home=home, choice=choice, options=options, gpus=gpus, tasks=tasks)
    needs = needs_of(grids)
    if any(most(needs).cpus > grid.resources.cpus for grid in grids):
        grids = request.grids(home, f"resources.cpu={most(needs).cpus}")
        needs = needs_of(grids) if options.device else needs  # the time is that with these CPUs
    _tell_needs(grids, needs, tasks)
    archive = taken(asked=bool(request.snapshot)) if _snapshots(request) else b""
    launches = [kept.of(GridState.of(grid, home), archive) for grid in grids]
    places = [home.grid(grid.name).launch(launch.id) for grid, launch in zip(grids, launches, strict=True)]
    words = command_words(places, grids, home, choice.only, ["--stale"] * choice.stale)
    snapped = (places[0].snapshot.absolute(), launches[0].snapshot) if archive else None
    text = script(grids, words, options, gpus, most(needs), request.sbatch, force=choice.force, snapshot=snapped)
    _write(places, launches, archive)
    return SlurmJob(text, grids, launches, home)


def _snapshots(request: JobRequest) -> bool:
    return request.submit if request.snapshot is None else request.snapshot


def _needs(
    grids: Iterable[Grid], *, home: Home, choice: Choice, options: SlurmOptions, gpus: int, tasks: int
) -> list[HostNeeds]:
    """Return what each grid's trials need of a host; trials shared between grids count for the first of them."""
    needs, before = list[HostNeeds](), set[str]()
    for grid_state in (GridState.of(grid, home) for grid in grids):
        hosts = options.nodes * tasks
        needs.append(needs_of_host(grid_state, choice, options.device, gpus, hosts, options.hourly, without=before))
        before |= grid_state.states.keys()
    return needs


def _tell_needs(grids: Sequence[Grid], needs: Sequence[HostNeeds], tasks: int) -> None:
    """Report the sources of these estimates, and how many GPUs will be busy for each group of grids."""
    for text in dict.fromkeys(need.note for need in needs if need.note):
        tell(text, kind="note")
    of_grids = dict(zip((grid.name for grid in grids), needs, strict=True))
    for group in groups_of(grids):
        for line in at_work([of_grids[grid.name] for grid in group.grids], tasks):
            tell(f"{group.name}: {line}")


def _write(places: Sequence[LaunchFolder], launches: Sequence[KeptLaunch], archive: bytes) -> None:
    for place, launch in zip(places, launches, strict=True):
        launch.write(place, archive)
