"""Packages that only some grids need: the extra of goalgrid that brings each, and an error where it is not here."""

from collections.abc import Collection
from importlib.util import find_spec

from goalgrid.grid.errors import UserError

EXTRAS = {
    "transformers": ("pretrained", "transformers"),
    "sentencepiece": ("pretrained", "sentencepiece"),
    "scikit-learn": ("ncr", "sklearn"),
    "nltk": ("nltk", "nltk"),
    "wandb": ("wandb", "wandb"),
    "h5py": ("video", "h5py"),
    "eccv_caption": ("eccv", "eccv_caption"),
}
"""By package: the extra that installs it, and its module, which is imported where it is needed, after `require`."""


def missing(packages: Collection[str]) -> list[str]:
    """Return a message for each package that is not installed, naming its extra; packages without extra always are."""
    return [
        f"{package}, which is not installed here: pip install 'goalgrid[{extra}]'"
        for package, (extra, module) in EXTRAS.items()
        if package in packages and find_spec(module) is None
    ]


def require(reader: str, *packages: str) -> None:
    """Raise a UserError if a package of an extra is not installed; `reader` says for a user what needs it."""
    if lacking := missing(packages):
        raise UserError(f"{reader} needs {lacking[0]}.")
