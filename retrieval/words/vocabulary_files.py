"""Published vocabulary files: VSE++'s pickle and VSE-infinity's JSON."""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError, parsed_json, regular_bytes, several


class _TheirVocabulary:
    """A pickled vocabulary of VSE++, reduced to its attributes."""

    word2idx: Any = None


class _Restricted(pickle.Unpickler):
    """Unpickles vocabularies of VSE++, and refuses everything else that a pickle may reference or call."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "Vocabulary":
            return _TheirVocabulary
        if module in ("__builtin__", "builtins") and name == "object":
            return object
        if module in ("copy_reg", "copyreg") and name == "_reconstructor":
            return _reconstructed
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not part of a vocabulary and was not run")


def _reconstructed(kind: type, base: type, state: object) -> object:
    """Reconstruct an object pickled by Python 2 without arguments."""
    if (kind, base, state) != (_TheirVocabulary, object, None):
        raise pickle.UnpicklingError("it contains something other than a vocabulary")
    return _TheirVocabulary()


def read(path: Path) -> list[str]:
    """Read the words of a vocabulary, in index order; raises UserError if the file is not a vocabulary."""
    try:
        content = regular_bytes(path)
        if path.suffix == ".json":
            index = parsed_json(content)["word2idx"]
        else:
            index = _Restricted(BytesIO(content), encoding="utf-8").load().word2idx
    except FileNotFoundError:
        raise UserError(
            f"no vocabulary at {path}. A vocabulary file maps each word to its index, e.g. VSE++'s "
            "vocab/f30k_precomp_vocab.pkl, or SCAN's vocab/f30k_precomp_vocab.json. dataset.vocabulary is its path in "
            "the folder of the data set."
        ) from None
    except Exception as error:  # of bytes that are no pickle, its reader raises whatever it meets
        raise UserError(f"the vocabulary {path} cannot be read: {type(error).__name__}: {error}.") from error
    if not isinstance(index, dict) or not all(isinstance(word, str) for word in index):
        raise UserError(f"the vocabulary {path} has no word2idx that maps each word to an index.")
    problems = [f"it lacks the word {word}" for word in ("<pad>", "<unk>", "<start>", "<end>") if word not in index]
    if sorted(index.values(), key=str) != sorted(range(len(index)), key=str):
        problems.append(f"its indices are not 0 to {len(index) - 1}, each once")
    elif index.get("<pad>", 0) != 0:
        problems.append(f"<pad> has index {index['<pad>']}, not 0")
    if problems:
        raise several(f"the vocabulary {path}", problems)
    return sorted(index, key=index.__getitem__)
