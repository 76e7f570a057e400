"""[evaluate]: further evaluations of finished trials, in addition to their own protocols; trial ids do not change."""

from pydantic import Field

from goalgrid.grid import catalog
from goalgrid.grid.protocols import ECCV
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.base import Name, Settings


class Evaluate(Settings):
    """[evaluate]: further evaluations of the best checkpoint of every finished trial."""

    protocols: list[str] = Field(
        default=[],
        description="eccv: also evaluate COCO by ECCV Caption and CxC; any other: evaluate `datasets` only by these "
        "protocols",
    )
    datasets: list[Name] = Field(
        default=[],
        description="further data sets: every model trained on another data set is also evaluated on their test splits",
    )

    @property
    def names(self) -> list[str]:
        """The protocols of all further evaluations; a finished trial may still lack them."""
        return [
            *([ECCV] if ECCV in self.protocols else []),
            *(name for data in self.datasets for name in self._on(data)),
        ]

    def of(self, settings: TrialSettings) -> dict[str, list[str]]:
        """Return the further protocols of a trial, by data set; none for an ensemble, which has no weights."""
        trained_on, by_dataset = settings.dataset.name, dict[str, list[str]]()
        for name in dict.fromkeys([trained_on, *self.datasets]) if not settings.ensemble else ():
            judged = ECCV in self.protocols and name == "coco" and not settings.model.rerank_k
            if protocols := [*(self._on(name) if name != trained_on else ()), *([ECCV] if judged else ())]:
                by_dataset[name] = protocols
        return by_dataset

    def _on(self, dataset: str) -> list[str]:
        """The requested protocols of a data set; all of them if none of its protocols is requested."""
        known = catalog.protocols(dataset)
        return [name for name in known if name in self.protocols] or known


def moved(settings: TrialSettings, dataset: str) -> TrialSettings:
    """Return a trial's settings with the test split replaced by another data set's; unchanged for the trial's own."""
    if dataset == settings.dataset.name:
        return settings
    other = {"name": dataset, "protocol": catalog.protocols(dataset)[0], "vocabulary": None, "train_images": None}
    return settings.model_copy(update={"dataset": settings.dataset.model_copy(update=other)})
