"""`goalgrid data`: what it says of a data set, and of a copy, with which exit code."""

import json
from pathlib import Path

import pytest
from PIL import Image

from goalgrid.grid import catalog

from ..conftest import ROOT, Goalgrid


def write_copy(root: Path, names: tuple[str, ...] = ("0.png", "1.png", "2.png")) -> Path:
    """One image a split, in Karpathy's layout."""
    root.mkdir(exist_ok=True)
    images = []
    for number, (split, name) in enumerate(zip(("train", "val", "test"), names, strict=True)):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(root / Path(name).name)
        images.append({"filename": name, "split": split, "sentences": [{"raw": "a dog"}, {"raw": "a cat"}]})
    (root / "dataset.json").write_text(json.dumps({"images": images}))
    return root


@pytest.mark.parametrize("name", catalog.names("datasets"))
def test_where_says_sources_trees_and_sizes(name: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid("data", "where", name, runs=tmp_path)
    known = catalog.dataset(name)
    assert finished.returncode == 0
    for source in known.sources:
        assert source.at in finished.stdout
    for tree in known.trees.values():
        assert all(line in finished.stdout for line in tree.strip().splitlines())
    for size in known.splits.values():
        assert f"{size.images:,} {known.noun}s" in finished.stdout


@pytest.mark.parametrize("name", [name for name in catalog.names("datasets") if not catalog.dataset(name).embedded])
def test_the_page_of_a_data_set_says_the_same_as_where(name: str) -> None:
    known = catalog.dataset(name)
    page = (ROOT / known.page).read_text(encoding="utf-8")
    for title, tree in known.trees.items():
        assert f"{title}\n\n```\n{tree}```" in page
    for source in known.sources:
        assert source.at in page
    for size in known.splits.values():
        assert f"{size.images:,}" in page


def test_a_good_copy_is_summed_up(tmp_path: Path, goalgrid: Goalgrid) -> None:
    write_copy(tmp_path / "mine")
    finished = goalgrid("data", "check", "mine", "--root", str(tmp_path / "mine"), runs=tmp_path)
    assert finished.returncode == 0
    assert "no problems" in finished.stdout
    assert "1 images        2 captions, 2 / 2.00 / 2 per image (min / mean / max)" in finished.stdout
    assert "fingerprint" in finished.stdout


def test_problems_are_printed_with_their_fixes_and_exit_2(tmp_path: Path, goalgrid: Goalgrid) -> None:
    root = write_copy(tmp_path / "mine", ("0.png", "../1.png", "evil\x1b[31m.png"))
    (root / "0.png").write_text("no image")
    finished = goalgrid("data", "check", "mine", "--root", str(root), runs=tmp_path)
    assert finished.returncode == 2
    for part in ("2 problems", "'../1.png' leads out of", "0.png: the image cannot be read", "fix: Download this file"):
        assert part in finished.stdout
    assert "\x1b" not in finished.stdout


def test_many_alike_are_counted_not_listed(tmp_path: Path, goalgrid: Goalgrid) -> None:
    root = write_copy(tmp_path / "mine")
    content = json.loads((root / "dataset.json").read_text())
    content["images"] += [{**content["images"][0], "filename": f"gone{i}.png"} for i in range(100)]
    (root / "dataset.json").write_text(json.dumps(content))
    finished = goalgrid("data", "check", "mine", "--root", str(root), runs=tmp_path)
    assert finished.stdout.count("gone") == 5
    assert "and 95 more with the same fix" in finished.stdout


def test_json_holds_every_problem_and_every_part(tmp_path: Path, goalgrid: Goalgrid) -> None:
    root = write_copy(tmp_path / "mine")
    (root / "2.png").unlink()
    finished = goalgrid("data", "check", "mine", "--root", str(root), "--json", runs=tmp_path)
    assert finished.returncode == 2
    report = json.loads(finished.stdout)
    assert [problem["what"] for problem in report["problems"]] == ["the image is missing"]
    assert report["parts"][0]["splits"]["test"]["captions_per_image"] == {"min": 2, "mean": 2.0, "max": 2}


def test_what_is_made_on_the_spot_needs_no_check(tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid("data", "check", "shapes", runs=tmp_path)
    assert finished.returncode == 0
    assert finished.stderr == "shapes is a generated data set: there is no copy to check.\n"
