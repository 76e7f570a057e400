"""Write Slurm batch scripts that train grids, and continue after a time limit, a lost node or a requeue."""

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
"""Seconds between the end of the grace time and the end of the job, to end Python and requeue the job."""

TIME = re.compile(r"[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){2})?")
"""Slurm's time formats: minutes, H:M:S, D-H, D-H:M, D-H:M:S."""

ARRAY = re.compile(r"[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?(,[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?)*(%[0-9]+)?")
"""Slurm's array formats: lists of task ids, with an optional limit on concurrent tasks."""

OPTION = re.compile(r"(?:--)?([a-z][a-z0-9-]*)(?:=([^\n]*))?")


@dataclass(frozen=True)
class SlurmOptions(RunOptions):
    """Options of `goalgrid slurm`: the resources a job requests, and options passed on to its run."""

    time: str = option("24:00:00", "Time limit of a job, after which it requeues itself.", "H:M:S")
    nodes: int = option(1, "Number of hosts, connected by Ray.", min=1)
    gpus: int | None = option(
        None, "GPUs per host; 0: train on CPUs. Default: enough for one trial, if Slurm has GPUs.", min=0
    )
    array: int | None = option(None, "Submit this many jobs, which share the trials of one runs folder.", "N", min=2)
    device: str = option("", "Type of GPU, e.g. h100: request enough CPUs to feed it, and estimate the time.", "GPU")
    hourly: float | None = option(None, "With --device: price of one GPU-hour, for a cost estimate.", "PRICE", min=0.0)
    mem: str = option("", "Memory per host, e.g. 32G; default: as estimated by the plan.", "SIZE")
    account: str = option("", "Slurm account to charge.", "NAME")
    log: str = option("", "Log file of each job, e.g. logs/%j.txt.", "FILE")
    stage: bool = option(False, "Copy the data to each node's local disk before training: docs/clusters.md.")
    setup: Path | None = option(None, "File with shell commands to run first, e.g. module load.", "FILE", exists=True)  # noqa: RUF009


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
    """Return the batch script of a job that trains grids; raise UserError if an option is not valid in Slurm.

    Args:
        words: the arguments of `goalgrid run` that train the grids, without options for a cluster.
        gpus: GPUs per host, from `gpus_asked`.
        needs: CPUs and memory that the grids' trials need.
        more: options of sbatch, as NAME=VALUE or NAME; they override those derived from the grid.
        force: retrain finished trials at the job's first start; a requeued job continues.
        snapshot: the archive of the code that the job runs, and its SHA-256; None: the installed code.
    """
    from goalgrid.results.pages import page

    _check_sizes(options)
    tasks, given = tasks_asked(options, more), _asked_by_user(options, more)
    if force and tasks > 1:
        raise UserError(
            "--force cannot be used with an array: each task would retrain what others have just done. Use one job."
        )
    jobs = _jobs_of_a_host(grids, gpus, needs.sharing, options.nodes * tasks)
    asked = _asked_by_grids(grids, options, gpus, jobs, needs) | given
    if asked.keys() & {"mem-per-cpu", "mem-per-gpu"} and "mem" not in given:
        del asked["mem"]
    if _gpus_of_user(given) is not None and "gpus-per-node" not in given:
        asked.pop("gpus-per-node", None)  # Slurm refuses GPUs with a type and without
    cpus = max(grid.resources.cpus for grid in grids)
    if (host := asked["cpus-per-task"]).isdecimal() and int(host) < cpus:
        raise UserError(f"--sbatch cpus-per-task={host} is too few: a trial of this grid needs {counted(cpus, 'CPU')}.")
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
        setup=text_of(setup, "--setup", "It must contain bash commands.").rstrip() if setup else "",
        path=shlex.quote(str(Path(sys.executable).parent)),
        folder=shlex.quote(here),
        unpack=shlex.quote(_unpacking(*snapshot)) if snapshot else "",
        staged=staged,
        stage=shlex.quote(_copying(staged)) if staged else "",
        command=shlex.join(["goalgrid", "run", *words, *_passed(options, tasks, here if snapshot else "")]),
    )


def _check_sizes(options: SlurmOptions) -> None:
    """Raise a UserError if time or memory is not in one of Slurm's formats."""
    if re.fullmatch("[0-9]+:[0-9]+", options.time):  # Slurm's M:S, where a reader means hours
        count = options.time.partition(":")[0]
        minutes = counted(int(count), "minute")
        raise UserError(
            f"Slurm reads --time {options.time} as {minutes}. "
            f"Write {options.time}:00 for hours and minutes, or {count} for {minutes}."
        )
    if not TIME.fullmatch(options.time):
        raise UserError(f"--time {options.time!r} is not a Slurm time: use minutes, H:M:S or D-H:M:S.")
    if not re.fullmatch("([0-9]+[KMGT]?)?", options.mem):
        raise UserError(f"--mem {options.mem!r} is not a Slurm size: use megabytes, or e.g. 32G.")


def _asked_by_user(options: SlurmOptions, more: Sequence[str]) -> dict[str, str]:
    """Return all sbatch options given by the user, by any flag; raise UserError if one contains a line break."""
    named = {"mem": options.mem, "account": options.account, "output": options.log}
    given = {name: value for name, value in named.items() if value} | _given(options, more)
    if wrong := [f"--{name} {value!r}" for name, value in given.items() if not value.isprintable()]:
        raise UserError(f"{wrong[0]} contains a line break or another control character; each option must be one line.")
    return given


def _asked_by_grids(
    grids: Sequence[Grid], options: SlurmOptions, gpus: int, jobs: int, needs: HostNeeds
) -> dict[str, str]:
    """Return the sbatch options for hosts that each train `jobs` jobs of the grids concurrently."""
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
    r"""Quote a value for an #SBATCH line, where backslashes escape even within quotes.

    >>> _quoted("logs/%j.txt"), _quoted("my logs/%j.txt"), _quoted("")
    ('logs/%j.txt', "'my logs/%j.txt'", '')
    """
    return shlex.quote(value.replace("\\", r"\\")) if value else ""


def _passed(options: SlurmOptions, tasks: int, folder: str) -> list[str]:
    """Return the options passed to the run of each task; `folder`: where --notify runs, empty: where the run does."""
    words = list[str]()
    if options.mlflow_uri is not None or tasks > 1:
        words += ["--mlflow-uri", options.mlflow_uri or ""]
    if options.notify:
        words += ["--notify", f"cd {shlex.quote(folder)} && {options.notify}" if folder else options.notify]
    return words + ["--allow-leak"] * options.allow_leak


def check_places(grid_state: GridState, trials: Sequence[Trial]) -> list[str]:
    """Check that the folders named by the grid exist here, where its jobs read them too; raise UserError if not.

    Returns the reasons why a job would not start: data sets for which the grid names no folder.
    """
    grid, missing = grid_state.grid, grid_state.data.missing(trials)
    gone = [reason for name, reason in missing.items() if (root := grid.root(name)) and not _of_a_job(root)]
    places = {name: place for name, place in grid.places().items() if not _of_a_job(place)}
    gone += [f"weights {name!r}: nothing is at {place}." for name, place in places.items() if not place.exists()]
    if gone:
        raise several(f"grid {grid.name!r}", gone)
    return list(missing.values())


def _of_a_job(place: Path) -> bool:
    """Return whether a path starts with a variable that is only set within jobs, e.g. `$SLURM_TMPDIR`."""
    return str(place).startswith("$")


def _staged(grids: Sequence[Grid]) -> dict[str, str]:
    """Map data sets to the folders to copy to the nodes' local disks; raise UserError if none, or if grids differ."""
    roots = [{name: grid.root(name) for name in grid.data} for grid in grids]
    if any(other != roots[0] for other in roots):
        raise UserError("--stage needs grids with the same data folders; write a separate job for each grid.")
    staged = {name: str(root) for name, root in roots[0].items() if root and not _of_a_job(root)}
    if not staged:
        raise UserError("--stage copies the folders given by --root, but no data set of the grid has one.")
    return staged


def _unpacking(archive: Path, digest: str) -> str:
    """Return the command that verifies an archive by its SHA-256, unpacks it into `$disk/code` and changes there."""
    listed, file = shlex.quote(f"{digest}  {archive}"), shlex.quote(str(archive))
    place = '"$disk/code"'
    return f"mkdir -p {place} && cd {place} && sha256sum --check --status <<< {listed} && tar -xzf {file}"


def _copying(staged: Mapping[str, str]) -> str:
    """Return the command that copies these folders to `$disk`, keeping the file times that identify a copy."""
    copies = (f'cp -RL --preserve=timestamps {shlex.quote(root)} "$disk/{name}"' for name, root in staged.items())
    return " && ".join(["umask 077", 'mkdir -p "$disk"', *copies])


def gpus_asked(grids: Sequence[Grid], options: SlurmOptions, more: Sequence[str]) -> int:
    """Return the GPUs per host that a job requests; `more`: sbatch options, as for `script`.

    Raises UserError if they are too few for a trial of the grids, or an option is not valid in Slurm.
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
        raise UserError(f"a trial of this grid needs {share:g} GPUs of one node: --gpus {gpus} is too few.")
    return gpus


def _gpus_of_user(given: Mapping[str, str]) -> int | None:
    """Return the GPUs per host that sbatch options request; None if they request none.

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
    """Return how many tasks of a job run concurrently; raise UserError if an option is not valid in Slurm."""
    return _tasks(_given(options, more).get("array", "1"))


def _given(options: SlurmOptions, more: Sequence[str]) -> dict[str, str]:
    """Return the options that the user gave by --sbatch, and the array."""
    return ({"array": f"1-{options.array}"} if options.array else {}) | dict(map(_sbatch, more))


def _share(grids: Sequence[Grid]) -> float:
    return max(grid.resources.gpus(grid.catalog.recipe(name).gpu) for grid in grids for name in grid.recipes)


def _jobs_of_a_host(grids: Sequence[Grid], gpus: int, sharing: int | None, hosts: int) -> int:
    """Return how many jobs of the grids run concurrently on each host.

    Each GPU runs `sharing` jobs, or as many as the recipes' GPU shares allow; without a GPU, up to eight run.
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
    """Return whether all data sets are generated, as in `demo`: training on them takes minutes on a CPU."""
    return all(catalog.described(name).embedded for name in grid.datasets)


def _tasks(array: str) -> int:
    """Return how many tasks of an array run concurrently; raise UserError if it is not a valid Slurm array.

    >>> _tasks("1-40%4"), _tasks("0-9:2,20"), _tasks("7")
    (4, 6, 1)
    """
    if not ARRAY.fullmatch(array):
        raise UserError(f"--array {array!r} is not a Slurm array: use e.g. 1-8, 1-40%4, 0-9:2 or 1,3,5.")
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
        why = "set by the script itself" if match else "not NAME=VALUE, e.g. partition=gpu"
        raise UserError(f"--sbatch {text!r} is {why}. Use long options of sbatch, without their dashes.")
    if match[1] in ("nodes", "time"):
        raise UserError(f"--sbatch {text!r}: use the options --nodes and --time of goalgrid slurm instead.")
    return match[1], match[2] or ""


def command_words(
    launches: Sequence[LaunchFolder], grids: Sequence[Grid], home: Home, only: str, more: Sequence[str] = ()
) -> list[str]:
    """Return the arguments of `goalgrid run` that run these saved launches from any working directory.

    A launch is named by the digest of its content, so a job runs the saved code even if the runs folder was changed.
    """
    words = [word for launch in launches for word in ("--launch", str(launch.path.absolute()))]
    words += ["--runs", str(home.path.absolute()), *more, *(["--only", only] if only else [])]
    return [*words, *(["--trust-code"] if any(grid.uses for grid in grids) else [])]
