"""Videos are read as their files have them; splits as published; what is wrong with a copy is one message each."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch

from goalgrid.grid import catalog
from goalgrid.retrieval.components.video import expert_files, msr_vtt
from goalgrid.retrieval.components.video.settings import ExpertRead
from goalgrid.retrieval.components.video.videos import Videos, unpacked
from goalgrid.retrieval.data.check import check
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.data.opening import load
from goalgrid.retrieval.splits.pairs import DataError
from tests.retrieval.components.video import made

READS = (ExpertRead("face", 6, "mean"), ExpertRead("speech", 5, "max", tokens=4, sampled=True))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = made.write(tmp_path_factory.mktemp("video"), {"face": 6, "speech": 5})
    count = len(np.load(root / "experts" / "speech" / "features.npy"))
    np.save(root / "experts" / "speech" / "times.npy", np.arange(count, dtype=np.float32))
    return root


def test_a_batch_holds_what_the_files_hold(root: Path) -> None:
    train = load("mine", root, None, reads=READS).train
    assert isinstance(train.images, Videos)
    rows = np.array([3, 0, 5, 4])
    face, speech = unpacked(READS, train.images.gather(rows))
    experts = [expert_files.read(root / "experts" / name, []) for name in ("face", "speech")]
    for place, row in enumerate(rows):
        found = []
        for expert in experts:
            assert expert is not None
            start, count = expert.spans[f"video{row}"]
            found.append(torch.from_numpy(np.array(expert.array[start : start + count])))
        torch.testing.assert_close(face.vectors[place, 0], found[0].mean(0))
        if not len(found[1]):
            assert row % 3 == 0
            assert speech.tokens[place] == -1
            assert not speech.vectors[place].any()
            continue
        count = min(4, len(found[1]))
        assert speech.tokens[place] == count
        torch.testing.assert_close(speech.vectors[place, 0], found[1].amax(0))
        taken = speech.vectors[place, 1 : 1 + count]
        where = [int((found[1] == vector).all(1).nonzero()) for vector in taken]
        assert where == sorted(set(where))
        assert experts[1] is not None
        first = experts[1].spans[f"video{row}"][0]
        assert speech.times[place, 1 : 1 + count].tolist() == [first + place for place in where]
        assert not speech.vectors[place, 1 + count :].any()


def test_vectors_are_drawn_by_the_seed_of_a_batch_and_the_same_in_any_part(root: Path) -> None:
    train, rows = load("mine", root, None, reads=READS).train.images, np.arange(24)
    drawn = [train.gather(rows, draw=draw) for draw in (1, 1, 2)]
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
    assert train.gather(rows, 1, slice(5, 9)).equal(drawn[0][5:9])
    assert train.gather(rows[7:9]).equal(train.gather(rows)[7:9])


def test_the_splits_are_those_of_the_json_of_the_lists_and_of_1k_a(tmp_path: Path) -> None:
    entries = [
        (f"video{number}", split) for number, split in enumerate(["train"] * 4 + ["validate"] * 2 + ["test"] * 3)
    ]
    sentences = [{"video_id": name, "caption": text} for name, _ in entries for text in ("a  dog", " ", "a cat")]
    captions = tmp_path / msr_vtt.JSON
    captions.write_text(
        json.dumps({"videos": [{"video_id": n, "split": s} for n, s in entries], "sentences": sentences})
    )

    def names(*test_splits: str) -> dict[str, list[str]]:
        problems: list[object] = []
        found = msr_vtt.splits(captions, test_splits, problems)  # type: ignore[arg-type]
        assert problems == []
        assert found["train"].captions[:2] == ["a dog", "a cat"]
        assert found["train"].image_of_text[:3].tolist() == [0, 0, 1]
        return {split: [name.removeprefix("video") for name in listing.images] for split, listing in found.items()}

    assert names("test") == {"train": list("0123"), "val": list("45"), "test": list("678")}
    (tmp_path / msr_vtt.TEST_1K_A).write_text("key,vid_key,video_id,sentence\nret0,msr7,video7,a man\n")
    assert names("jsfusion") == {"train": list("01234568"), "val": list("45"), "test": list("7")}
    assert msr_vtt.splits(captions, ["jsfusion"], [])["test"].captions == ["a man"]
    (tmp_path / "MSRVTT_train.9k.csv").write_text("video_id\nvideo0\nvideo8\n")
    assert names("jsfusion")["train"] == list("08")
    (tmp_path / "test_list_full.txt").write_text("video8")
    assert names("test")["test"] == list("8")


def test_the_content_of_features_and_of_times_is_data(root: Path, tmp_path: Path) -> None:
    (tmp_path / "MSRVTT_data.json").write_bytes((root / "MSRVTT_data.json").read_bytes())
    prints = []
    for change in ("none", "times", "features"):
        for file in (root / "experts").rglob("*"):
            if file.is_file():
                target = tmp_path / change / file.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                array = np.load(file) if file.suffix == ".npy" else None
                if array is not None and file.stem == change:
                    array[0] += 1
                np.save(target, array) if array is not None else target.write_bytes(file.read_bytes())
        (tmp_path / change / "MSRVTT_data.json").write_bytes((root / "MSRVTT_data.json").read_bytes())
        prints.append(content("mine", tmp_path / change, features=True).fingerprint)
    assert prints[0] == content("mine", root, features=True).fingerprint
    assert len(set(prints)) == 3


def test_the_content_of_videos_without_captions_is_one_message(root: Path, tmp_path: Path) -> None:
    (tmp_path / "experts").symlink_to(root / "experts")
    with pytest.raises(DataError, match=r"has no MSRVTT_data.json, the captions of its videos"):
        content("mine", tmp_path, features=True)


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        ([ExpertRead("face", 7, "mean")], "has vectors of 6 values, but the recipe expects 7 for this expert"),
        ([ExpertRead("fece", 6, "mean")], "has no expert 'fece', which the recipe reads. Did you mean 'face'"),
    ],
)
def test_an_expert_that_a_recipe_does_not_read_so_is_one_message(
    reads: list[ExpertRead], said: str, root: Path
) -> None:
    with pytest.raises(DataError, match=said):
        load("mine", root, None, reads=tuple(reads))


def test_several_arrays_in_a_file_of_one_are_one_message(root: Path, tmp_path: Path) -> None:
    copytree(root, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "experts" / "face" / "features.npy").open("wb") as file:
        np.savez(file, one=np.zeros(2), two=np.ones(2))
    with pytest.raises(
        DataError, match=r"features.npy: cannot be read: it contains several arrays, like an .npz file, not one"
    ):
        load("mine", tmp_path, None, reads=READS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("video0", r"videos.txt, line 1: is 'video0', not a video's name and a number"),
        ("video0 two", r"videos.txt, line 1: is 'video0 two', not a video's name and a number"),
        ("video1 2", r"videos.txt: names videos more than once: video1"),
    ],
)
def test_a_line_that_tells_no_number_of_vectors_is_one_message(
    line: str, said: str, root: Path, tmp_path: Path
) -> None:
    copytree(root, tmp_path, dirs_exist_ok=True)
    listing = tmp_path / "experts" / "face" / expert_files.VIDEOS
    listing.write_text("\n".join([line, *listing.read_text().splitlines()[1:]]) + "\n")
    with pytest.raises(DataError, match=said):
        load("mine", tmp_path, None, reads=READS)


def test_a_video_without_a_caption_is_one_message(root: Path, tmp_path: Path) -> None:
    (tmp_path / "experts").symlink_to(root / "experts")
    told = json.loads((root / "MSRVTT_data.json").read_text())
    told["sentences"] = [sentence for sentence in told["sentences"] if sentence["video_id"] != "video5"]
    (tmp_path / "MSRVTT_data.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="1 video of the train split without a caption: video5"):
        load("mine", tmp_path, None, reads=READS)


def test_a_video_given_twice_is_one_message(root: Path, tmp_path: Path) -> None:
    (tmp_path / "experts").symlink_to(root / "experts")
    told = json.loads((root / "MSRVTT_data.json").read_text())
    told["videos"] += [video for video in told["videos"] if video["video_id"] == "video5"]
    (tmp_path / "MSRVTT_data.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="1 video of the train split given more than once: video5"):
        load("mine", tmp_path, None, reads=READS)


def edited(root: Path, folder: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a root whose captions and splits are changed."""
    (folder / "experts").symlink_to(root / "experts")
    content = json.loads((root / "MSRVTT_data.json").read_text())
    edit(content)
    (folder / "MSRVTT_data.json").write_text(json.dumps(content))
    return folder


def renamed(content: dict[str, Any]) -> None:
    for entry in (*content["videos"], *content["sentences"]):
        entry["video_id"] += ".mp4"


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "names": (renamed, r"face.videos\.txt: has no vectors for any video of train and val and test\. The first is "
              r"'video0\.mp4', and the most similar name here is 'video0': use the same names"),
    "split": (lambda c: c["videos"][7].update(split="TRAIN"),
              r"videos\[7\], video7: unknown split 'TRAIN'\. Known: .* Did you mean 'train'\?"),
    "null": (lambda c: c["sentences"][4].update(caption=None),
             r"sentences\[4\], a caption of video1: is null, not text"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_names_splits_and_captions_that_are_wrong_are_named(name: str, root: Path, tmp_path: Path) -> None:
    edit, said = EDITS[name]
    edited(root, tmp_path, edit)
    with pytest.raises(DataError, match=said):
        load("mine", tmp_path, None, reads=READS)
    assert re.search(said, "\n".join(map(str, check("mine", tmp_path).problems)))


def test_dev_is_val_and_captions_of_unknown_videos_are_counted(root: Path, tmp_path: Path) -> None:
    def edit(told: dict[str, Any]) -> None:
        told["videos"][24].update(split="dev")
        told["sentences"] += [{"video_id": f"v{n}", "caption": "a dog"} for n in (1, 1, 2)]

    edited(root, tmp_path, edit)
    assert len(load("mine", tmp_path, None, reads=READS).val.images) == made.COUNTS["validate"]
    note = "3 captions of 2 videos in no split: v1, v2"
    assert [problem.what for problem in check("mine", tmp_path).problems] == [note]
    assert [problem.what for problem in content("mine", tmp_path, features=True).problems] == [note]


def test_an_expert_that_saw_half_of_the_videos_is_noted(root: Path, tmp_path: Path) -> None:
    """It is no fault: in the published features, not each video has a face or speech."""
    copytree(root, tmp_path, dirs_exist_ok=True)
    listing = tmp_path / "experts" / "face" / expert_files.VIDEOS
    lines = listing.read_text().splitlines()
    others = {f"video{n}" for n in range(24, 27)}
    listing.write_text("".join(f"{'x' * (line.split()[0] in others)}{line}\n" for line in lines))
    load("mine", tmp_path, None, reads=READS)
    (problem,) = check("mine", tmp_path).problems
    assert (problem.what, problem.kind) == ("has vectors for only 3 of 6 videos of val", "note")


def test_a_copy_of_1k_a_lacks_its_test_or_validates_on_videos_that_train(root: Path, tmp_path: Path) -> None:
    for name in ("experts", "MSRVTT_data.json"):
        (tmp_path / name).symlink_to(root / name)
    problems = check("msr-vtt-1k-a", tmp_path).problems
    missing = [problem.what for problem in problems if problem.place.endswith(msr_vtt.TEST_1K_A)]
    assert missing == ["is missing: the 1k-A test split, one row per video with its caption"]
    rows = "".join(f"ret{n},msr{n},video{n},a man\n" for n in range(30, 38))
    (tmp_path / msr_vtt.TEST_1K_A).write_text(f"key,vid_key,video_id,sentence\n{rows}")
    report = check("msr-vtt-1k-a", tmp_path)
    assert all("officially" in problem.what for problem in report.problems)
    assert report.parts[0].notes["val"].endswith("its videos are also used for training, as in MMT")


def test_recipes_for_images_refuse_videos(root: Path) -> None:
    with pytest.raises(DataError, match="data set 'mine' has features of videos"):
        load("mine", root, None)


@pytest.mark.parametrize(("name", "recipe"), [("msr-vtt", "fc-bow"), ("mine", "ce")])
def test_captions_describe_videos_where_the_data_set_or_the_model_says_so(name: str, recipe: str) -> None:
    assert catalog.noun(name, catalog.recipe(recipe).model) == "video"
