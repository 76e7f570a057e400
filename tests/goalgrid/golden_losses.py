"""Losses of 20 steps with a fixed seed: `python tests/goalgrid/golden_losses.py > tests/goalgrid/golden_losses.txt`.

Every tiny recipe with five objectives, through the command line alone, so that no move inside the program moves this
file. A line that changes is a training that computes something else. Digits behind the fifth depend on the processor.
"""

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests import few
from tests.retrieval.components.video import made

OBJECTIVES = {
    "sig-ms_cir": ["train.warmup_epochs=1"],
    "unified": [],
    "aoq": ["train.ranker=fc-bow"],
    "ncr": ["train.warmup_epochs=1"],
    "meta-spn": [],
}
"""A gradient without a loss, a loss, and one objective for each thing that a method adds to training; with settings."""
SETTINGS = (
    "name=golden", "seeds=0", "train.epochs=2", "train.batch_size=20", "train.trace_every=1", "model.dim=16",
    "dataset.noise=0.3",
)  # fmt: skip
VIDEOS = ("ce-tiny", "mmt-tiny")


def main(*arguments: str) -> str:
    """What the command line says on standard error, as in a terminal of its own."""
    from goalgrid.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["goalgrid", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(SystemExit):
            main()
    sys.argv = before
    return out.getvalue() + err.getvalue()


def recipes() -> list[str]:
    names = [line.split()[0] for line in main("recipes").splitlines() if "-tiny" in line.split()[0]]
    return [*names, "fc-bow", "cnn-bow"]


def lines(names: Sequence[str], objectives: Sequence[str]) -> Iterator[str]:
    """A line for each recipe and objective: the losses of its steps, `refused` where they do not go together."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"few": Path(folder, "few"), "mine": Path(folder, "mine")}
        places["few"].mkdir()
        few.write(places["few"])
        made.write(places["mine"], made.TINY)
        for name in names:
            for objective in objectives:
                for networks in ("single", "twins"):
                    if networks == "single" or (name, objective) in (("fc-bow", "ncr"), ("fc-bow", "unified")):
                        yield f"{name} {objective} {networks}: {losses(name, objective, networks, places, folder)}"


def losses(recipe: str, objective: str, networks: str, places: dict[str, Path], folder: str) -> str:
    data = "mine" if recipe in VIDEOS else "few"
    runs = Path(tempfile.mkdtemp(dir=folder))
    os.environ["GOALGRID_RUNS"] = str(runs)
    axes = f"recipes={recipe}", f"objectives={objective}", f"datasets={data}", f"model.networks={networks}"
    words = [word for setting in (*axes, *SETTINGS, *OBJECTIVES[objective]) for word in ("--set", setting)]
    said = main("run", "flickr8k", *words, "--root", f"{data}={places[data]}", "--here", "--mlflow-uri", "")
    found = sorted(path for path in runs.glob("trials/*/trace.parquet") if f"_{recipe}_{objective}_" in str(path))
    if os.environ.get("GOLDEN_SAYS"):
        sys.stderr.write(f"{recipe} {objective} {networks}\n{said}\n")
    if not found:
        return "refused"
    values = pq.read_table(found[0]).column("loss").to_pylist()
    return " ".join(f"{value:.17g}" if os.environ.get("GOLDEN_EXACT") else f"{value:.5g}" for value in values)


if __name__ == "__main__":
    for line in lines(sys.argv[1:2] or recipes(), sys.argv[2:] or OBJECTIVES):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
