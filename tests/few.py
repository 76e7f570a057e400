"""A few pictures with captions and features in Flickr8k's layout, made from scenes of `shapes`."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import shapes

SIDE, CELLS, WIDTH = 72, 3, 512
"""Pixels of a picture's side, cells along it that have a feature each, and values of a feature."""
COUNTS = {"train": ("train", 40), "val": ("dev", 12), "test": ("test", 12)}
"""Names of the splits in `precomp/`, and how many pictures they have."""


def write(root: Path) -> None:
    """Write `dataset.json`, `images/` and `precomp/`, of which a model can learn."""
    for folder in ("images", "precomp"):
        (root / folder).mkdir()
    entries, pairs = list[dict[str, object]](), shapes.load(View(SIDE))
    draws = np.random.default_rng(0).normal(size=((SIDE // CELLS) ** 2 * 3, WIDTH)).astype(np.float32)
    for split, (precomp, count) in COUNTS.items():
        pixels = pairs.splits[split].images.gather(np.arange(count)).permute(0, 2, 3, 1).numpy()
        captions = [caption.capitalize() + " ." for caption in pairs.splits[split].captions[: 5 * count]]
        numbers = range(len(entries), len(entries) + count)
        for picture, number in zip(pixels, numbers, strict=True):
            own = captions[5 * (number - numbers[0]) :][:5]
            name = f"{10**9 + 7919 * number}_{number:04x}.jpg"
            Image.fromarray(picture).save(root / "images" / name, quality=95)
            sentences = [
                {"tokens": words(text), "raw": text, "imgid": number, "sentid": 5 * number + place}
                for place, text in enumerate(own)
            ]
            ids = [5 * number + place for place in range(5)]
            entries.append({"filename": name, "split": split, "sentences": sentences, "imgid": number, "sentids": ids})
        side = SIDE // CELLS
        cells = pixels.reshape(count, CELLS, side, CELLS, side, 3).transpose(0, 1, 3, 2, 4, 5).reshape(count, 9, -1)
        features = np.maximum((cells / 255.0 - 0.5) @ draws, 0).astype(np.float16)
        np.save(root / "precomp" / f"{precomp}_ims.npy", features)
        (root / "precomp" / f"{precomp}_caps.txt").write_text("".join(f"{text}\n" for text in captions))
        (root / "precomp" / f"{precomp}_ids.txt").write_text("".join(f"{number}\n" for number in numbers))
    (root / "dataset.json").write_text(json.dumps({"images": entries, "dataset": "few"}))


def words(caption: str) -> list[str]:
    """Lower-case words without punctuation, as Karpathy's file has them."""
    return caption.lower().replace(",", "").removesuffix(" .").split()
