"""Submit Slurm jobs for grids, and ask Slurm for their states."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.groups import grouped
from goalgrid.grid.store.files import readable_text, write_text
from goalgrid.grid.store.home import GridFolder

SECONDS = 30
LATEST = 20
"""Number of most recently submitted jobs whose states are queried."""


def submit(script: Path, folders: Iterable[GridFolder]) -> str:
    """Submit a script, note its job in the grids' folders, and return the job's id; raise UserError if refused."""
    job = _asked(["sbatch", "--parsable", str(script)]).partition(";")[0]
    for folder in folders:
        write_text(folder.slurm, "".join(f"{noted}\n" for noted in [*_noted(folder), job]))
    return job


def without_gpus(partition: str) -> bool:
    """Return whether Slurm reports no GPU on any node of this partition (if empty, of the cluster)."""
    try:
        return "gpu" not in _asked(
            ["sinfo", "--noheader", "--format=%G", *([f"--partition={partition}"] * bool(partition))]
        )
    except UserError:
        return False


def states(folder: GridFolder) -> dict[str, str]:
    """Map the id of each submitted job or task, e.g. 7_2 or 7_[3-9], to its state; raise UserError if Slurm fails.

    Jobs of all users are queried: a colleague may have submitted some for the same grid.
    """
    jobs = _noted(folder)[-LATEST:]
    if not jobs:
        return {}
    waiting = _asked(["squeue", "--noheader", "--format", "%i|%T|%r"]).splitlines()
    parts = (line.split("|") for line in waiting)
    queued = {job: state if reason == "None" else f"{state} ({reason})" for job, state, reason in parts}
    try:
        accounts = _asked(["sacct", "-anPX", "--format", "JobID,State", "--jobs", ",".join(jobs)]).splitlines()
        ended = dict(line.split("|") for line in accounts)
    except UserError:  # many clusters keep no accounts
        ended = dict.fromkeys({*jobs} - {job.partition("_")[0] for job in queued}, "ended")
    return {job: state for job, state in (ended | queued).items() if job.partition("_")[0] in jobs}


def lines(folder: GridFolder) -> list[str]:
    """Return `slurm: 2 RUNNING (7_1, 7_2)`, one line per state."""
    try:
        by_state = grouped((state, job) for job, state in states(folder).items())
    except UserError as error:
        return [f"slurm: the states of its jobs are unknown: {error}"]
    return [f"slurm: {len(jobs)} {state} ({', '.join(jobs)})" for state, jobs in by_state.items()]


def _noted(folder: GridFolder) -> list[str]:
    """Return the ids of the submitted jobs; anything else in the file is ignored."""
    return [job for job in readable_text(folder.slurm).split() if job.isascii() and job.isdecimal()]


def _asked(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "does not answer" if isinstance(error, subprocess.TimeoutExpired) else "is not on this host"
        raise UserError(f"{command[0]} {why}.") from error
    if done.returncode:
        raise UserError(f"{command[0]}: {' '.join(done.stderr.split()) or 'refused'}.")
    return done.stdout.strip()
