"""Captions as the published code of a model prepares them, before they become words or word pieces."""

from collections.abc import Callable

from goalgrid.grid.errors import UserError

MOST_WORDS = 30
"""A longer caption is cut: X-VLM's max_words, and MMT's max_text_words."""

_DROPPED = dict.fromkeys(map(ord, ",.'!?\"()*#:;~"))
_BLANK = dict.fromkeys(map(ord, "-/"), " ")


def xvlm(caption: str) -> str:
    """Lower case, without punctuation, hyphens and slashes as blanks, `<person>` as a word. X-VLM, `pre_caption`.

    >>> xvlm("A man-made pond; <person>'s dog (black/white) swims.")
    'a man made pond persons dog black white swims'

    Raises:
        UserError: no word is left.
    """
    plain = caption.lower().translate(_DROPPED | _BLANK).replace("<person>", "person")
    words = plain.split()[:MOST_WORDS]
    if not words:
        raise UserError(
            f"caption {caption!r} has no word once its punctuation is removed, as X-VLM prepares captions. Take it out "
            "of the data, or set model.text.preparation = none."
        )
    return " ".join(words)


def mmt(caption: str) -> str:
    """Lower case, with a full stop where the caption ends without a mark. MMT, `tokenize_caption`.

    Its code makes the first letter a capital, and its tokenizer makes all letters small.

    >>> mmt("A man plays the guitar")
    'a man plays the guitar.'
    """
    cut = " ".join(caption.lower().split()[:MOST_WORDS])
    return cut if cut.endswith((".", "?", "!")) else f"{cut}."


PREPARATIONS: dict[str, Callable[[str], str]] = {"none": str, "x-vlm": xvlm, "mmt": mmt}
"""By `model.text.preparation`."""
