"""The work that is left of a grid, in units that do not depend on the machine: trials, epochs, steps, views."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.errors.wording import counted
from goalgrid.grid.expansion import Trial
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import TrialFolder
from goalgrid.reading.overview import Overview


@dataclass(frozen=True)
class RecipeWork:
    """The work that is left of a recipe on a data set.

    Args:
        epochs: of a trial; 0: an ensemble, which trains nothing.
        steps: of an epoch; None: the size of the data set is not known before it is opened.
        views: that a frozen backbone has to see once, for all trials together.
        after: the recipes of its members, or the recipe that this recipe starts from.
    """

    dataset: str
    recipe: str
    trials: int
    epochs: int
    steps: int | None
    views: int | None
    after: tuple[str, ...]

    @property
    def all_steps(self) -> int | None:
        return None if self.steps is None else self.trials * self.epochs * self.steps

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "all_steps": self.all_steps}

    def line(self) -> str:
        """`45 x vsepp-r152 on coco: 30 epochs of 4,426 steps, 5,975,100 together; its backbone sees ... views`."""
        names = " and ".join(filter(None, [", ".join(self.after[:-1]), *self.after[-1:]]))
        after = f", each after its {names}" if names else ""
        if not self.epochs:
            return f"{self.trials} x {self.recipe} on {self.dataset}{after}: trains nothing"
        epochs = counted(self.epochs, "epoch")
        steps = f" of {self.steps:,} steps, {self.all_steps:,} together" if self.steps is not None else ""
        views = f"; its backbone sees {self.views:,} views, once for all" if self.views else ""
        return f"{self.trials} x {self.recipe} on {self.dataset}{after}: {epochs}{steps}{views}"


def work_of(overview: Overview, trials: Iterable[Trial]) -> list[RecipeWork]:
    """The work of training these trials, by data set, recipe and number of epochs, parents first."""
    groups: dict[tuple[str, str, int], list[Trial]] = {}
    for trial in trials:
        shared = trial.shared
        groups.setdefault((shared.dataset.name, shared.recipe, trial.epochs), []).append(trial)
    return [_work(overview, *key, members) for key, members in groups.items()]


def reached(folder: TrialFolder) -> tuple[int, int]:
    """Epochs and steps behind a trial's last checkpoint, as far as they are known without opening it."""
    if not (folder.last_checkpoint.exists() or folder.previous_checkpoint.exists()):
        return 0, 0
    row = folder.last_row() or {"epoch": 0, "step": 0}
    latest = folder.latest()
    stopped = latest is not None and latest.outcome() == Failure.PREEMPTED  # that leaves a checkpoint, a death does not
    step = latest.step() if latest and stopped else 0
    return int(row["epoch"]), max(int(row["step"]), step)


def views_of(network: BackboneSettings, sizes: dict[str, tuple[int, int]]) -> int:
    """Pictures that a frozen backbone has to see, of images and captions by split."""
    return int(network.crops) * sizes["train"][0] + sizes["val"][0] + sizes["test"][0]


def _work(overview: Overview, dataset: str, recipe: str, epochs: int, trials: list[Trial]) -> RecipeWork:
    shared, after = trials[0].shared, catalog.recipe(recipe).parents
    if not epochs:
        return RecipeWork(dataset, recipe, len(trials), 0, 0, None, after)
    network, sizes, views = shared.model.image.feature_network, overview.data.sizes(shared), None
    if sizes and network:
        views = views_of(network, sizes)
    steps = overview.data.epoch_steps(shared)
    return RecipeWork(dataset, recipe, len(trials), epochs, steps, views, after)
