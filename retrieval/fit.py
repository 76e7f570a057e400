"""Whether a model can be trained on a copy of a data set: told by what the copy holds, before any of it is opened.

`plan` and `run` ask the same function. This module loads no torch.
"""

from pathlib import Path

from goalgrid.grid import catalog, protocols
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import DatasetSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.data.content import Content, check_form
from goalgrid.retrieval.splits.pairs import DataError


def check_fit(
    dataset: DatasetSettings, model: ModelSettings, root: Path | None, held: Content, *, allow_leak: bool
) -> None:
    """Check that a copy of a data set has what the model reads, and what the protocol and the settings demand.

    Args:
        held: what the copy under this root holds.
        allow_leak: whether test images may stand in the training split.

    Raises:
        UserError: it has not; says why.
    """
    check_form(dataset.name, root, model.image.view, model.image.reads)
    if held.leaks and not allow_leak:
        raise DataError(f"{held.leaks[0]} If it must be: --allow-leak; then records say it.")
    check_sizes(dataset, held)


def check_sizes(dataset: DatasetSettings, held: Content) -> None:
    """Check that a copy of a data set has as many images as the protocol and the settings demand.

    Raises:
        UserError: it has not; says why.
    """
    name, images = dataset.name, {split: number for split, number, _ in held.sizes}
    check_protocol(images["test"], name, dataset.protocol)
    if (wanted := dataset.train_images) and wanted > images["train"]:
        raise UserError(
            f"dataset.train_images = {wanted:,}: the train split of {name!r} has {images['train']:,} images."
        )


def check_protocol(images: int, dataset: str, protocol: str) -> None:
    """Hold the number of test images against the evaluation protocol.

    Raises:
        DataError: there are fewer or more than the protocol demands, so its numbers would not be the protocol's.
    """
    wanted = protocols.protocol(protocol).images
    if wanted is None or images == wanted:
        return
    partial, noun = catalog.dataset(dataset).partial, f"{catalog.noun(dataset)}s"
    missing = next((part.missing for part in partial if (part.split, part.images) == ("test", images)), "")
    check = f"See what is wrong with it: goalgrid data check {dataset} --root DIR"
    reason = f"What is missing: {missing}" if missing else check
    raise DataError(
        f"the test split of {dataset!r} has {images:,} {noun}; protocol {protocol!r} demands {wanted:,}. {reason}. "
        f'To evaluate on what is there, give the data a name of its own: datasets = ["my-{dataset}"] with '
        f"[data.my-{dataset}] root = ..."
    )
