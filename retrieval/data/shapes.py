"""`shapes`: rendered scenes of two coloured shapes with five captions each, generated in a second, deterministically.

Each caption mentions other facts and omits some (a size, a colour, the relation), and the captions of different scenes
share most of their words, so that retrieval is possible but never trivial.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image, ImageDraw
from torch import Tensor

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data.images import pixels_of, planes
from goalgrid.retrieval.splits.pairs import WHOLE, Pairs, Split

SPLITS = {"train": 1000, "val": 250, "test": 500}

COLOURS = {
    "red": (214, 39, 40), "green": (44, 160, 44), "blue": (31, 119, 214), "yellow": (240, 220, 30),
    "orange": (255, 127, 14), "purple": (148, 60, 200), "pink": (247, 150, 200), "white": (245, 245, 245),
}  # fmt: skip
GROUNDS = {"black": (10, 10, 10), "grey": (110, 110, 110), "brown": (110, 70, 40)}
SHAPES = {"circle": "disc", "square": "box", "triangle": "wedge", "diamond": "rhombus", "cross": "plus"}
"""Synonym of each shape."""
SIZES = {"small": "tiny", "large": "big"}
RELATIONS = {"left": ("left of", "right of"), "above": ("above", "below")}
"""Wording of each relation, forwards and backwards."""

_CANVAS = 96


@dataclass(frozen=True)
class SceneObject:
    """One shape in a scene."""

    colour: str
    shape: str
    size: str


@dataclass(frozen=True)
class Scene:
    """A scene of two objects; `relation` says whether the first is left of the second, or above it."""

    first: SceneObject
    second: SceneObject
    relation: str
    ground: str
    jitter: tuple[float, ...]


class RenderedImages:
    """All scenes of a split, rendered to pixels."""

    def __init__(self, scenes: list[Scene], view: View) -> None:
        self.scenes, self.view = scenes, view

    @cached_property
    def pixels(self) -> UInt8[Tensor, "n 3 h w"]:
        """Pixels of all scenes, rendered on first use, because a launch opens all data sets without reading images."""
        small = [_canvas(scene).resize(self.shape[1:], Image.Resampling.BOX) for scene in self.scenes]
        return torch.stack([planes(np.array(image)) for image in small]).contiguous()

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.view.size, self.view.size

    def __len__(self) -> int:
        return len(self.scenes)

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> UInt8[Tensor, "p 3 h w"]:
        if draw is None or not self.view.random:
            return self.pixels[torch.from_numpy(rows[part])]
        row_draws = ((rows[place], np.random.default_rng([draw, place])) for place in range(len(rows))[part])
        return torch.stack([planes(pixels_of(_canvas(self.scenes[row]), self.view, rng)) for row, rng in row_draws])


def load(view: View) -> Pairs:
    return Pairs(*(_split(seed, count, view) for seed, count in enumerate(SPLITS.values())))


def _split(seed: int, count: int, view: View) -> Split:
    rng = np.random.default_rng([20221204, seed])
    scenes = [_scene(rng) for _ in range(count)]
    captions = [caption for scene in scenes for caption in describe(scene, rng)]
    return Split(RenderedImages(scenes, view), captions, np.repeat(np.arange(count), 5))


def _scene(rng: np.random.Generator) -> Scene:
    colours = rng.choice(list(COLOURS), size=2, replace=False)
    first, second = (
        SceneObject(str(colour), str(rng.choice(list(SHAPES))), str(rng.choice(list(SIZES)))) for colour in colours
    )
    jitter = tuple(rng.uniform(-0.07, 0.07, size=4))
    relation, ground = str(rng.choice(list(RELATIONS))), str(rng.choice(list(GROUNDS)))
    return Scene(first, second, relation, ground, jitter)


def describe(scene: Scene, rng: np.random.Generator) -> list[str]:
    """Write five different captions, each of which mentions some of the facts."""
    a, b = scene.first, scene.second
    forward, backward = RELATIONS[scene.relation]
    nouns = {shown: str(rng.choice([shown.shape, SHAPES[shown.shape]])) for shown in (a, b)}
    sizes = {shown: str(rng.choice([shown.size, SIZES[shown.size]])) for shown in (a, b)}
    return [
        f"a {sizes[a]} {a.colour} {nouns[a]} {forward} a {sizes[b]} {b.colour} {nouns[b]}",
        f"there is a {b.colour} {nouns[b]} {backward} a {a.colour} {nouns[a]}",
        f"a {nouns[a]} and a {sizes[b]} {nouns[b]} on a {scene.ground} background, one of them is {b.colour}",
        f"on {scene.ground}, something {a.colour} and {sizes[a]} stands {forward} a {nouns[b]}",
        f"the picture shows one {a.colour} and one {b.colour} shape, the {b.colour} one is a {sizes[b]} {b.shape}",
    ]


def _canvas(scene: Scene) -> Image.Image:
    canvas = Image.new("RGB", (_CANVAS, _CANVAS), GROUNDS[scene.ground])
    draw = ImageDraw.Draw(canvas)
    places = (0.28, 0.5, 0.72, 0.5) if scene.relation == "left" else (0.5, 0.28, 0.5, 0.72)
    moved = [place + jitter for place, jitter in zip(places, scene.jitter, strict=True)]
    _draw(draw, scene.first, *moved[:2])
    _draw(draw, scene.second, *moved[2:])
    return canvas


def _draw(draw: ImageDraw.ImageDraw, shown: SceneObject, x: float, y: float) -> None:
    x, y = x * _CANVAS, y * _CANVAS
    r = _CANVAS * (0.20 if shown.size == "large" else 0.11)
    arm = r * 0.4
    outlines = {
        "square": [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)],
        "triangle": [(x, y - r), (x + r, y + r), (x - r, y + r)],
        "diamond": [(x, y - r), (x + r, y), (x, y + r), (x - r, y)],
    }
    fill = COLOURS[shown.colour]
    if shown.shape == "circle":
        draw.ellipse([x - r, y - r, x + r, y + r], fill=fill)
    elif shown.shape == "cross":
        draw.rectangle([x - r, y - arm, x + r, y + arm], fill=fill)
        draw.rectangle([x - arm, y - r, x + arm, y + r], fill=fill)
    else:
        draw.polygon(outlines[shown.shape], fill=fill)
