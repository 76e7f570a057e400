"""One training serves all protocols of its data set: in the record, in tables and in exports."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, State
from goalgrid.reports.analyses import compared
from goalgrid.reports.tables import keep_table, scores_of
from goalgrid.results.export.export_folder import export
from goalgrid.results.export.report_page import Measured
from goalgrid.results.layouts import LAYOUTS, arrange
from goalgrid.results.records import record
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import parquet
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.run import run_trial
from goalgrid.state.grid_state import GridState

from ...conftest import Goalgrid, checked

FIVE = "mean of five folds of 1,000 images"


def write_coco_features(root: Path) -> None:
    """5,000 test images in `testall`, of which `test` is the first 1,000; captions tell some of what features say."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(40)]
    for split, images in (("train", 200), ("dev", 60), ("testall", 5000), ("test", 1000)):
        kinds = rng.integers(0, len(words), (images, 2))
        features = np.zeros((images, len(words)), np.float32)
        features[np.arange(images)[:, None], kinds] = 1
        np.save(root / f"{split}_ims.npy", features + rng.normal(0, 0.1, features.shape).astype(np.float32))
        (root / f"{split}_caps.txt").write_text("".join(f"{words[a]} {words[b]}\n{words[b]}\n" for a, b in kinds))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coco")
    write_coco_features(folder)
    return folder


def grid_of(root: Path, **tables: object) -> Grid:
    settings = {"train.epochs": 2, "model.dim": 16, "dataset.min_count": 1, "dataset.val_images": 50}
    content = {"name": "folds", "datasets": ["coco"], "recipes": ["fc-bow"], "objectives": ["con_con"], "seeds": [0]}
    return checked({**content, "set": settings, "data": {"coco": {"root": str(root)}}, **tables})


def train(grid: Grid, home: Home) -> list[Cell]:
    machine = Machine(roots=tuple((name, place.root) for name, place in grid.data.items()))
    cells = expand(grid)
    for cell in cells:
        for trial in cell.trials:
            folder = home.trial(trial.id)
            assert run_trial(trial.settings, folder, lambda event: None, machine) is State.DONE, folder.reason()
    return cells


@pytest.fixture(scope="module")
def swept(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, list[Cell]]:
    """The same training once by either protocol."""
    home = Home(tmp_path_factory.mktemp("runs"))
    return home, train(grid_of(root, sweep={"dataset.protocol": ["coco-5k", "coco-5x1k"]}), home)


def test_the_other_protocols_metrics_are_those_of_a_trial_set_to_it(swept: tuple[Home, list[Cell]]) -> None:
    home, cells = swept
    whole, folds = (pd.read_parquet(home.trial(cell.trials[0].id).record).iloc[0] for cell in cells)
    assert (whole["protocol"], folds["protocol"]) == ("coco-5k", "coco-5x1k")
    for name in record.METRICS:
        assert dict(whole["other_metrics"])[f"coco-5x1k/{name}"] == folds[f"test_{name}"]
        assert dict(folds["other_metrics"])[f"coco-5k/{name}"] == whole[f"test_{name}"]
    assert folds["test_rsum"] > whole["test_rsum"] > 0
    assert len(whole["test_i2t_ranks"]) == len(folds["test_i2t_ranks"]) == 5000
    assert max(folds["test_i2t_ranks"]) < 2000


def test_a_fold_metric_is_the_mean_of_the_folds_ranks(swept: tuple[Home, list[Cell]]) -> None:
    home, cells = swept
    row = pd.read_parquet(home.trial(cells[1].trials[0].id).record).iloc[0]
    folds = np.array(row["test_i2t_ranks"]).reshape(5, 1000)
    assert row["test_i2t_r1"] == pytest.approx(np.mean([(fold < 1).mean() * 100 for fold in folds]))
    assert row["test_i2t_medr"] == pytest.approx(np.mean([np.floor(np.median(fold)) + 1 for fold in folds]))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "known"])  # which shows names, no numbers
def test_a_table_shows_the_protocol_that_is_asked_for(swept: tuple[Home, list[Cell]], layout: str) -> None:
    home, (first, second) = swept
    cell = Cell("coco", "fc-bow", "con_con", (), first.trials)
    values = {}
    for protocol in ("coco-5k", "coco-5x1k"):
        table = arrange([cell], Scores.read([cell], home, protocol=protocol), layout=layout)
        values[protocol] = next(table.entries()).score.mean
        assert f"on {protocol}" in table.caption
        assert (FIVE in table.caption) is (protocol == "coco-5x1k")
        assert parquet.tidy(table).column("protocol").unique().to_pylist() == [protocol]
    own = Scores.read([second], home)
    assert values["coco-5x1k"] == own.of(second, "i2t_r1").mean != values["coco-5k"]


def test_swept_protocols_stand_in_blocks_of_their_own(swept: tuple[Home, list[Cell]]) -> None:
    home, cells = swept
    for asked in (None, "coco-5k"):
        table = arrange(cells, Scores.read(cells, home, protocol=asked))
        assert [block.title for block in table.blocks] == [
            "fc-bow on coco, dataset.protocol = coco-5k",
            "fc-bow on coco, dataset.protocol = coco-5x1k",
        ]
        assert f"on coco-5k, coco-5x1k ({FIVE}):" in table.caption


@pytest.mark.gate
def test_an_export_holds_the_tables_of_all_protocols(
    root: Path, swept: tuple[Home, list[Cell]], tmp_path: Path
) -> None:
    grid = grid_of(root)
    grid_state = GridState.of(grid, swept[0])
    measured = Measured.of(grid.name, grid_state.cells, scores_of(grid_state), swept[0])
    export(grid, grid_state.cells, measured, swept[0], tmp_path, report="<!doctype html>")
    assert FIVE not in (tmp_path / "tables" / "goal.md").read_text()
    assert FIVE in (tmp_path / "tables" / "coco-5x1k" / "goal.md").read_text()


@pytest.mark.gate
def test_a_grid_that_names_a_table_is_shown_by_its_protocol_everywhere(
    root: Path, swept: tuple[Home, list[Cell]], tmp_path: Path
) -> None:
    """SelHN Table 8 is MS-COCO 1K, Table 9 5K: the first named decides, the other protocol stands beside it."""
    home, (_, folds) = swept
    grid = grid_of(root, tables=["selhn-table8", "selhn-table9"])
    grid_state = GridState.of(grid, home)
    cells, scores = grid_state.cells, scores_of(grid_state)
    assert scores.of(cells[0], "rsum").mean == Scores.read([folds], home).of(folds, "rsum").mean
    assert scores_of(grid_state, "coco-5k").protocol_of(cells[0]) == "coco-5k"
    measured = Measured.of(grid.name, cells, scores, home)
    export(grid, cells, measured, home, tmp_path, report="<!doctype html>")
    assert FIVE in (tmp_path / "tables" / "goal.md").read_text()
    assert FIVE not in (tmp_path / "tables" / "coco-5k" / "goal.md").read_text()
    assert list(measured.tables) == ["coco-5x1k", "coco-5k"]
    kept = keep_table(grid_state)
    assert kept is not None
    assert FIVE in kept.table.caption
    (tmp_path / "named.toml").write_text(grid.to_toml())
    side = compared(str(tmp_path / "named.toml"), None, home, other=Home(home.path), metric="rsum")
    assert {each.a for each in side.differences} == {scores.of(cells[0], "rsum").mean}


def test_records_older_than_the_column_show_their_own_protocol(swept: tuple[Home, list[Cell]], tmp_path: Path) -> None:
    home, cells = swept
    old, cell = Home(tmp_path), Cell("coco", "fc-bow", "con_con", (), cells[0].trials)
    folder = old.trial(cell.trials[0].id)
    folder.path.mkdir(parents=True)
    row = record.collect([home.trial(cell.trials[0].id).record])
    pq.write_table(row.drop_columns(["other_metrics"]), folder.record)
    folder.done.write_text("")
    assert Scores.read([cell], old).of(cell, "rsum") == Scores.read([cell], home).of(cell, "rsum")
    assert list(Scores.read([cell], old).further([cell], old)) == []
    assert Scores.read([cell], old, usual="coco-5x1k").protocol_of(cell) == "coco-5k"
    with pytest.raises(UserError, match=r"no finished trial was evaluated by protocol 'coco-5x1k'"):
        Scores.read([cell], old, protocol="coco-5x1k")


def test_the_command_line_shows_another_protocol(
    root: Path, swept: tuple[Home, list[Cell]], tmp_path: Path, goalgrid: Goalgrid
) -> None:
    (tmp_path / "folds.toml").write_text(grid_of(root).to_toml())
    file = str(tmp_path / "folds.toml")
    text = goalgrid("table", file, "--protocol", "coco-5x1k", "--format", "markdown", runs=swept[0].path).stdout
    assert f"Recall@1 (%) on coco-5x1k ({FIVE})" in text
    found = goalgrid("effects", file, "--protocol", "coco-5x1k", "--json", runs=swept[0].path)
    one = json.loads(found.stdout)[0]
    cells = expand(grid_of(root))
    best = max(Scores.read(cells, swept[0], protocol="coco-5x1k").of(cell, "i2t_r1").mean for cell in cells)
    assert (one["protocol"], one["metric"], max(one["means"])) == ("coco-5x1k", "i2t_r1", best)
    assert one["queries"] is None  # ranks are those of coco-5k
    assert "uncertainty over test images" in one["notes"][-1]
    for verb in ("table", "effects"):
        wrong = goalgrid(verb, file, "--protocol", "coco-1k", runs=swept[0].path)
        assert wrong.returncode == 2
        assert "unknown protocol or data set 'coco-1k' of grid 'folds'. Did you mean 'coco-5x1k'?" in wrong.stderr


def test_a_test_split_of_another_size_is_refused_before_anything_is_trained(
    root: Path, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    copy = tmp_path / "data"
    copy.mkdir()
    for file in root.iterdir():
        if not file.name.startswith("testall"):
            (copy / file.name).symlink_to(file)
    (tmp_path / "folds.toml").write_text(grid_of(copy).to_toml())
    finished = goalgrid("run", str(tmp_path / "folds.toml"), "--here", runs=tmp_path / "runs")
    assert finished.returncode == 2
    assert "has 1,000 images; protocol 'coco-5k' requires 5,000. What is missing: `testall`" in finished.stderr


def test_validation_on_the_first_images_changes_neither_test_nor_data(root: Path, tmp_path: Path) -> None:
    rows = []
    for images in (50, None):
        settings = {"train.epochs": 1, "model.dim": 16, "train.selection": "last"}
        grid = grid_of(root, set={**settings, **({"dataset.val_images": images} if images else {})})
        (cell,) = train(grid, Home(tmp_path))
        rows.append(pd.read_parquet(Home(tmp_path).trial(cell.trials[0].id).record).iloc[0])
    few, all_ = rows
    assert few["val_rsum"] != all_["val_rsum"]
    assert few["test_rsum"] == all_["test_rsum"]
    assert few["data_fingerprint"] == all_["data_fingerprint"]
