"""CONTRIBUTING.md is true: in a copy of the sources, only what its table names is touched, and what was added runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import swapped
from tests.program import ROOMS, ROOT, copied, put_before, put_into

pytestmark = pytest.mark.gate

Run = Callable[..., str]


@dataclass(frozen=True)
class Addition:
    """What a contributor adds.

    Args:
        row: of the table in CONTRIBUTING.md.
        edits: by file, pieces of text, each with the name before whose definition it is put; that of a dict in
            brackets: it is an entry of it; no name: it is a new file.
    """

    row: str
    edits: dict[str, list[tuple[str, str]]]

    def make(self, sources: Path) -> None:
        """Edit the sources."""
        for name, pieces in self.edits.items():
            file = sources / name
            file.parent.mkdir(exist_ok=True)
            for before, piece in pieces:
                assert file.exists() == bool(before), name
                if before.startswith("["):
                    put_into(before.strip("[]"), piece, file)
                elif before:
                    put_before(before, piece, file)
                else:
                    file.write_text(piece, encoding="utf-8")


LOSS = '''@objective(
    "mean-hinge",
    on="all",
    formula="mean over all negatives of [s_neg - s_pos + slack]+",
    source="a test",
    slack=Parameter(0.1, "by how much the positive is to lead"),
)
def mean_hinge(t: Triplets, *, slack: float) -> Float[Tensor, "*a 1"]:
    """Mean over the negatives of [s_neg - s_pos + slack]+; reports how many negatives it is given."""
    t.notes["given"] = t.exists.sum(-1).float().mean()
    return torch.relu(t.s_neg - t.s_pos + slack).sum(-1, keepdim=True) / t.exists.sum(-1, keepdim=True)


'''

TRIPLET_WEIGHT = '''@triplet_weight("half", source="a test", share=Parameter(0.5, "T itself"))
def half(t: Triplets, *, share: float) -> Float[Tensor, "*a k"]:
    """T = share, whatever the triplet."""
    return torch.full_like(t.s_neg, share)


'''

PAIR_WEIGHT = '''@pair_weight("square", source="a test", power=Parameter(2.0, "exponent"))
def square(t: Triplets, *, power: float) -> PairWeights:
    """P+ = (1 - s_pos)^power, P- = |s_neg|^power."""
    return (1 - t.s_pos).abs() ** power, t.s_neg.abs() ** power


'''

POOLING = '''def midrange(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Half the sum of the largest and the smallest value of each dimension."""
    return (maximum(values, present) - maximum(-values, present)) / 2


'''

ENCODERS = {
    "__init__": '''"""Linear maps of small pictures and of sets of words."""

from goalgrid.grid.settings.components import Component, register
from goalgrid.retrieval.components.small.settings import MaxBowSettings, ThumbnailSettings

register(Component("small", needs="", without="", settings=(ThumbnailSettings, MaxBowSettings)))
''',
    "settings": '''"""Settings of linear maps."""

from typing import ClassVar, Literal

from goalgrid.grid.settings.image_encoders import ImageEncoderSettings
from goalgrid.grid.settings.image_views import View
from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.grid.settings.text_encoders import WordSettings


class ThumbnailSettings(PoolingSettings, ImageEncoderSettings):
    """A linear map of the pixels of a small picture."""

    network: ClassVar[str] = "goalgrid.retrieval.components.small.networks:Thumbnail"
    encoder: Literal["thumbnail"]

    @property
    def view(self) -> View:
        return View(8)


class MaxBowSettings(WordSettings):
    """The largest of each dimension of the words' embeddings."""

    network: ClassVar[str] = "goalgrid.retrieval.components.small.networks:MaxBow"
    encoder: Literal["max-bow"]
''',
    "networks": '''"""Linear maps."""

import torch
from torch import nn

from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.retrieval.encoders.pooling import pooling


class Thumbnail(nn.Module):
    """A linear map of the pixels of a small picture, pooled over its rows."""

    def __init__(self, settings, shape, dim, places):
        super().__init__()
        self.project = nn.Linear(shape[0] * shape[2], dim)
        self.pool = pooling(settings, dim)

    def forward(self, images):
        rows = self.project((images.float() / 255 - 0.5).transpose(1, 2).flatten(2))
        return self.pool(rows, torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device))


class MaxBow(nn.Module):
    """Word embeddings, the largest of each dimension, then linear."""

    def __init__(self, settings, words, dim, places):
        super().__init__()
        self.embed = nn.Embedding(words, settings.word_dim, padding_idx=0)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.project = nn.Linear(settings.word_dim, dim)

    def forward(self, ids, lengths):
        present = torch.arange(ids.shape[1])[None] < lengths[:, None]
        return self.project(pooling(PoolingSettings(pooling="max"), 0)(self.embed(ids), present))
''',
}

RECIPE = """# Linear maps of small pictures and of sets of words. Not a published setting.
description = "what a test adds"
extends = "cnn-bow"

[model.image]
encoder = "thumbnail"
pooling = "midrange"

[model.text]
encoder = "max-bow"

[train]
batch_size = 250
"""

LAYOUT = '''"""One row an objective with its rsum alone."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts.rows import listing
from goalgrid.results.layouts.captions import TableSource
from goalgrid.results.layouts.captions import Layout
from goalgrid.results.tables import Table


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """The rows of `listing`, from the objective whose name comes last in the alphabet to the first."""
    return listing(sorted(cells, key=lambda cell: cell.objective, reverse=True), scores, asked)


LAYOUTS = {"backwards": Layout(layout)}
'''

FORMAT = '''"""A table as tab-separated lines."""

from goalgrid.results.tables import TextFormat
from goalgrid.results.tables import Table


def render(table: Table) -> str:
    """A line a row."""
    rows = [row for block in table.blocks for row in block.rows]
    return "".join("\\t".join([row.label.text, *(e.text if e else "" for e in row.entries)]) + "\\n" for row in rows)


TEXT_FORMAT = TextFormat("tsv", render)
'''

FIGURE = '''"""The number of objectives as a bar."""

from matplotlib.figure import Figure

from goalgrid.results.figures.study import FigureKind, Study


def draw(study: Study) -> Figure | None:
    """One bar."""
    figure = Figure()
    figure.subplots().bar(["objectives"], [len(study.part.cells)])
    return figure


FIGURE_KINDS = {"count": FigureKind(9, draw, "Objectives", "a finished trial")}
'''

ADDITIONS = [
    Addition("a loss", {"objectives/hinge.py": [("EASY", LOSS)]}),
    Addition("a triplet weight", {"objectives/triplet_weights.py": [("TripletWeight", TRIPLET_WEIGHT)]}),
    Addition("a pair weight", {"objectives/pair_weights.py": [("PairWeight", PAIR_WEIGHT)]}),
    Addition(
        "a pooling",
        {
            "retrieval/encoders/pooling.py": [
                ("k_max", POOLING),
                ("[POOLING]", '"midrange": lambda dim, own: midrange,'),
            ],
        },
    ),
    Addition(
        "an encoder, a whole system",
        {f"retrieval/components/small/{name}.py": [("", text)] for name, text in ENCODERS.items()},
    ),
    Addition("a recipe, a preset", {"grid/recipes/thumbnail.toml": [("", RECIPE)]}),
    Addition("a table layout", {"results/layouts/backwards.py": [("", LAYOUT)]}),
    Addition("a table format", {"results/renderers/tsv.py": [("", FORMAT)]}),
    Addition("a figure", {"results/figures/count.py": [("", FIGURE)]}),
]


def table() -> dict[str, set[str]]:
    """The files and folders that each row of the table says to touch."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {row[0].removeprefix("| "): set(re.findall(r"`([\w/]+(?:\.py|/))`", " ".join(row[1:]))) for row in rows}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with all additions."""
    folder = tmp_path_factory.mktemp("sources")
    copied(folder)
    for addition in ADDITIONS:
        addition.make(folder)
    return folder


@pytest.fixture(scope="module")
def run(sources: Path) -> Run:
    """Run the command line of the copy; what it prints."""

    def call(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(sources), "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
        environment["GOALGRID_RUNS"] = str(sources / "runs")
        command = [sys.executable, "-m", "goalgrid", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=sources, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture(scope="module")
def histories(sources: Path, run: Run) -> dict[str, list[dict[str, float]]]:
    """What was logged when all additions were trained, by objective."""
    axes = [
        'recipes=["thumbnail"]',
        'objectives=["mean-hinge", "con_half", "square_con"]',
        "seeds=[0]",
        "train.epochs=2",
    ]
    words = [word for axis in axes for word in ("--set", axis)]
    run("run", "demo", "--here", "--mlflow-uri", "", "--set", "name=demo", *words)
    files = {path.parent.name: path for path in (sources / "runs" / "trials").glob("*/history.jsonl")}
    return {
        name.split("_", 2)[2].rpartition("_s0")[0]: [json.loads(line) for line in path.read_text().splitlines()]
        for name, path in files.items()
    }


def test_the_table_says_one_place_for_each_change() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "| what | where |\n" in page


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.row)
def test_the_table_names_the_files_to_touch(addition: Addition) -> None:
    named = table()[addition.row]
    touched = {name if pieces[0][0] else f"{name.rpartition('/')[0]}/" for name, pieces in addition.edits.items()}
    assert [name for name in touched if not name.startswith(tuple(named))] == []
    assert {name for name in named if not name.endswith("/")} <= touched


def test_a_loss_is_explained_from_its_entry(run: Run) -> None:
    text = run("objectives", "mean-hinge")
    assert "mean over all negatives of [s_neg - s_pos + slack]+" in text
    assert "family: hinge; source: a test" in text
    assert re.search(r"^  slack +0\.1 +0\.1  by how much the positive is to lead$", text, re.MULTILINE)
    assert re.search(r"^  reduction ", text, re.MULTILINE)
    assert not re.search(r"^  mining ", text, re.MULTILINE), "its mining is fixed"


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (
            '    slack=Parameter(0.1, "by how much the positive is to lead"),\n',
            "mean_hinge takes slack, which is not declared",
        ),
        (", *, slack: float", "slack is declared, but mean_hinge takes no slack"),
    ],
    ids=["declaration", "argument"],
)
def test_half_a_loss_stops_every_training(lost: str, message: str, sources: Path, tmp_path: Path) -> None:
    for room in ROOMS:
        shutil.copytree(sources / room, tmp_path / room, symlinks=True)
    file = tmp_path / "objectives" / "hinge.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(swapped(text, LOSS, swapped(LOSS, lost, "")), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "from goalgrid import objectives"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_weight_makes_cells_with_all_others(run: Run) -> None:
    text = run("objectives")
    assert [name for name in ("square_half", "lin_half", "square_cir") if f"{name} " not in text] == []


def test_a_loss_trains_on_the_negatives_that_its_entry_says(histories: dict[str, list[dict[str, float]]]) -> None:
    assert [row["given"] for row in histories["mean-hinge"]] == [249, 249]


def test_weights_poolings_and_encoders_train_by_a_recipe_that_names_them(
    histories: dict[str, list[dict[str, float]]],
) -> None:
    assert histories.keys() == {"mean-hinge", "con_half", "square_con"}
    for rows in histories.values():
        assert rows[-1]["val_rsum"] > 2 * rows[-1]["val_chance"]


def test_a_layout_a_format_and_a_figure_are_drawn(
    run: Run, sources: Path, histories: dict[str, list[dict[str, float]]]
) -> None:
    lines = run("table", "demo", "--layout", "backwards", "--format", "tsv").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["square_con", "mean-hinge", "con_half"]
    run("figures", "demo", "count", "-o", str(sources / "drawn"), "--format", "svg")
    assert [path.name for path in (sources / "drawn").iterdir()] == ["count-thumbnail-on-shapes.svg"]
