"""Faults of captions and of their image ids, as text files and JSON carry them."""

import re
from collections.abc import Sequence

from retrieval.splits.problems import Problem, counted, repeated

BYTES = re.compile(r"""^b(['"]).*\1$""")
"""What python 2 code leaves when python 3 runs it: the text of a bytes object."""


def of_captions(captions: Sequence[str], place: str) -> list[Problem]:
    """Empty captions, and captions that are the text of python bytes.

    >>> [problem.what for problem in of_captions(["a dog", " ", "b'a cat'"], "train_caps.txt")]
    ['1 caption is empty, the first is number 2', "1 caption looks like python bytes, the first is number 3: b'a cat'"]
    """
    problems = []
    empty = [number for number, caption in enumerate(captions, 1) if not caption.strip()]
    if empty:
        verb = "is" if len(empty) == 1 else "are"
        what = f"{counted(len(empty), 'caption')} {verb} empty, the first is number {empty[0]}"
        problems.append(Problem(place, what, "Fill them in, or take the file from its source: each is a query."))
    bytes_ = [number for number, caption in enumerate(captions, 1) if BYTES.match(caption.strip())]
    if bytes_:
        first = f"the first is number {bytes_[0]}: {captions[bytes_[0] - 1][:40]}"
        verb = "looks" if len(bytes_) == 1 else "look"
        what = f"{counted(len(bytes_), 'caption')} {verb} like python bytes, {first}"
        problems.append(Problem(place, what, "Write text, not bytes: caption.decode('utf-8') before it is saved."))
    return problems


def of_ids(ids: Sequence[str], captions: int, images: int, place: str) -> list[Problem]:
    """Ids whose number fits neither images nor captions, that stand twice, or whose captions are apart."""
    if len(ids) not in (captions, images):
        what = f"has {len(ids)} ids, where there are {images} images and {captions} captions"
        return [Problem(place, what, "Expected one id an image or one a caption; take all files from one package.")]
    if len(ids) == images:
        twice = repeated(ids)
        what, fix = "given more than once", "Each image has one id; take the file from its package again."
    else:
        runs = [key for index, key in enumerate(ids) if index == 0 or ids[index - 1] != key]
        twice = repeated(runs)
        what = "with captions in lines that are not consecutive"
        fix = "Sort ids, captions and features alike: captions of one image stand together."
    return [Problem(place, f"{counted(len(twice), 'id')} {what}, the first is {twice[0]}", fix)] if twice else []
