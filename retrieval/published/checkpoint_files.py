"""Read published checkpoint files without running code from their pickles: tensors, plain values and options."""

import argparse
import errno
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError, check_fetched, in_short, sha256_of

_scalar = np.float64(0).__reduce__()[0]
"""Function that builds a NumPy number from a pickle."""

PARTS = ("img_enc", "txt_enc", "sim_enc")
"""Names of the state dicts in a list, in the order in which VSE++ and its successors save them."""

ALLOWED: tuple[Any, ...] = (
    argparse.Namespace,
    np.dtype,
    type(np.dtype(np.float64)),
    type(np.dtype(np.float32)),
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
)
"""Objects a pickle may refer to in addition to tensors and plain values: options, and a NumPy number for rsum."""


@dataclass(frozen=True, eq=False)
class CheckpointFile:
    """Contents of a checkpoint file.

    Args:
        weights: tensors by their published name, prefixed by their part: `img_enc.fc.weight`.
        options: command-line options of its training, by name; empty if it has none.
        digest: SHA-256 of the file.
        facts: the epoch and the validation rsum stored in it.
    """

    path: Path
    weights: Mapping[str, Tensor]
    options: Mapping[str, Any]
    digest: str
    facts: Mapping[str, int | float]

    @classmethod
    def read(cls, path: Path) -> "CheckpointFile":
        """Read a file that `torch.save` wrote.

        Raises UserError if the file is damaged, refers to code (unsafe to unpickle), or contains no weights.
        """
        try:
            check_fetched(path)
            digest = sha256_of(path)
            with torch.serialization.safe_globals(list(ALLOWED)), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other versions of pickles: what cannot be read is an error
                content = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            if error.errno == errno.EINVAL and not error.filename:  # torch looks for the end of a file cut short
                raise UserError(f"the checkpoint {path} {_cut(path)}.") from error
            raise UserError(f"the checkpoint {path} cannot be read: {error.strerror or error}.") from error
        except pickle.UnpicklingError as error:
            raise UserError(f"the checkpoint {path} cannot be read: {_refused(error)}") from error
        except Exception as error:  # of bytes that are no pickle, its reader raises whatever it meets
            if "TorchScript" in str(error):
                raise UserError(
                    f"the checkpoint {path} is a program of TorchScript, which is not run. If you trust the file, save "
                    f"its weights alone: torch.save(torch.jit.load({str(path)!r}, 'cpu').state_dict(), 'weights.pt')."
                ) from error
            why = (
                "" if isinstance(error, EOFError | KeyError) or "zip archive" in str(error) else f" ({in_short(error)})"
            )
            raise UserError(f"the checkpoint {path} {_cut(path)}{why}.") from error
        entries = content if isinstance(content, dict) else {}
        weights = _flat(entries.get("model", entries.get("state_dict", content)))
        if not weights:
            raise UserError(
                f"{path} holds no weights: the peers' files have a list of state dicts under 'model'. Is it a file of "
                "features, or an optimiser's state?"
            )
        named = (entries[key] for key in ("opt", "args") if isinstance(entries.get(key), argparse.Namespace))
        options = next((dict(vars(namespace)) for namespace in named), {})
        progress = {"epoch": entries.get("epoch"), "its validation rsum": entries.get("best_rsum", entries.get("rsum"))}
        facts = {name: round(value, 2) for name, value in progress.items() if isinstance(value, int | float)}
        return cls(path, weights, options, digest, facts)

    @classmethod
    def known(cls, digest: str, places: Mapping[str, str]) -> "CheckpointFile":
        """Read the file with this hash, `sha256:...`, from its path in `places`; raises UserError if it is missing."""
        if digest not in places:
            raise UserError(f"train.starts_from = {digest!r}: its file is unknown. Name it: file:PATH.")
        file = cls.read(Path(places[digest]))
        if f"sha256:{file.digest}" != digest:
            raise UserError(
                f"train.starts_from: {file.path} is another file than the grid was made with ({digest[:19]}... -> "
                f"sha256:{file.digest[:12]}...). Put the former file back, or name this file: file:{file.path}."
            )
        return file


def _flat(model: Any) -> dict[str, Tensor]:
    """Return the weights by name, prefixed by their part if there are several; DataParallel's `module` is removed."""
    parts = dict(zip((f"{part}." for part in PARTS), model, strict=False)) if isinstance(model, list) else {"": model}
    if isinstance(model, Mapping):
        parts |= {f"{name}.": part for name, part in model.items() if isinstance(part, Mapping)}
    return {
        ".".join(word for word in f"{prefix}{name}".split(".") if word != "module"): value
        for prefix, part in parts.items()
        if isinstance(part, Mapping)
        for name, value in part.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }


def _refused(error: pickle.UnpicklingError) -> str:
    if named := re.search(r"GLOBAL (\S+)", str(error)):
        return f"its pickle names {named[1].rstrip('.')}, which does not belong in a checkpoint; it was not run."
    return "it is damaged, or torch.save did not write it."


def _cut(path: Path) -> str:
    return f"of {path.stat().st_size:,} bytes is damaged or half downloaded; fetch it again"
