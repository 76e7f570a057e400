"""docs/tutorial.md, done as it stands in an empty folder, with photographs of Flickr8k."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from ..conftest import ROOT, Goalgrid, swapped

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
PHOTOGRAPHS = 60


@pytest.mark.slow
def test_the_tutorial_leads_from_photographs_to_the_table(flickr8k: Path, tmp_path: Path, goalgrid: Goalgrid) -> None:
    rows = json.loads((flickr8k / "dataset.json").read_text())["images"][:PHOTOGRAPHS]
    (tmp_path / "photos" / "images").mkdir(parents=True)
    for row in rows:
        shutil.copy(flickr8k / "images" / row["filename"], tmp_path / "photos" / "images")
    with (tmp_path / "photos" / "captions.csv").open("w", newline="") as file:
        captions = [(row["filename"], sentence["raw"]) for row in rows for sentence in row["sentences"]]
        csv.writer(file).writerows([("image", "caption"), *captions])
    grid = tmp_path / "birds.toml"
    said = list[str]()
    for language, block in BLOCKS:
        if language == "python":
            (tmp_path / "losses.py").write_text(block, encoding="utf-8")
        elif language == "toml":
            for line in block.splitlines():
                key = line.partition(" ")[0]
                text, count = re.subn(rf"^(# )?{key} = .*", line, grid.read_text(), flags=re.MULTILINE)
                assert count == 1
                grid.write_text(text)
        for command in block.splitlines() if not language else ():
            _, verb, *words = shlex.split(command)
            more = ["--here", "--mlflow-uri", ""] if verb == "run" else []
            done = goalgrid(verb, *words, *more, runs=tmp_path / "runs", folder=tmp_path)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            said.append(done.stdout + done.stderr)
            if verb == "new":  # fewer epochs than a reader trains
                grid.write_text(swapped(grid.read_text(), '# "train.epochs" = 20', '"train.epochs" = 1'))
    assert "no problems" in said[0]
    assert "9 planned" in said[2]
    assert "12 trials: 9 done, 3 planned; training 3" in said[5]
    assert "soft-hinge" in (tmp_path / "birds.tex").read_text()
    assert (tmp_path / "runs" / "grids" / "birds" / "report.html").exists()
