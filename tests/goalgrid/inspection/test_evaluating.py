"""`goalgrid evaluate`: a checkpoint gives its record's numbers again, and other data only where they fit."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from goalgrid.cli.console import show_json
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.reports.tables import NothingDone
from goalgrid.results.records import record
from goalgrid.retrieval.words.splitting import nltk_words
from goalgrid.runners.training import checkpoints
from goalgrid.runners.watching.mirror import final_metrics

from ... import networks
from ...retrieval.components.xvlm import xvlm_files
from ...retrieval.literal_peers import Peer
from ..conftest import Verb


def of_objective(home: Home, objective: str) -> str:
    return next(folder.trial_id for folder in home.trials() if f"_{objective}_" in folder.trial_id)


@pytest.mark.parametrize("split", ["test", "val"])
def test_a_checkpoint_has_the_numbers_of_its_record(split: str, trained_pair: Home, verb: Verb) -> None:
    trial = of_objective(trained_pair, "con_con")
    shown = verb("evaluate", "--trial", trial, "--split", split, runs=trained_pair)
    assert "the record of this trial matches these numbers" in shown.stdout
    (own,) = json.loads(verb("gradients", "--trial", trial, "--json", runs=trained_pair).stdout)
    assert (own["trial"], own["objective"], 0 < own["anchor"] < 2) == (trial, "con_con", True)
    program = json.loads(verb("evaluate", "--trial", trial, "--split", split, "--json", runs=trained_pair).stdout)
    (row,) = record.collect([trained_pair.trial(trial).record]).to_pylist()
    assert program["metrics"] == {name: row[f"{split}_{name}"] for name in program["metrics"]}
    if split == "test":
        found = program["ranks"]
        means = {f"{name}_meanr": pytest.approx(np.mean(found[name]) + 1) for name in ("i2t", "t2i")}
        assert {name: program["further"][name] for name in means} == means
        assert found == {name: row[f"test_{name}_ranks"] for name in ("i2t", "t2i")}
    assert "speed" not in program


def test_speed_and_size_are_those_of_the_model(pair: Home, verb: Verb, tmp_path: Path) -> None:
    trial = of_objective(pair, "con_con")
    program = json.loads(verb("evaluate", "--trial", trial, "--speed", "--json", runs=pair).stdout)
    folder = pair.trial(trial)
    weights = torch.load(folder.best_checkpoint, weights_only=True)["model"]
    size = sum(value.numel() for name, value in weights.items() if value.is_floating_point() and "running" not in name)
    (row,) = record.collect([folder.record]).to_pylist()
    assert program["speed"]["parameters"] == program["speed"]["learning"] == size
    assert (row["parameters"], row["parameters_learning"]) == (size, size)
    assert program["speed"]["pairs"] > 100 * program["speed"]["queries"] > 0
    shown = verb("evaluate", "--trial", trial, "--speed", runs=pair).stdout
    assert f"{size:,} parameters, {size:,} of them trainable" in shown
    kpps = re.findall(r"([\d,]+)[.]\d thousand pairs scored per second; [\d,.]+ queries per second end to end", shown)
    table = verb("table", "demo", "--layout", "listing", "--metric", "kpps", "--format", "markdown", runs=pair).stdout
    last = [int(cell.replace(",", "")) for cell in re.findall(r"\| ([\d,]+) \|$", table, re.MULTILINE)]
    assert len(last) == 2  # the cells share the model, and the last measurement counts
    assert all(abs(cell - int(kpps[0].replace(",", ""))) <= 1 for cell in last)
    drawn = verb("figures", "demo", "speed", "triplets", "--output", str(tmp_path), runs=pair).stderr
    assert "speed-shapes.png" in drawn
    assert "nothing to draw for triplets: it needs trials with train.trace_every" in drawn


def test_embeddings_give_the_ranks(trained_pair: Home, verb: Verb, tmp_path: Path) -> None:
    trial, path = of_objective(trained_pair, "sig-ms_cir"), tmp_path / "e.npz"
    verb("evaluate", "--trial", trial, "--embeddings", str(path), runs=trained_pair)
    with np.load(path) as held:
        scores, owners = held["images"] @ held["texts"].T, held["image_of_text"]
        own = scores[owners, np.arange(len(owners))]
        wrong = np.arange(len(scores))[:, None] != owners
        above = (wrong & (scores > own)).sum(0)
        assert held["t2i_ranks"] == pytest.approx(above, abs=1)  # ties of rounding


def test_other_data_are_read_with_the_words_of_the_trial(
    trained_pair: Home, verb: Verb, few_pictures: Path, tmp_path: Path
) -> None:
    trial = of_objective(trained_pair, "con_con")
    shutil.copytree(few_pictures, tmp_path / "mine=1")
    shown = verb("evaluate", "--trial", trial, "--root", f"mine={tmp_path / 'mine=1'}", runs=trained_pair)
    assert "test split of mine, protocol mine-test: 12 images, 60 captions" in shown.stdout
    assert "record" not in shown.stdout


GRID = """
name = "f8k"
datasets = "flickr8k"
recipes = "fc-bow"
objectives = ["con_con", "triplet-hn"]
seeds = [0, 1]
data.flickr8k.root = "{root}"
"""


def published(folder: Path, few_pictures: Path, *families: str) -> tuple[list[str], str]:
    """Files of these families, and the vocabulary that they were trained with."""
    captions = [path.read_text() for path in sorted(few_pictures.glob("precomp/*_caps.txt"))]
    words = ["<pad>", "<start>", "<end>", "<unk>", *sorted({word for text in captions for word in nltk_words(text)})]
    (folder / "v.json").write_text(json.dumps({"word2idx": {word: place for place, word in enumerate(words)}}))
    width = int(np.load(few_pictures / "precomp" / "test_ims.npy", mmap_mode="r").shape[-1])
    peers = [Peer(family, "bigru", len(words), width=width) for family in families]
    files = [str(peer.save(folder / peer.family)) for peer in peers]
    return files, str(folder / "v.json")


def test_an_imported_checkpoint_stands_beside_the_trials(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    (scan,), words = published(tmp_path, few_pictures, "scan")
    home, grid = Home(tmp_path / "runs"), str(tmp_path / "f8k.toml")
    Path(grid).write_text(
        GRID.format(root=few_pictures).replace('flickr8k"\nrec', 'mine"\nrec').replace("data.flickr8k", "data.mine")
    )
    options = ("evaluate", scan, "--as", "scan", "--vocabulary", words, "--root", f"mine={few_pictures}")
    into = (*options, "--into", grid, "--as-objective", "triplet-hn")
    done = verb(*into, "--speed", "--json", runs=home)
    own = json.loads(done.stdout)
    assert "was added to grid 'f8k'" in done.stderr
    (trial,) = home.trials()
    assert trial.trial_id.startswith("mine_scan-published_triplet-hn-")
    assert pd.read_parquet(trial.speed)["pairs"].tolist() == [own["speed"]["pairs"]]
    (row,) = record.collect([trial.record]).to_pylist()
    assert row["test_rsum"] == own["metrics"]["rsum"]
    assert (row["epochs"], row["steps"]) == (0, 0)
    shown = verb("table", "f8k", "--format", "markdown", runs=home).stdout
    assert "| scan-published" in shown
    said = "Published weights, evaluated here but not trained here, so without a seed: scan-published (SCAN on regions"
    assert said in shown
    assert f"imported: {trial.trial_id}: SCAN on regions with a BiGRU, scan" in verb("status", "f8k", runs=home).stdout
    assert "  1 x imported" in verb("plan", "f8k", runs=home).stdout
    planned = json.loads(verb("plan", "f8k", "--force", "--json", runs=home).stdout)
    assert len(planned["left"]) == 4
    assert trial.trial_id not in planned["left"]
    assert "nothing to remove" in verb("prune", "--done", runs=home).stdout
    copy = Home(tmp_path / "copy")
    assert "1 taken" in verb("merge", str(home.path), runs=copy).stdout
    assert "1 here already" in verb("merge", str(home.path), runs=copy).stdout
    assert f"imported: {trial.trial_id}: SCAN" in verb("status", "f8k", runs=copy).stdout
    settings = copy.trial(trial.trial_id).settings
    kept = settings.read_text()
    settings.write_text(kept.replace('"triplet-hn"', '"con_con"'))  # no row of the table is what somebody wrote there
    with pytest.raises(NothingDone):
        verb("table", "f8k", "--format", "markdown", runs=copy)
    settings.write_text(kept)
    drawn = verb("figures", "f8k", "--output", str(tmp_path / "figures"), runs=copy)
    assert "curves" not in drawn.stderr  # it has no history
    for arguments, said in {
        ("evaluate", "--trial", trial.trial_id): "is the record of a published checkpoint. Evaluate scan with --as",
        ("figures", "f8k", "attention", "--trial", trial.trial_id): "without its weights. Trials with attention: none",
        (*options, "--into", grid): "--into GRID and --as-objective NAME must be given together",
        (*into[:-1], "tripel-hn"): "unknown objective 'tripel-hn'",
        (*into[:-3], "demo", *into[-2:]): "unknown data set 'mine' of grid 'demo'",
    }.items():
        with pytest.raises(UserError, match=re.escape(said)):
            verb(*arguments, runs=home)


def test_files_that_would_be_one_cell_are_rows_with_their_names(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    (scan,), words = published(tmp_path, few_pictures, "scan")
    root, home, grid = tmp_path / "mine", Home(tmp_path / "runs"), tmp_path / "f8k.toml"
    shutil.copytree(few_pictures, root)
    grid.write_text(GRID.format(root=root).replace("flickr8k", "mine"))
    into = ("--as", "scan", "--vocabulary", words, "--into", str(grid), "--as-objective", "triplet-hn")
    content = torch.load(scan, weights_only=False)
    for epoch, name in enumerate(["a/best.pth.tar", "b/best.pth.tar", "t2i.pth.tar"]):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        torch.save({**content, "epoch": epoch}, file)
        verb("evaluate", str(file), "--root", f"mine={root}", *into, runs=home)
    ends = [trial.trial_id[-8:] for trial in home.trials()]
    for layout in ("methods", "listing"):
        shown = verb("table", "f8k", "--layout", layout, "--format", "csv", runs=home).stdout
        named = {*re.findall(r"scan-published-[-\w]+", shown)}
        assert named < {"scan-published-t2i", *(f"scan-published-best-{end}" for end in ends)}
        assert len(named) == 3
    weights = verb("table", "f8k", "--metric", "parameters", "--format", "csv", runs=home).stdout
    assert f"{sum(tensor.numel() for part in content['model'] for tensor in part.values()) / 1e6}," in weights
    other = shutil.copytree(root, tmp_path / "other")
    images = other / "precomp" / "test_ims.npy"
    np.save(images, np.load(images)[::-1].copy())
    with pytest.raises(UserError, match=rf"{other} holds different data from {root}, the mine of grid 'f8k'"):
        verb("evaluate", scan, "--root", f"mine={other}", *into, runs=home)
    shutil.copy(images, root / "precomp")
    status = verb("status", "f8k", runs=home)
    assert status.exit_code == 3
    assert status.stdout.count("not shown, as its data has changed; import it again: goalgrid evaluate") == 3
    assert "--stale" not in status.stdout


TUNED = """
name = "tuned"
datasets = "mine"
recipes = "scan-i2t"
objectives = "triplet-hn"
seeds = 0
data.mine.root = "mine"
[set]
train.epochs = 1
train.lr = 1e-12
train.starts_from = "file:scan"
model.dim = 16
model.text.word_dim = 6
dataset.vocabulary = "v.json"
dataset.words = "nltk"
"""


def test_a_grid_fine_tunes_a_published_checkpoint(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(few_pictures, tmp_path / "mine")
    (scan,), words = published(tmp_path, few_pictures, "scan")
    shutil.copy(words, tmp_path / "mine")
    home, grid = Home(tmp_path / "runs"), str(tmp_path / "tuned.toml")
    Path(grid).write_text(TUNED)
    assert f"from       {scan}" in verb("plan", grid, runs=home).stdout
    assert verb("run", grid, "--here", "--mlflow-uri", "", runs=home).exit_code == 0
    (row,) = record.collect([home.trials()[0].record]).to_pylist()
    given = ("--as", "scan", "--vocabulary", words, "--root", f"mine={tmp_path / 'mine'}", "--json")
    untouched = json.loads(verb("evaluate", scan, *given, runs=home).stdout)
    assert row["test_t2i_ranks"] == untouched["ranks"]["t2i"]
    moved = shutil.move(scan, tmp_path / "moved")
    assert "1 x done" in verb("plan", "tuned", runs=home).stdout  # what is done needs no file
    with pytest.raises(UserError, match=r"the checkpoint .*scan cannot be read: No such file"):
        verb("plan", "tuned", "--force", runs=home)
    again = json.loads(verb("plan", "tuned", "--set", f"train.starts_from=file:{moved}", "--json", runs=home).stdout)
    assert {trial["trial"] for trial in again["reasons"]} == {home.trials()[0].trial_id}  # the content is what counts
    for change, said in {
        "train.starts_from=file:/nowhere": r"'file:/nowhere': /nowhere cannot be read",
        "train.starts_from=x": r"it should be file:PATH, where PATH is a published checkpoint",
        f"train.starts_from=file:{grid}": r"tuned\.toml cannot be read: it is damaged, or torch.save",
        "model.dim=32": r"does not fit this recipe and these words.*\n.*img_enc\.fc\.weight is \(16, ",
        "train.epochs=0": r"this trial starts from a trained model\. To evaluate that model, use goalgrid evaluate",
    }.items():
        options = ["--set", f"train.starts_from=file:{moved}"] if "starts_from" not in change else []
        with pytest.raises(UserError, match=said):
            verb("plan", "tuned", *options, "--set", change, runs=home)


def test_a_start_from_another_model_is_said(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(few_pictures, tmp_path / "mine")
    home, grid = Home(tmp_path / "runs"), tmp_path / "tuned.toml"
    for family, change, said in (
        ("scan", "model.scorer.direction=t2i", "SCAN on regions with a BiGRU with scorer.direction = 'i2t', here"),
        ("bfan", "seeds=0", "scorer.kind = 'bfan', here 'scan'"),
    ):
        (file,), words = published(tmp_path, few_pictures, family)
        shutil.copy(words, tmp_path / "mine")
        grid.write_text(TUNED.replace("file:scan", f"file:{file}"))
        planned = verb("plan", str(grid), "--set", change, runs=home).stdout
        assert planned.count(str(file)) == 2
        assert said in planned
        run = verb("run", str(grid), "--set", change, "--here", "--mlflow-uri", "", runs=home).stderr
        assert said in " ".join(run.split())


def test_a_published_checkpoint_is_evaluated(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    (scan, vsepp), words = published(tmp_path, few_pictures, "scan", "vsepp")
    given = ("--vocabulary", words, "--root", f"mine={few_pictures}")
    shown = verb("evaluate", scan, "--as", "scan", *given, runs=Home(tmp_path)).stdout
    assert f"{scan}, checkpoint of SCAN on regions with a BiGRU, epoch 3, its validation rsum 412.34" in shown
    assert "test split of mine, protocol mine-test: 12 images, 60 captions" in shown
    for options, said in {
        (scan, *given): "scan looks like SCAN .*Give --as scan",
        (vsepp, "--as", "vsepp", *given): r"reads one vector per image; the images of these data have the shape \(9, ",
        (scan, "--as", "scan", *given[:2]): "missing option --root DATASET=DIR: the data to evaluate on",
        (scan, "--as", "scan", *given[:2], "--root", "shapes=/x"): "--root shapes=/x: data set 'shapes' is generated",
    }.items():
        with pytest.raises(UserError, match=said):
            verb("evaluate", *options, runs=Home(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), r"Give either --trial ID of a finished trial"),
        (("f.pth", "--trial", "OWN"), r"Give either --trial ID .* or a published FILE"),
        (("--trial", "shapes"), r"unknown trial 'shapes' under .*Known: shapes_cnn-bow"),
        (("--trial", "OWN", "--split", "train"), r"unknown split 'train'\. Known: val, test"),
        (("--trial", "OWN", "--protocol", "coco-5k"), r"unknown protocol 'coco-5k' of data set 'shapes'"),
        (("--trial", "OWN", "--root", "coco=/nowhere"), r"root of data set 'coco': no folder at /nowhere"),
        (("--trial", "OWN", "--root", "/tmp"), r"--root /tmp: data set 'shapes' is generated and needs no root"),
        (("--trial", "OWN", "--weights", "x=y"), r"unknown weights 'x' in --weights\. Known: none"),
        (("--trial", "OWN", "--weights", "x"), r"--weights 'x' is not NAME="),
        (("--trial", "OWN", "--embeddings", "e.txt"), r"e\.txt: the file must end in \.npz"),
    ],
)
def test_a_mistake_is_a_message(options: tuple[str, ...], said: str, trained_pair: Home, verb: Verb) -> None:
    own = of_objective(trained_pair, "con_con")
    with pytest.raises(UserError, match=said):
        verb("evaluate", *[own if option == "OWN" else option for option in options], runs=trained_pair)


def swapped(words: bytes) -> bytes:
    found = json.loads(words)
    return json.dumps([*found[:2], found[3], found[2], *found[4:]]).encode()


def other_size(settings: bytes) -> bytes:
    return settings.replace(b'"size": 16', b'"size": 24')


@pytest.mark.parametrize("verb_", ["evaluate", "gradients"])
@pytest.mark.parametrize(("name", "change"), [("vocabulary.json", swapped), ("settings.json", other_size)])
def test_a_trial_whose_files_are_not_as_its_record_says_is_refused(
    verb_: str, name: str, change: Callable[[bytes], bytes], pair: Home, verb: Verb
) -> None:
    path = pair.trial(of_objective(pair, "con_con")).path / name
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    with pytest.raises(UserError, match=rf"{path} does not match the record of the trial"):
        verb(verb_, "--trial", path.parent.name, runs=pair)


def test_weights_of_another_epoch_than_the_record_has_are_refused(pair: Home, verb: Verb) -> None:
    folder = pair.trial(of_objective(pair, "con_con"))
    content = checkpoints.load(folder.best_checkpoint, torch.device("cpu"))
    row = content["row"]
    other = {**content, "row": {**row, "val_i2t_r1": row["val_i2t_r1"] + 0.2}}
    for changed in (other, {**content, "vocabulary": "of others"}):
        checkpoints.save(folder.best_checkpoint, changed)
        with pytest.raises(UserError, match=rf"the best checkpoint {folder.best_checkpoint} does not match the record"):
            verb("evaluate", "--trial", folder.trial_id, runs=pair)


def test_a_trial_that_is_damaged_or_not_done_is_refused(pair: Home, verb: Verb) -> None:
    trial = of_objective(pair, "con_con")
    settings = pair.trial(trial).settings.read_bytes()
    pair.trial(trial).settings.write_text("{}")
    with pytest.raises(UserError, match=rf"the settings .*{trial}/settings.json are missing or damaged"):
        verb("evaluate", "--trial", trial, runs=pair)
    pair.trial(trial).settings.write_bytes(settings)
    pair.trial(trial).done.unlink()
    with pytest.raises(UserError, match=rf"trial {trial} is interrupted, not done: .* goalgrid resume demo"):
        verb("evaluate", "--trial", trial, runs=pair)


XVLM = """
name = "xv"
datasets = "mine"
recipes = "small"
objectives = "triplet-hn"
seeds = 0
data.mine.root = "{root}"
[recipe.small]
extends = "xvlm-zero-shot"
model.dim = 6
model.image = {{ width = 8, depths = [1, 1, 2, 1], heads = [1, 2, 4, 8], window = 2, size = 64 }}
model.text = {{ width = 12, hidden = 20 }}
model.fusion.candidates = 10
"""


@pytest.mark.gate
def test_a_model_of_x_vlm_is_ranked_in_two_stages(verb: Verb, few_pictures: Path, tmp_path: Path) -> None:
    weights = xvlm_files.tensors(pretrained=False, words=len(networks.WORDS), window=2)
    file, bert = xvlm_files.save(tmp_path / "x.th", weights), networks.save(tmp_path / "bert", "bert")
    home, grid = Home(tmp_path / "runs"), str(tmp_path / "xv.toml")
    Path(grid).write_text(XVLM.format(root=few_pictures))
    tokenizer = ("--weights", f"google-bert/bert-base-uncased={bert}")
    for given, said in {
        (): "weights 'x-vlm': their authors publish them as a file, which is not on the hub. Download it",
        ("--weights", "x-vlm=/nowhere"): "weights 'x-vlm': there is no file /nowhere. Download it",
        (
            "--weights",
            f"x-vlm={file}",
            "--set",
            "model.text.hidden=24",
        ): "x.th, X-VLM, fine-tuned for retrieval, does not",
    }.items():
        with pytest.raises(UserError, match=re.escape(said)):
            verb("run", grid, "--here", *tokenizer, *given, runs=home)
    options = (*tokenizer, "--weights", f"x-vlm={file}", "--mlflow-uri", "")
    assert verb("run", grid, "--here", *options, runs=home).exit_code == 0
    (trial,) = home.trials()
    (row,) = record.collect([trial.record]).to_pylist()
    assert max(row["test_t2i_ranks"]) == 10
    assert row["test_i2t_medr"] is None
    assert "test_i2t_medr" not in final_metrics(trial, None)  # trackers take numbers alone
    again = verb("evaluate", "--trial", trial.trial_id, *options[:4], runs=home).stdout
    assert "the second stage re-ranked the top 10 of each query" in again
    assert "the record of this trial matches these numbers" in again
    assert verb("table", "xv", "--metric", "medr", runs=home).exit_code == 0
    published = ("evaluate", str(file), "--as", "x-vlm", *tokenizer, "--root", f"mine={few_pictures}", "--json")
    found = json.loads(verb(*published, runs=home).stdout)
    assert "i2t_medr" not in found["metrics"]
    assert len(found["ranks"]["t2i"]) == len(row["test_t2i_ranks"])


def test_a_mean_of_no_anchor_is_null_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"trial": "t", "cosine": math.nan}])
    assert json.loads(capsys.readouterr().out) == [{"trial": "t", "cosine": None}]
