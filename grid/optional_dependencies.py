"""Optional packages: the extra of goalgrid that installs each, and the error if one is missing."""

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
"""For each package, the extra that installs it, and its module, which is only imported after `require`."""


def missing(packages: Collection[str]) -> list[str]:
    """Return a message with the extra for each missing package; packages without an extra count as installed."""
    return [
        f"{package}, which is not installed here: pip install 'goalgrid[{extra}]'"
        for package, (extra, module) in EXTRAS.items()
        if package in packages and find_spec(module) is None
    ]


def require(reader: str, *packages: str) -> None:
    """Raise a UserError if an optional package is missing; `reader` names in the message what needs it."""
    if lacking := missing(packages):
        raise UserError(f"{reader} needs {lacking[0]}.")
