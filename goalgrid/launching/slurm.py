"""A batch script for Slurm that trains a grid: it goes on after a time limit, a lost node or a requeue."""

import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goalgrid.grid import catalog, expansion
from goalgrid.grid.cli_option import option
from goalgrid.grid.errors import UserError, counted, several, text_of
from goalgrid.grid.expansion import Trial
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, LaunchFolder
from goalgrid.launching.host_needs import HostNeeds
from goalgrid.runners.launch import RunOptions
from goalgrid.state import slurm_jobs
from goalgrid.state.grid_state import GridState

LEFT_SECONDS = 35
"""Between the end of the grace time and the end of the job: Python ends, and the job is queued again."""

TIME = re.compile(r"[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){2})?")
"""Slurm's forms: minutes, H:M:S, D-H, D-H:M, D-H:M:S."""

ARRAY = re.compile(r"[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?(,[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?)*(%[0-9]+)?")
"""Slurm's lists of ids, with the number of tasks at a time."""

OPTION = re.compile(r"(?:--)?([a-z][a-z0-9-]*)(?:=([^\n]*))?")


@dataclass(frozen=True)
class SlurmOptions(RunOptions):
    """What a job asks of Slurm, and what it passes on: options of `goalgrid slurm`."""

    time: str = option("24:00:00", "Time limit of a job; after it, the job queues again.", "H:M:S")
    nodes: int = option(1, "Number of hosts, connected by Ray.", min=1)
    gpus: int | None = option(
        None, "GPUs of each host; 0: a cluster without. Default: of one job, where Slurm has GPUs.", min=0
    )
    array: int | None = option(None, "Submit this many jobs that share the trials of one runs folder.", "N", min=2)
    device: str = option(
        "", "Type of the GPUs, e.g. h100: ask for the CPUs that feed it, and estimate the time.", "GPU"
    )
    hourly: float | None = option(None, "With --device: price of a GPU-hour, for a cost estimate.", "PRICE", min=0.0)
    mem: str = option("", "Memory of each host, e.g. 32G; default: estimated by the plan.", "SIZE")
    account: str = option("", "Slurm account to charge.", "NAME")
    log: str = option("", "Log file of each job, e.g. logs/%j.txt.", "FILE")
    stage: bool = option(False, "Copy the data to the disk of each node before it trains: docs/clusters.md.")
    setup: Path | None = option(None, "Shell lines to run first, e.g. module load.", "FILE", exists=True)  # noqa: RUF009


def script(
    grids: Sequence[Grid],
    words: Sequence[str],
    options: SlurmOptions,
    gpus: int,
    needs: HostNeeds,
    more: Sequence[str] = (),
    *,
    force: bool = False,
    snapshot: tuple[Path, str] | None = None,
) -> str:
    """Return the batch script of a job that trains grids; UserError: the time or an option has no form of Slurm.

    Args:
        words: of the command line that trains the grids, without the options for a cluster.
        gpus: of each host, as `gpus_asked` returns them.
        needs: of the grids' trials.
        more: options of sbatch, as NAME=VALUE or NAME; they count more than what the grid asks for.
        force: retrain finished trials at the job's first start; a job that is queued again goes on.
        snapshot: the archive of the code that the job runs, and its SHA-256; None: what is installed then.
    """
    from goalgrid.results.pages import page

    _check_sizes(options)
    tasks, given = tasks_asked(options, more), _asked_by_user(options, more)
    if force and tasks > 1:
        raise UserError("--force with an array: each task would retrain what another has just done. Use one job.")
    jobs = _jobs_of_a_host(grids, gpus, needs.sharing, options.nodes * tasks)
    asked = _asked_by_grids(grids, options, gpus, jobs, needs) | given
    if asked.keys() & {"mem-per-cpu", "mem-per-gpu"} and "mem" not in given:
        del asked["mem"]
    if _gpus_of_user(given) is not None and "gpus-per-node" not in given:
        asked.pop("gpus-per-node", None)  # Slurm refuses GPUs with a type and without
    cpus = max(grid.resources.cpus for grid in grids)
    if (host := asked["cpus-per-task"]).isdecimal() and int(host) < cpus:
        raise UserError(f"--sbatch cpus-per-task={host} is too few: a trial of this grid takes {counted(cpus, 'CPU')}.")
    here, staged = str(Path.cwd()), _staged(grids) if options.stage else {}
    setup = options.setup  # `module` and `conda` are of login shells
    return page(
        "slurm.sh",
        names=[grid.name for grid in grids],
        asked={name: _quoted(value) for name, value in asked.items()},
        nodes=options.nodes,
        force=force,
        cpus=cpus,
        limited=any(grid.resources.concurrency for grid in grids),
        setup=text_of(setup, "--setup", "It holds lines of bash.").rstrip() if setup else "",
        path=shlex.quote(str(Path(sys.executable).parent)),
        folder=shlex.quote(here),
        unpack=shlex.quote(_unpacking(*snapshot)) if snapshot else "",
        staged=staged,
        stage=shlex.quote(_copying(staged)) if staged else "",
        command=shlex.join(["goalgrid", "run", *words, *_passed(options, tasks, here if snapshot else "")]),
    )


def _check_sizes(options: SlurmOptions) -> None:
    """UserError: the time or the memory has no form of Slurm."""
    if re.fullmatch("[0-9]+:[0-9]+", options.time):  # Slurm's M:S, where a reader means hours
        count = options.time.partition(":")[0]
        minutes = counted(int(count), "minute")
        raise UserError(
            f"--time {options.time} is {minutes} to Slurm. "
            f"Write {options.time}:00 for hours and minutes, or {count} for {minutes}."
        )
    if not TIME.fullmatch(options.time):
        raise UserError(f"--time {options.time!r} is no time of Slurm: minutes, H:M:S or D-H:M:S.")
    if not re.fullmatch("([0-9]+[KMGT]?)?", options.mem):
        raise UserError(f"--mem {options.mem!r} is no size of Slurm: megabytes, or e.g. 32G.")


def _asked_by_user(options: SlurmOptions, more: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch that a user gave in whatever way; UserError: one is more than a line."""
    named = {"mem": options.mem, "account": options.account, "output": options.log}
    given = {name: value for name, value in named.items() if value} | _given(options, more)
    if wrong := [f"--{name} {value!r}" for name, value in given.items() if not value.isprintable()]:
        raise UserError(f"{wrong[0]} has a line break or another control character: each option is one line.")
    return given


def _asked_by_grids(
    grids: Sequence[Grid], options: SlurmOptions, gpus: int, jobs: int, needs: HostNeeds
) -> dict[str, str]:
    """Return the options of sbatch for hosts that each train so many jobs of the grids at a time."""
    grace = max(grid.reliability.grace_seconds for grid in grids)
    return {
        "job-name": "+".join(dict.fromkeys(grid.plain_name for grid in grids)),
        "nodes": str(options.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(max(grid.resources.cpus for grid in grids) * jobs),
        **({"gpus-per-node": str(gpus)} if gpus else {}),
        "mem": needs.memory(jobs),
        "time": options.time,
        "signal": f"B:TERM@{grace + LEFT_SECONDS:.0f}",
        "requeue": "",
        **({"no-kill": ""} if options.nodes > 1 else {}),
        "open-mode": "append",
    }


def _quoted(value: str) -> str:
    r"""Return the value as sbatch reads it from a line of a script: a backslash escapes within quotes, too.

    >>> _quoted("logs/%j.txt"), _quoted("my logs/%j.txt"), _quoted("")
    ('logs/%j.txt', "'my logs/%j.txt'", '')
    """
    return shlex.quote(value.replace("\\", r"\\")) if value else ""


def _passed(options: SlurmOptions, tasks: int, folder: str) -> list[str]:
    """Return the options that the run of each task takes; `folder`: where it runs --notify, empty for its own."""
    words = list[str]()
    if options.mlflow_uri is not None or tasks > 1:
        words += ["--mlflow-uri", options.mlflow_uri or ""]
    if options.notify:
        words += ["--notify", f"cd {shlex.quote(folder)} && {options.notify}" if folder else options.notify]
    return words + ["--allow-leak"] * options.allow_leak


def check_places(grid_state: GridState, trials: Sequence[Trial]) -> list[str]:
    """Check that the folders that the grid names are here, where its jobs read them too; else UserError.

    Returns why a job would not start: data for which the grid names no folder.
    """
    grid, missing = grid_state.grid, grid_state.data.missing(trials)
    gone = [reason for name, reason in missing.items() if (root := grid.root(name)) and not _of_a_job(root)]
    places = {name: place for name, place in grid.places().items() if not _of_a_job(place)}
    gone += [f"weights {name!r}: nothing is at {place}." for name, place in places.items() if not place.exists()]
    if gone:
        raise several(f"grid {grid.name!r}", gone)
    return list(missing.values())


def _of_a_job(place: Path) -> bool:
    """Return whether a place lies in a folder that a variable names which only jobs have, as `$SLURM_TMPDIR`."""
    return str(place).startswith("$")


def _staged(grids: Sequence[Grid]) -> dict[str, str]:
    """Return the folders to copy to the nodes' own disks, by data set; UserError: none, or the grids differ."""
    roots = [{name: grid.root(name) for name in grid.data} for grid in grids]
    if any(other != roots[0] for other in roots):
        raise UserError(
            "--stage copies the data of one grid, or of grids of the same data sets: give it for each grid."
        )
    staged = {name: str(root) for name, root in roots[0].items() if root and not _of_a_job(root)}
    if not staged:
        raise UserError("--stage copies data from the folder that --root names, and no data set of the grid has one.")
    return staged


def _unpacking(archive: Path, digest: str) -> str:
    """Return the command that unpacks an archive of this SHA-256 into `$disk/code`, and goes there, as Ray does."""
    listed, file = shlex.quote(f"{digest}  {archive}"), shlex.quote(str(archive))
    place = '"$disk/code"'
    return f"mkdir -p {place} && cd {place} && sha256sum --check --status <<< {listed} && tar -xzf {file}"


def _copying(staged: Mapping[str, str]) -> str:
    """Return the command that copies these folders below `$disk` with their times, by which a copy is known again."""
    copies = (f'cp -RL --preserve=timestamps {shlex.quote(root)} "$disk/{name}"' for name, root in staged.items())
    return " && ".join(["umask 077", 'mkdir -p "$disk"', *copies])


def gpus_asked(grids: Sequence[Grid], options: SlurmOptions, more: Sequence[str]) -> int:
    """Return the GPUs of each host that a job asks for, with options of sbatch as `script` takes them.

    UserError: too few for a job of the grids, or an option has no form of Slurm.
    """
    given = _given(options, more)
    gpus, partition = options.gpus, given.get("partition", "")
    share, asked = _share(grids), max((grid.resources.gpu or 0 for grid in grids), default=0)
    if gpus is None:
        gpus = _gpus_of_user(given)
    if gpus is None:
        settled = any(grid.resources.gpu is not None for grid in grids)
        needless = not settled and (all(map(_is_generated, grids)) or slurm_jobs.without_gpus(partition))
        gpus = 0 if needless else math.ceil(share)
    if gpus < share and (gpus or asked):
        raise UserError(f"a job of this grid asks for {share:g} GPUs of one node: --gpus {gpus} is too few.")
    return gpus


def _gpus_of_user(given: Mapping[str, str]) -> int | None:
    """Return the GPUs of each host that options of sbatch ask for; None if they do not.

    >>> _gpus_of_user({"gres": "tmp:9,gpu:a100:2"}), _gpus_of_user({"gres": "gpu"}), _gpus_of_user({})
    (2, 1, None)
    """
    gres = [word for word in given.get("gres", "").split(",") if word.partition(":")[0] == "gpu"]
    asked = [*(given[name] for name in ("gpus-per-node", "gpus-per-task") if name in given), *gres]
    if not asked:
        return None
    count = asked[0].rpartition(":")[2]
    return int(count) if re.fullmatch("[0-9]+", count) else 1


def tasks_asked(options: SlurmOptions, more: Sequence[str]) -> int:
    """Return how many tasks of a job run at a time; UserError: an option has no form of Slurm."""
    return _tasks(_given(options, more).get("array", "1"))


def _given(options: SlurmOptions, more: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch that a user gave as such, and the array."""
    return ({"array": f"1-{options.array}"} if options.array else {}) | dict(map(_sbatch, more))


def _share(grids: Sequence[Grid]) -> float:
    return max(grid.resources.gpus(grid.catalog.recipe(name).gpu) for grid in grids for name in grid.recipes)


def _jobs_of_a_host(grids: Sequence[Grid], gpus: int, sharing: int | None, hosts: int) -> int:
    """Return how many jobs of grids run at a time on one of the hosts among which they are divided.

    As many as share its GPUs, `sharing` each, or as the recipes' shares say; without a GPU, up to eight.
    """
    share = _share(grids)
    jobs = round(gpus / share, 6) if gpus and share else 8
    if sharing and gpus and all(grid.resources.shares_gpus for grid in grids):
        jobs = sharing * gpus
    chains = {trial.id for grid in grids for trial, *_ in _chains(grid)}
    limit = max(grid.resources.concurrency or int(jobs) for grid in grids)
    return min(int(jobs), limit, math.ceil(len(chains) / hosts))


def _chains(grid: Grid) -> list[list[Trial]]:
    return expansion.chains(expansion.trials_of(expansion.expand(grid)))


def _is_generated(grid: Grid) -> bool:
    """Return whether all data are generated, as those of `demo`: such trainings take minutes on a CPU."""
    return all(catalog.described(name).embedded for name in grid.datasets)


def _tasks(array: str) -> int:
    """Return how many tasks of an array run at a time; UserError: it has no form of Slurm.

    >>> _tasks("1-40%4"), _tasks("0-9:2,20"), _tasks("7")
    (4, 6, 1)
    """
    if not ARRAY.fullmatch(array):
        raise UserError(f"--array {array!r} is no array of Slurm: e.g. 1-8, 1-40%4, 0-9:2 or 1,3,5.")
    parts, _, most = array.partition("%")
    count = 0
    for part in parts.split(","):
        first, _, last = part.partition("-")
        last, _, step = last.partition(":")
        count += len(range(int(first), int(last or first) + 1, int(step or 1)))
    if not count or most == "0":
        raise UserError(f"--array {array!r} has no task.")
    return min(count, int(most or count))


def _sbatch(text: str) -> tuple[str, str]:
    match = OPTION.fullmatch(text)
    if not match or match[1] in ("signal", "requeue", "open-mode", "ntasks-per-node"):
        why = "which the script sets itself" if match else "which is no NAME=VALUE, e.g. partition=gpu"
        raise UserError(f"--sbatch {text!r}, {why}. Known: the long options of sbatch, without their dashes.")
    if match[1] in ("nodes", "time"):
        raise UserError(f"--sbatch {text!r}: goalgrid slurm GRID has --nodes and --time for this.")
    return match[1], match[2] or ""


def command_words(
    launches: Sequence[LaunchFolder], grids: Sequence[Grid], home: Home, only: str, more: Sequence[str] = ()
) -> list[str]:
    """Return the words after `goalgrid run` that train what launches of these grids keep, from any folder.

    The name of a launch is a digest of its content. A job runs its code, whoever could write the runs folder since.
    """
    words = [word for launch in launches for word in ("--launch", str(launch.path.absolute()))]
    words += ["--runs", str(home.path.absolute()), *more, *(["--only", only] if only else [])]
    return [*words, *(["--trust-code"] if any(grid.uses for grid in grids) else [])]
