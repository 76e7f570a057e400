"""Check whether a model can be trained on a copy of a data set. This module does not import torch."""

from pathlib import Path

from goalgrid.grid import catalog, protocols
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import DatasetSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.data import precomp
from goalgrid.retrieval.data.content import Content, check_form, package
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import check_command


def check_fit(
    dataset: DatasetSettings,
    model: ModelSettings,
    root: Path | None,
    content: Content,
    *,
    allow_leak: bool,
    chooses: bool,
) -> dict[str, str]:
    """Check a copy of a data set; return messages about leaks, notes and splits of unofficial size.

    Each message is mapped to its kind, `warning` or `note`. Raises UserError if the copy does not meet the requirements
    of model, protocol and settings, or has a leak that is not allowed.

    Args:
        allow_leak: whether test images may be in the training or validation split.
        chooses: whether validation is used for selection, of a checkpoint or of settings.
    """
    check_form(dataset.name, root, model.image.view, model.image.reads)
    if root and model.image.view is None and not model.image.reads:
        model.check_image(precomp.shape(package(dataset.name, root)))
    if (leaks := content.leaks(chooses=chooses)) and not allow_leak:
        raise DataError(f"{leaks[0]} To train anyway: --allow-leak (recorded).")
    check_sizes(dataset, content, root)
    odd = ((split, catalog.odd_size(dataset.name, split, *size)) for split, *size in content.sizes)
    return {
        **{str(problem): "note" if problem.kind == "remark" else "warning" for problem in content.problems},
        **{f"{split} split of {dataset.name!r}: {text}": "warning" for split, text in odd if text},
    }


def check_sizes(dataset: DatasetSettings, content: Content, root: Path | None) -> None:
    """Raise a UserError if a copy has too few images for the settings, or a wrong number for the protocol."""
    name, images = dataset.name, {split: number for split, number, _ in content.sizes}
    check_protocol(images["test"], name, dataset.protocol, root)
    if (train_images := dataset.train_images) and train_images > images["train"]:
        raise UserError(
            f"dataset.train_images = {train_images:,}: the train split of {name!r} has only {images['train']:,} images."
        )


def check_protocol(images: int, dataset: str, protocol: str, root: Path | None) -> None:
    """Raise a DataError if the number of test images is not what the evaluation protocol requires."""
    expected = protocols.protocol(protocol).images
    if expected is None or images == expected:
        return
    partial, noun = catalog.dataset(dataset).partial, f"{catalog.noun(dataset)}s"
    missing = next((part.missing for part in partial if (part.split, part.images) == ("test", images)), "")
    check = check_command(dataset, root.absolute() if root else "DIR")
    reason = f"What is missing: {missing}" if missing else f"Find out why: {check}"
    raise DataError(
        f"the test split of {dataset!r} has {images:,} {noun}; protocol {protocol!r} requires {expected:,}. {reason}. "
        f'To evaluate on the data you have, use a different data set name: datasets = ["my-{dataset}"] with '
        f"[data.my-{dataset}] root = ..."
    )
