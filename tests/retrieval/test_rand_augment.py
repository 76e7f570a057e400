"""RandAugment beside a literal version, pixel by pixel; and what is drawn."""

import math
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import images
from goalgrid.retrieval.data.images import CHANGES, pixels_of, rand_augmented

Pixels = np.ndarray
HEIGHT, WIDTH = 17, 23
PICTURE = np.random.default_rng(0).integers(20, 200, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def sampled(x: float, y: float, channel: int) -> float:
    """Between the four pixels around a point; at the edge the nearest; grey beyond half a pixel outside."""
    if not (-0.5 <= x < WIDTH - 0.5 and -0.5 <= y < HEIGHT - 0.5):
        return 128
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            near = PICTURE[min(max(row, 0), HEIGHT - 1), min(max(column, 0), WIDTH - 1), channel]
            total += near * (1 - abs(x - column)) * (1 - abs(y - row))
    return total


def source(name: str, x: int, y: int, way: float) -> tuple[float, float]:
    """Where the pixel (x, y) of the changed picture was."""
    if name == "rotate":
        turn, middle_x, middle_y = math.radians(-21 * way), (WIDTH - 1) / 2, (HEIGHT - 1) / 2
        right, down = x - middle_x, y - middle_y
        return (
            middle_x + right * math.cos(turn) + down * math.sin(turn),
            middle_y - right * math.sin(turn) + down * math.cos(turn),
        )
    return {
        "identity": (x, y),
        "shear-x": (x - 0.21 * way * y, y),
        "shear-y": (x, y - 0.21 * way * x),
        "translate-x": (x + 7 * way, y),
        "translate-y": (x, y + 7 * way),
    }[name]


def levels(name: str, x: int, y: int, channel: int) -> float:
    """The new value of a pixel, for changes that move nothing."""
    value, all_values = float(PICTURE[y, x, channel]), PICTURE[..., channel].flatten().tolist()
    if name == "brightness":
        return min(255.0, int(value * 1.36))
    if name == "autocontrast":
        return (value - min(all_values)) * 255 / (max(all_values) - min(all_values))
    if name == "equalize":
        step = (len(all_values) - all_values.count(max(all_values))) // 255
        return min(255, (step // 2 + sum(other < value for other in all_values)) // step)
    if x in (0, WIDTH - 1) or y in (0, HEIGHT - 1):
        return value
    around = sum(float(PICTURE[y + j, x + i, channel]) for i in (-1, 0, 1) for j in (-1, 0, 1))
    smooth = (around + 4 * value) / 13
    return min(255.0, max(0.0, smooth + 1.36 * (value - smooth)))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_equals_the_literal_version(name: str) -> None:
    moves = name == "identity" or name.startswith(("shear", "translate", "rotate"))
    for way in (1.0, -1.0) if moves else (1.0,):
        ours = np.array(CHANGES[name](Image.fromarray(PICTURE), way)).astype(float)
        literal = np.array([
            [
                [sampled(*source(name, x, y, way), c) if moves else levels(name, x, y, c) for c in range(3)]
                for x in range(WIDTH)
            ]
            for y in range(HEIGHT)
        ])  # fmt: skip
        assert np.abs(ours - literal).max() <= 2  # rounding to whole values, and of sines


def test_two_changes_are_drawn_and_half_of_them_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[str, float]]()
    noted = {name: lambda picture, way, name=name: made.append((name, way)) or picture for name in CHANGES}
    monkeypatch.setattr(images, "CHANGES", noted)
    for seed in range(2000):
        rand_augmented(Image.fromarray(PICTURE), np.random.default_rng(seed))
    assert len(made) == pytest.approx(2000, rel=0.05)
    counts = Counter(name for name, _ in made)
    assert all(counts[name] == pytest.approx(200, rel=0.25) for name in CHANGES)
    assert sum(way for _, way in made) == pytest.approx(0, abs=150)


def test_a_training_view_is_changed_after_crop_and_mirror() -> None:
    view, picture = View(16, "square", "rand-augment", flip=True), Image.fromarray(PICTURE)
    assert pixels_of(picture, view, np.random.default_rng(3)).shape == (16, 16, 3)
    views = {pixels_of(picture, view, np.random.default_rng(seed)).tobytes() for seed in range(5)}
    assert len(views) == 5
    evaluated = pixels_of(picture, view)
    assert (evaluated == np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR))).all()
