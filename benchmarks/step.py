"""What a training step spends beside its arithmetic: `python benchmarks/step.py --root DIR`.

DIR holds Flickr8k's features as docs/flickr8k.md says. Of each recipe, one epoch is trained in a folder of its own; a
whole step is the CPU time from one beat of the trainer to the next, with reading, clipping, the optimiser and every
check in it. Arithmetic is what the encoders and the objective take on ten batches read before, forward and backward,
and Adam's update of all weights, which is a single call of torch. Both alternate in one process on one thread, medians
over steps; parts of the rest are measured alone afterwards. A recipe that warms up on all negatives does not here, as
most of its epochs do not.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
from torch import nn

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training.inputs import Batch, batches, prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer

SHARE = 0.85
WARMING = 5
"""First steps, which take longer and are not counted."""


class Timed:
    """Takes the time between beats, and after each that of the arithmetic alone; ends after so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self.last = steps, 0.0
        self.whole, self.bare = list[float](), list[float]()
        self.work: Callable[[], object] = lambda: None

    def begin(self, step: int) -> None:
        self.last = time.process_time()

    def beat(self, step: int) -> bool:
        self.whole.append(time.process_time() - self.last)
        self.bare.append(measuring.cpu_seconds(self.work))
        self.last = time.process_time()
        return step >= self.steps


def arithmetic(trainer: Trainer, batch: Batch) -> None:
    """The encoders and the objective, forward and backward."""
    trainer.optimizer.zero_grad(set_to_none=True)
    image = trainer.model.embed_images(batch.images)
    text = trainer.model.embed_texts(*batch.tokens)
    trainer.objective(image, text, batch.owners).backward()


def updated(trainer: Trainer, batch: Batch) -> None:
    """The same, and Adam's update, which moves nothing: its rate is 0."""
    arithmetic(trainer, batch)
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0
    trainer.optimizer.step()
    for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def shares(dataset: str, recipe: str, root: Path | None, steps: int) -> list[str]:
    preset = "demo" if dataset == "shapes" else dataset
    roots = [f"{dataset}={root}"] if root else []
    words = [f'recipes=["{recipe}"]', 'objectives=["sig-ms_cir"]', "seeds=[0]", "train.warmup_epochs=0"]
    trial = trials_of(expand(load(preset, words, roots=roots)))[0]
    with tempfile.TemporaryDirectory() as folder, suppress(Preempted):
        machine = Machine(roots=((dataset, str(root)),) if root else (), features=Path(folder) / "features")
        inputs = prepare(trial.settings, machine)
        epoch, timed = batches(trial.settings, inputs, 0), Timed(steps)
        read = cycle([batch for _, batch in islice(epoch.since(0), 10)])
        trainer = Trainer(
            trial.settings, inputs, TrialFolder(Path(folder)), hooks=Hooks(begin=timed.begin, beat=timed.beat)
        )
        timed.work = lambda: updated(trainer, next(read))
        trainer.fit()
    whole, bare = (statistics.median(times[WARMING:]) for times in (timed.whole, timed.bare))
    parameters = list(trainer.model.parameters())
    parts = {
        "optimiser": lambda: trainer.optimizer.step(),
        "norm and clipping": lambda: nn.utils.clip_grad_norm_(parameters, 2.0),
    }
    each = measuring.interleaved(parts, 20)
    each["reading a batch"] = measuring.cpu_seconds(lambda: list(epoch.since(0))) / len(epoch)
    share = bare / whole
    name = f"{recipe} on {dataset}"
    whole_row = measuring.row(
        f"a step of {name}",
        f"{1e3 * whole:.2f} ms",
        limit=f"{1e3 * bare:.2f} ms, encoders, objective and Adam",
        ratio=f"{share:.2f}",
        goal=f">= {SHARE:.2f}",
        met=share >= SHARE,
    )
    return [whole_row] + [
        measuring.row(f"a step of {name}: {part}", f"{1e3 * value:.2f} ms", ratio=f"{value / whole:.2f}")
        for part, value in each.items()
    ]


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="of Flickr8k; without it, the embedded scenes alone")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    Machine().begin()
    measuring.begin("torch", note="1 thread")
    for dataset, recipe in (
        ("flickr8k", "fc-gru"),
        ("flickr8k", "fc-bow"),
        ("shapes", "cnn-bow"),
        ("shapes", "frozen-bow"),
    ):
        if dataset == "shapes" or given.root:
            root = None if dataset == "shapes" else given.root
            measuring.show(shares(dataset, recipe, root, given.steps))


if __name__ == "__main__":
    main()
