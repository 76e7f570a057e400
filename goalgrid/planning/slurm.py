"""A batch script for Slurm that trains a grid: it goes on after a time limit, a lost node or a requeue."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grid import catalog
from grid.errors import UserError
from grid.expansion import chains, expand, trials_of
from grid.gridfile import Grid

LEFT_SECONDS = 35
"""Between the end of the grace time and the end of the job: Python ends, and the job is queued again."""

TIME = re.compile(r"[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){0,2})")
"""Slurm's forms: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""

OPTION = re.compile(r"(?:--)?([a-z][a-z0-9-]*)(?:=([^\n]*))?")

NODES = """\
# This node is the head of a Ray cluster, which trains too. The nodes of the job know a token that nobody else knows.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(openssl rand -hex 32) && export RAY_AUTH_TOKEN
address=$(hostname --ip-address | cut -d' ' -f1):$((20000 + SLURM_JOB_ID % 10000))
ray start --head --block --port="${address##*:}" --num-cpus="$SLURM_CPUS_PER_TASK" \\
    --num-gpus="${SLURM_GPUS_ON_NODE:-0}" &
trap 'kill $(jobs -p) 2>/dev/null' EXIT
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$(hostname)" \\
    ray start --address="$address" --block --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" &
for _ in {1..150}; do  # at most five minutes; nodes that come later train, too
    [ "$(ray status --address="$address" 2>/dev/null | grep -c ' node_')" -ge "$SLURM_NNODES" ] && break
    sleep 2
done
"""

END = """\
driver=$!
trap 'kill -TERM $driver' TERM
wait $driver
status=$?
while kill -0 $driver 2>/dev/null; do  # the signal ended the wait, not the grid
    wait $driver
    status=$?
done
# 3: trials are left, and their checkpoints are written. 143: the signal came before the first trial began.
case $status in 3 | 143) scontrol requeue "$SLURM_JOB_ID" ;; esac
exit $status
"""


@dataclass(frozen=True)
class BatchJob:
    """What a batch job does, and what it asks of Slurm.

    Args:
        words: of the command line that trains the grid, without the options for a cluster.
        time: limit in a form of Slurm.
        options: of sbatch, as NAME=VALUE or NAME; they count more than what the grid asks for.
    """

    grid: Grid
    words: Sequence[str]
    folder: Path
    time: str = "24:00:00"
    nodes: int = 1
    options: Sequence[str] = ()

    def script(self) -> str:
        """The batch script.

        Raises:
            UserError: the time or an option has no form of Slurm.
        """
        asked = self._asked()
        lines = [f"#SBATCH --{name}{'=' * bool(value)}{value}" for name, value in asked.items()]
        head = "\n".join([
            "#!/bin/bash",
            f"# Trains the grid {self.grid.name}. Submit it: sbatch FILE",
            *lines,
            "",
            f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH RAY_USAGE_STATS_ENABLED=0",
            f"cd {shlex.quote(str(self.folder))} || exit",
            "",
        ])  # fmt: skip
        command = shlex.join(["goalgrid", "run", *self.words])
        several = int(asked["nodes"].partition("-")[0]) > 1
        if several:
            command += ' --address "$address"'
        elif self.grid.resources.concurrency is None:
            command += f" --jobs $((SLURM_CPUS_PER_TASK / {self.grid.resources.cpus}))"
        return f"{head}\n{NODES if several else ''}{command} &\n{END}"

    def _asked(self) -> dict[str, str]:
        """The options of sbatch by name."""
        if not TIME.fullmatch(self.time):
            raise UserError(f"--time {self.time!r} is no time of Slurm: minutes, H:M:S or D-H:M:S, e.g. 12:00:00.")
        cpus, gpus = self._of_a_node()
        asked = {
            "job-name": self.grid.plain_name,
            "nodes": str(self.nodes),
            "ntasks-per-node": "1",
            "cpus-per-task": str(cpus),
            **({"gpus-per-node": str(gpus)} if gpus else {}),
            "time": self.time,
            "signal": f"B:TERM@{self.grid.reliability.grace_seconds + LEFT_SECONDS:.0f}",
            "requeue": "",
            "open-mode": "append",
        }
        return asked | dict(map(_option, self.options))

    def _of_a_node(self) -> tuple[int, int]:
        """CPUs and GPUs of a node: of a GPU, as many jobs as share it; without one, a job for each CPU asked for."""
        resources = self.grid.resources
        share = max(resources.gpus(catalog.recipe(recipe).gpu) for recipe in self.grid.recipes)
        jobs = 1 if share >= 1 else int(1 / share) if share else 8
        limits = [jobs, len(chains(trials_of(expand(self.grid)))), *filter(None, [resources.concurrency])]
        return resources.cpus * min(limits), -int(-share // 1)


def _option(text: str) -> tuple[str, str]:
    found = OPTION.fullmatch(text)
    if not found or found[1] in ("signal", "requeue", "open-mode", "ntasks-per-node"):
        why = "which the script sets itself" if found else "which is no NAME=VALUE, e.g. partition=gpu"
        raise UserError(f"--sbatch {text!r}, {why}. Known: the long options of sbatch, without their dashes.")
    if found[1] in ("nodes", "time"):
        raise UserError(f"--sbatch {text!r}: goalgrid slurm GRID has --nodes and --time for this.")
    return found[1], found[2] or ""


def option_words(options: Mapping[str, Sequence[str]]) -> list[str]:
    """Words of a command line.

    >>> option_words({"--set": ["train.epochs=2", "seeds=0"], "--root": []})
    ['--set', 'train.epochs=2', '--set', 'seeds=0']
    """
    return [word for name, values in options.items() for value in values for word in (name, value)]
