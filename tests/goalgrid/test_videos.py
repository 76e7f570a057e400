"""Videos from published files to the table, by the command line."""

from pathlib import Path

import numpy as np
import pytest

from goalgrid.grid.store.home import Home
from goalgrid.reports import report
from goalgrid.results.analysis.queries import QueryRanks
from goalgrid.results.export.report_page import Measured
from goalgrid.results.layouts.captions import noun_of
from goalgrid.results.records import record
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall
from tests.conftest import Goalgrid
from tests.retrieval.components.video import made


def overrides(recipes: str, root: Path, *settings: str) -> list[str]:
    whole = [
        f"recipes={recipes}",
        'datasets=["mine"]',
        "seeds=[0]",
        "objectives=unified",
        "dataset.min_count=1",
        *settings,
    ]
    return [*(word for setting in whole for word in ("--set", setting)), "--root", f"mine={root}", "--mlflow-uri", ""]


def test_converted_features_are_checked_trained_on_and_shown_as_videos(goalgrid: Goalgrid, tmp_path: Path) -> None:
    root = made.write(tmp_path / "mine", made.TINY)
    annotations = root / "MSRVTT_data.json"
    annotations.write_text(annotations.read_text().replace(" its ", " it's "))  # captions that are repeated
    (root / "experts" / "face" / "features.npy").unlink()
    command = ("data", "convert", f"face={root}/pickles/face.pickle", "--to", str(root))
    assert "face  38 videos" in goalgrid(*command, runs=tmp_path).stdout
    checked = goalgrid("data", "check", "mine", "--root", str(root), runs=tmp_path)
    assert (
        "24 videos       72 captions, 3 / 3.00 / 3 per video (min / mean / max); 3 experts, 8 lack speech"
        in checked.stdout
    )
    words = overrides('["ce-tiny"]', root, "train.epochs=1")
    finished = goalgrid("run", "unified-table4", *words, "--here", runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    for title in ("Video → Text", "Text → Video"):
        assert title in finished.stdout
    (grid,) = Home(tmp_path).grids()
    assert "ce-tiny on mine: Video → Text, " in goalgrid("effects", grid, runs=tmp_path).stdout
    turned = goalgrid("table", grid, "--rows", "metric", "--columns", "objective", runs=tmp_path).stdout
    assert "Video → Text" in turned
    grid_state = GridState.of(recall(grid, Home(tmp_path)), Home(tmp_path))
    page = report.render(grid_state, measured=Measured(noun=noun_of(grid_state.cells)))
    assert "<th>V→T R@1</th>" in page.replace(' scope="col"', "")
    [row] = record.collect(Home(tmp_path).path.glob("trials/*/record.parquet")).to_pylist()
    assert (row["recipe"], row["steps"]) == ("ce-tiny", 3), "a caption of each of 24 videos, in batches of 8"
    evaluated = goalgrid("evaluate", "--trial", row["trial_id"], runs=tmp_path)
    assert "the record of this trial matches these numbers" in evaluated.stdout, evaluated.stderr
    assert "8 videos, 24 captions" in evaluated.stdout
    command = ("evaluate", "--trial", row["trial_id"], "--embeddings", str(tmp_path / "e.npz"))
    assert goalgrid(*command, runs=tmp_path).returncode == 0
    with np.load(tmp_path / "e.npz") as held:
        texts = held["texts"].reshape(len(held["text_wholes"]), len(made.TINY), -1)
        wholes = held["image_wholes"], held["text_wholes"]
        scores = np.einsum("vm,tm,vmd,tmd->vt", *wholes, held["images"], texts) / (wholes[0] @ wholes[1].T)
        own = scores[held["image_of_text"], np.arange(len(texts))]
        wrong = np.arange(len(scores))[:, None] != held["image_of_text"]
        assert held["t2i_ranks"] == pytest.approx((wrong & (scores > own)).sum(0), abs=1)  # ties of rounding
        assert (held["i2t_ranks"] % 1 == 0.5).any(), "repeated captions of a video share their mean place"
        for direction in ("i2t", "t2i"):
            ranks = record.ranks_of(np.array(row[f"test_{direction}_ranks"]))
            assert ranks.tolist() == held[f"{direction}_ranks"].tolist()
            assert row[f"test_{direction}_r1"] == 100 * (ranks == 0).mean()
            assert row[f"test_{direction}_medr"] == np.median(ranks) + 1
    read = QueryRanks.read(grid_state.cells, Home(tmp_path))
    values = read.per_image([row["trial_id"]], "i2t_r1")
    assert values is not None
    assert values.mean() == row["test_i2t_r1"]


def test_other_features_than_a_recipe_reads_are_one_message(goalgrid: Goalgrid, tmp_path: Path) -> None:
    root = made.write(tmp_path / "mine", {**made.TINY, "face": 25})
    finished = goalgrid("run", "unified-table4", *overrides('["ce-tiny"]', root), "--here", runs=tmp_path)
    assert finished.returncode == 2
    assert "has vectors of 25 values, but the recipe expects 24 for this expert" in finished.stderr
    assert "Traceback" not in finished.stderr
