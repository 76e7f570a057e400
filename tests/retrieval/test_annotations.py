"""Annotation formats: images and captions in their order, and never a file outside the user's folders."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goalgrid.retrieval.data.annotations import Annotated, find
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.pairs import DataError, Listing

from .packages import (
    write_coco,
    write_coco_splits,
    write_csv,
    write_csv_with_lists,
    write_image,
    write_karpathy,
    write_tokens,
    write_vse_infinity,
    write_xvlm,
)


def change(path: Path, edit: Callable[[Any], object]) -> None:
    """Rewrite a JSON file after `edit` has changed its content in place."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def load(name: str, root: Path) -> list[Listing[list[FileSlice]]]:
    """Train, val and test."""
    return list(Annotated.of(name, root).listings.values())


def aligned(listing: Listing[list[FileSlice]]) -> bool:
    """Whether every caption `image N ...` stands with the file of that number."""
    owners = [listing.images[row].path.stem.removeprefix("COCO_") for row in listing.image_of_text]
    return [caption.split()[1] for caption in listing.captions] == owners


class TestKarpathy:
    def test_restval_trains_and_captions_may_be_any_number(self, tmp_path: Path) -> None:
        write_karpathy(tmp_path)
        train, val, test = load("flickr8k", tmp_path)
        assert train.image_of_text.tolist() == [0] * 5 + [1] * 3
        assert train.captions[5] == "a restval picture 0"
        assert [file.name for file in train.images] == ["0.png", "1.png"]
        assert (len(val.captions), len(test.captions)) == (4, 1)

    def test_a_missing_image_is_named(self, tmp_path: Path) -> None:
        write_karpathy(tmp_path)
        (tmp_path / "images" / "3.png").unlink()
        with pytest.raises(DataError, match=r"images/3\.png: the image is missing"):
            load("flickr8k", tmp_path)

    @pytest.mark.parametrize(
        ("name", "file"), [("3.jpeg", "3.jpg"), ("3.jpg", "3.JPG"), ("3", "3.png"), ("3.b", "3.b.jpg")]
    )
    def test_an_image_of_another_ending_is_named(self, name: str, file: str, tmp_path: Path) -> None:
        path = write_karpathy(tmp_path)
        (tmp_path / "images" / "3.png").rename(tmp_path / "images" / file)
        change(path, lambda content: content["images"][3].update(filename=name))
        advice = re.escape(f"{tmp_path}/images contains {file}. Use that extension in the annotations.")
        with pytest.raises(DataError, match=rf"images/{name}: the image is missing; {advice}"):
            load("flickr8k", tmp_path)
        change(path, lambda content: content.update(images=[content["images"][3]]))
        with pytest.raises(DataError, match=rf"no folder below it contains '{name}' or any other.*; {advice}"):
            load("flickr8k", tmp_path)

    def test_many_missing_images_are_counted(self, tmp_path: Path) -> None:
        write_karpathy(tmp_path)
        for number in (1, 2, 3):
            (tmp_path / "images" / f"{number}.png").unlink()
        with pytest.raises(DataError, match="3 problems"):
            load("flickr8k", tmp_path)

    @pytest.mark.parametrize("folder", ["karpathy", "annotations"])
    @pytest.mark.parametrize("name", ["dataset.json", "dataset_flickr30k.json", "dataset_own.json"])
    def test_the_json_may_stand_in_a_folder_of_its_own(self, tmp_path: Path, folder: str, name: str) -> None:
        path = write_karpathy(tmp_path)
        (tmp_path / folder).mkdir()
        path.rename(tmp_path / folder / name)
        assert len(load("flickr30k", tmp_path)[0].images) == 2

    def test_of_several_jsons_that_of_the_data_set_is_read(self, tmp_path: Path) -> None:
        path = write_karpathy(tmp_path)
        for name in ("coco", "flickr8k", "flickr30k"):
            shutil.copy(path, tmp_path / f"dataset_{name}.json")
        path.unlink()
        found = find("flickr30k", tmp_path)
        assert found
        assert found[1].name == "dataset_flickr30k.json"

    @pytest.mark.parametrize(
        "folder",
        [
            *(".", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset", "photos"),
            *("images/flickr30k-images", "flickr30k_images/flickr30k_images"),
        ],
    )
    def test_image_folders_as_people_have_them(self, tmp_path: Path, folder: str) -> None:
        write_karpathy(tmp_path)
        (tmp_path / "images").rename(tmp_path / "aside")
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for file in (tmp_path / "aside").iterdir():
            file.rename(tmp_path / folder / file.name)
        train = load("flickr30k", tmp_path)[0]
        assert [file.path.parent for file in train.images] == [tmp_path / folder] * 2

    @pytest.mark.parametrize("folder", [".", "images"])
    @pytest.mark.parametrize("flat", [False, True])
    def test_coco_files_stand_below_their_filepath_or_flat(self, tmp_path: Path, folder: str, flat: bool) -> None:
        path = write_karpathy(tmp_path)
        shutil.rmtree(tmp_path / "images")
        for number, year in enumerate(("train2014", "val2014", "val2014", "val2014")):
            write_image(tmp_path / folder / ("" if flat else year) / f"{number}.png", number)
            change(path, lambda content, n=number, y=year: content["images"][n].update(filepath=y))
        assert [len(listing.images) for listing in load("coco", tmp_path)] == [2, 1, 1]

    @pytest.mark.parametrize(
        "content",
        [
            *("[]", "{", '{"images": {}}', '{"images": []}', '{"images": [3]}', '{"images": [{"filename": "a"}]}'),
            '{"images": [{"filename": "a", "split": "train", "sentences": []}]}',
            '{"images": [{"filename": "a", "split": "tset", "sentences": [{"raw": "b"}]}]}',
            '{"images": [{"filename": "a", "split": "train", "sentences": [{"tokens": ["b"]}]}]}',
        ],
    )
    def test_another_layout_is_named(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "dataset.json").write_text(content)
        with pytest.raises(DataError, match=r"dataset\.json"):
            load("flickr8k", tmp_path)


class TestCoco:
    @pytest.mark.parametrize("below", ["images", "."])
    def test_it_loads_in_the_order_of_the_ids(self, tmp_path: Path, below: str) -> None:
        write_coco(tmp_path)
        if below == ".":
            for year in ("train2014", "val2014"):
                (tmp_path / "images" / year).rename(tmp_path / year)
        train, val, test = load("coco", tmp_path)
        assert [file.path.stem for file in train.images] == ["COCO_1", "COCO_0", "COCO_11", "COCO_10"]
        assert [file.path.parent.name for file in train.images] == ["train2014"] * 2 + ["val2014"] * 2
        assert train.captions[:2] == ["image 1 caption 0", "image 1 caption 1"]
        assert (len(val.images), len(test.images)) == (2, 2)
        assert all(aligned(listing) for listing in (train, val, test))

    def test_without_restval_only_train2014_trains(self, tmp_path: Path) -> None:
        write_coco(tmp_path, restval=False)
        assert len(load("coco", tmp_path)[0].images) == 2

    def test_id_files_may_stand_in_the_root(self, tmp_path: Path) -> None:
        write_coco(tmp_path)
        for path in (tmp_path / "annotations").glob("*.npy"):
            path.rename(tmp_path / path.name)
        assert len(load("coco", tmp_path)[0].images) == 4

    def test_ids_that_are_pickles_are_not_opened(self, tmp_path: Path) -> None:
        write_coco(tmp_path)
        np.save(tmp_path / "annotations" / "coco_dev_ids.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match=r"coco_dev_ids\.npy: cannot be read"):
            load("coco", tmp_path)

    def test_ids_of_images_instead_of_captions_are_named(self, tmp_path: Path) -> None:
        write_coco(tmp_path)
        np.save(tmp_path / "annotations" / "coco_test_ids.npy", np.array([31, 32]))
        with pytest.raises(DataError, match=r"2 annotation ids not in captions_val2014\.json: 31, 32"):
            load("coco", tmp_path)

    def test_a_missing_id_file_is_named(self, tmp_path: Path) -> None:
        write_coco(tmp_path)
        (tmp_path / "annotations" / "coco_dev_ids.npy").unlink()
        with pytest.raises(DataError, match=r"coco_dev_ids\.npy: is missing"):
            load("coco", tmp_path)


class TestCocoSplits:
    def test_a_caption_file_a_split_needs_no_id_files(self, tmp_path: Path) -> None:
        write_coco_splits(tmp_path)
        train, val, test = load("mine", tmp_path)
        assert [file.name for file in train.images] == ["COCO_1.png", "COCO_2.png"]
        assert all(map(aligned, (train, val, test)))
        assert (len(val.images), len(test.captions)) == (2, 4)

    def test_a_caption_of_an_unlisted_image_is_left_out_and_noted(self, tmp_path: Path) -> None:
        write_coco_splits(tmp_path)
        lost = {"id": 7, "image_id": 99, "caption": "nothing"}
        change(tmp_path / "captions_val.json", lambda content: content["annotations"].append(lost))
        annotated = Annotated.of("mine", tmp_path)
        assert len(annotated.listings["val"].captions) == 4
        (note,) = annotated.problems
        assert note.what == "1 annotation of an image that is not in the list of images: 7 (image 99)"

    @pytest.mark.parametrize(
        ("edit", "said"),
        [
            (
                lambda content: content["images"][1].update(id=11),
                r"gives 1 image id more than once: 11\. Give each image",
            ),
            (lambda content: content["annotations"][1].update(id=110), r"gives 1 annotation id more than once: 110\."),
            (
                lambda content: content["annotations"].__delitem__(slice(2)),
                r"1 image without a caption: COCO_11\.png\.",
            ),
            (lambda content: content["images"][0].update(id=[1]), r"is not in COCO's layout \(TypeError"),
            (
                lambda content: content["annotations"][1].update(caption=None),
                r"annotations\[1\], annotation 111 of image 11: is null, not text\. Write the caption",
            ),
        ],
    )
    def test_ids_given_twice_and_images_without_captions_are_refused(
        self, tmp_path: Path, edit: Callable[[Any], object], said: str
    ) -> None:
        write_coco_splits(tmp_path)
        change(tmp_path / "captions_val.json", edit)
        with pytest.raises(DataError, match=rf"captions_val\.json: {said}"):
            load("mine", tmp_path)

    def test_a_split_without_its_file_is_named(self, tmp_path: Path) -> None:
        write_coco_splits(tmp_path)
        (tmp_path / "captions_train.json").unlink()
        with pytest.raises(DataError, match=r"captions_train\.json: is missing"):
            load("mine", tmp_path)

    def test_official_files_without_ids_are_told_both_ways(self, tmp_path: Path) -> None:
        write_coco(tmp_path)
        (tmp_path / "annotations" / "coco_test_ids.npy").unlink()
        with pytest.raises(DataError, match=r"coco_test_ids\.npy: is missing.*your own splits.*captions_test\.json"):
            load("coco", tmp_path)


def test_captions_have_the_ids_that_coco_gives_them(tmp_path: Path) -> None:
    """Karpathy's `sentid`, and the ids of annotations; none, where a caption has none."""
    path = write_karpathy(tmp_path / "karpathy")
    for image in range(4):
        change(path, lambda content, n=image: [
            sentence.update(sentid=10 * n - place) for place, sentence in enumerate(content["images"][n]["sentences"])
        ])  # fmt: skip
    train, val, _ = load("coco", tmp_path / "karpathy")
    assert train.ids is not None
    assert train.ids.tolist() == [0, -1, -2, -3, -4, 10, 9, 8]
    assert val.ids is not None
    change(path, lambda content: content["images"][2]["sentences"][1].pop("sentid"))
    assert load("coco", tmp_path / "karpathy")[1].ids is None
    write_coco(tmp_path / "coco")
    _, _, test = load("coco", tmp_path / "coco")
    assert test.ids is not None
    assert dict(zip(test.ids.tolist(), test.captions, strict=True))[31002] == "image 31 caption 2"


class TestXvlm:
    def test_captions_of_an_image_are_gathered_and_may_be_any_number(self, tmp_path: Path) -> None:
        write_xvlm(tmp_path)
        assert find("mine", tmp_path) == ("X-VLM's JSON", tmp_path / "mine_test.json")
        train, val, test = load("mine", tmp_path)
        for listing, split in ((train, "train"), (val, "val"), (test, "test")):
            assert [file.name for file in listing.images] == [f"{split}0.png", f"{split}1.png"]
            assert listing.image_of_text.tolist() == [0, 0, 0, 1, 1]
            assert listing.captions[3:] == [f"image photos/{split}1.png caption {c}" for c in range(2)]

    @pytest.mark.parametrize(
        ("edit", "said"),
        [
            (lambda items: items[1].pop("image"), r"mine_train\.json: item 1: names no image"),
            (lambda items: items[2].update(caption=[]), r"item 2: image 'photos/train0\.png' has no caption"),
            (lambda items: items[3].update(caption=7), r"item 3: image .* has no caption"),
            (lambda items: items[3].update(caption=["a dog", None]), r"item 3: image .*: caption\[1\] is not text"),
            (lambda items: items.clear(), r"mine_train\.json: contains no JSON list, or an empty one"),
        ],
    )
    def test_another_layout_is_named(self, tmp_path: Path, edit: Callable[[Any], object], said: str) -> None:
        write_xvlm(tmp_path)
        change(tmp_path / "mine_train.json", edit)
        with pytest.raises(DataError, match=said):
            load("mine", tmp_path)

    def test_a_split_without_its_list_is_named(self, tmp_path: Path) -> None:
        write_xvlm(tmp_path)
        (tmp_path / "mine_val.json").unlink()
        with pytest.raises(DataError, match=r"mine_val\.json: is missing"):
            load("mine", tmp_path)


class TestOwnFiles:
    def test_a_spreadsheet_s_csv_is_read(self, tmp_path: Path) -> None:
        write_csv(tmp_path)
        train, val, _ = load("mine", tmp_path)
        assert train.captions == ['a 0.png, and "more"', 'a 1.png, and "more"']
        assert [file.name for file in val.images] == ["2.png"]

    def test_spaces_around_the_name_of_an_image_are_none_of_it(self, tmp_path: Path) -> None:
        write_csv(tmp_path)
        with (tmp_path / "captions.csv").open("a") as file:
            file.write(" 0.png ,once more, train \n")
        train = load("mine", tmp_path)[0]
        assert [file.name for file in train.images] == ["0.png", "1.png"]
        assert train.image_of_text.tolist() == [0, 0, 1]

    def test_captions_of_an_image_may_stand_apart(self, tmp_path: Path) -> None:
        write_csv(tmp_path)
        with (tmp_path / "captions.csv").open("a") as file:
            file.write("0.png,once more,train\n")
        train = load("mine", tmp_path)[0]
        assert train.captions[1] == "once more"
        assert train.image_of_text.tolist() == [0, 0, 1]

    def test_without_splits_a_name_says_its_split_and_further_images_move_none(self, tmp_path: Path) -> None:
        def sizes(images: int) -> list[set[str]]:
            names = [f"{number}.png" for number in range(images)]
            (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(f"{name},a\n" for name in names))
            for number, name in enumerate(names):
                write_image(tmp_path / "images" / name, number)
            return [{file.name for file in listing.images} for listing in load("mine", tmp_path)]

        few, many = sizes(30), sizes(60)
        assert all(before <= after for before, after in zip(few, many, strict=True))
        assert [len(names) for names in many] == [48, 7, 5]

    @pytest.mark.parametrize("write", [write_csv_with_lists, write_tokens])
    def test_lists_may_leave_endings_out_and_images_that_they_do_not_name_are_not_used(
        self, write: Callable[[Path], object], tmp_path: Path
    ) -> None:
        write(tmp_path)
        (tmp_path / "train.txt").write_text("\ufeff0\r\n\r\n", encoding="utf-8")
        assert [[file.name for file in listing.images] for listing in load("mine", tmp_path)] == [
            ["0.png"],
            ["2.png"],
            ["3.png"],
        ]

    def test_of_two_token_files_the_lemmatised_one_is_left(self, tmp_path: Path) -> None:
        write_tokens(tmp_path)
        (tmp_path / "mine.lemma.token.txt").write_text("0.png#0\tlemma\n")
        assert load("mine", tmp_path)[0].captions[0] == "a 0.png 0"

    def test_sentences_may_be_plain_texts(self, tmp_path: Path) -> None:
        path = write_karpathy(tmp_path)
        change(path, lambda content: content["images"][3].update(sentences=["a dog", {"raw": "a cat"}]))
        assert load("mine", tmp_path)[2].captions == ["a dog", "a cat"]


class TestVseInfinity:
    @pytest.mark.parametrize("repeated", [False, True])
    @pytest.mark.parametrize("folder", ["images", "flickr30k-images"])
    def test_ids_may_stand_once_an_image_or_once_a_caption(self, tmp_path: Path, repeated: bool, folder: str) -> None:
        write_vse_infinity(tmp_path, repeated=repeated, folder=folder)
        train, val, test = load("flickr30k", tmp_path)
        assert [file.path.stem for file in train.images] == [str(i) for i in range(6)]
        assert [file.path.stem for file in val.images] == [str(100 + i) for i in range(6)]
        assert [len(listing.captions) for listing in (train, val, test)] == [30] * 3
        assert aligned(train)

    def test_coco_takes_testall(self, tmp_path: Path) -> None:
        write_vse_infinity(tmp_path)
        for kind in ("caps", "ids"):
            text = (tmp_path / "precomp" / f"test_{kind}.txt").read_text().splitlines()
            (tmp_path / "precomp" / f"testall_{kind}.txt").write_text("\n".join(text) + "\n")
            (tmp_path / "precomp" / f"test_{kind}.txt").write_text("\n".join(text[: len(text) // 3]) + "\n")
        assert len(load("coco", tmp_path)[2].images) == 6
        assert len(load("flickr30k", tmp_path)[2].images) == 2

    def test_an_id_without_a_file_name_is_named(self, tmp_path: Path) -> None:
        write_vse_infinity(tmp_path)
        change(tmp_path / "id_mapping.json", lambda content: content.pop("103"))
        with pytest.raises(DataError, match=r"dev_ids\.txt: 1 id not in id_mapping\.json: 103"):
            load("flickr30k", tmp_path)

    def test_ids_that_do_not_fit_the_captions_are_named(self, tmp_path: Path) -> None:
        write_vse_infinity(tmp_path)
        (tmp_path / "precomp" / "dev_ids.txt").write_text("100\n101\n102\n103\n")
        with pytest.raises(DataError, match=r"dev_ids\.txt: has 4 ids for the 30 lines"):
            load("flickr30k", tmp_path)


@pytest.mark.parametrize(("name", "captions"), [("coco", 5), ("flickr30k", 7), ("mine", 7)])
@pytest.mark.parametrize("write", ["karpathy", "coco", "vse-infinity"])
def test_coco_keeps_the_first_five_captions_and_others_all(
    tmp_path: Path, write: str, name: str, captions: int
) -> None:
    if write == "karpathy":
        write_karpathy(tmp_path, counts=(7, 7, 7, 7))
    elif write == "coco":
        write_coco(tmp_path, captions=7)
    else:
        write_vse_infinity(tmp_path)
        for split in ("train", "dev", "test"):
            lines = [f"image {i} caption {c}" for i in range(6) for c in range(7)]
            (tmp_path / "precomp" / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
    for listing in load(name, tmp_path):
        assert set(np.bincount(listing.image_of_text)) == {captions}
        assert [caption[-1] for caption in listing.captions[:captions]] == [str(c) for c in range(captions)]


class TestOutside:
    """The root is the wall: whatever annotations say, no file beyond it is opened."""

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        (tmp_path / "elsewhere").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "secret.png")
        return tmp_path / "elsewhere" / "secret.png"

    @pytest.mark.parametrize("name", ["../../elsewhere/secret.png", "a/../../../elsewhere/secret.png", "ABSOLUTE"])
    @pytest.mark.parametrize("field", ["filename", "filepath"])
    def test_karpathy_names(self, tmp_path: Path, secret: Path, name: str, field: str) -> None:
        path = write_karpathy(tmp_path / "root")
        value = str(secret) if name == "ABSOLUTE" else name
        given = {"filename": value} if field == "filename" else {"filename": "secret.png", "filepath": value[:-11]}
        change(path, lambda content: content["images"][3].update(given))
        with pytest.raises(DataError, match="leads out of"):
            load("flickr8k", tmp_path / "root")

    @pytest.mark.parametrize("name", ["../../elsewhere/secret.png", "ABSOLUTE"])
    def test_id_mapping_names(self, tmp_path: Path, secret: Path, name: str) -> None:
        write_vse_infinity(tmp_path / "root")
        value = str(secret) if name == "ABSOLUTE" else name
        change(tmp_path / "root" / "id_mapping.json", lambda content: content.update({"201": value}))
        with pytest.raises(DataError, match="leads out of"):
            load("flickr30k", tmp_path / "root")

    def test_coco_names(self, tmp_path: Path, secret: Path) -> None:
        write_coco(tmp_path / "root")
        path = tmp_path / "root" / "annotations" / "captions_val2014.json"
        change(path, lambda content: content["images"][-1].update(file_name=str(secret)))
        with pytest.raises(DataError, match="leads out of"):
            load("coco", tmp_path / "root")

    @pytest.mark.parametrize("link", ["file", "folder"])
    def test_links(self, tmp_path: Path, secret: Path, link: str) -> None:
        path = write_karpathy(tmp_path / "root")
        images = tmp_path / "root" / "images"
        (images / "out").symlink_to(secret if link == "file" else secret.parent)
        name = "out" if link == "file" else "out/secret.png"
        change(path, lambda content: content["images"][3].update(filename=name))
        with pytest.raises(DataError, match="leads out of"):
            load("flickr8k", tmp_path / "root")

    def test_images_that_all_are_links_out_of_the_root_are_told_so_and_the_advice_helps(self, tmp_path: Path) -> None:
        write_karpathy(tmp_path / "root")
        (tmp_path / "root" / "images").rename(tmp_path / "a store")
        (tmp_path / "root" / "images").mkdir()
        for file in (tmp_path / "a store").iterdir():
            (tmp_path / "root" / "images" / file.name).symlink_to(file)
        with pytest.raises(DataError, match=r"the link '0\.png' leads out of .*/images; so do 3 others") as told:
            load("flickr8k", tmp_path / "root")
        command = str(told.value).partition("link their folder into the root (")[2].partition(")")[0]
        subprocess.run(shlex.split(command), check=True)
        assert len(load("flickr8k", tmp_path / "root")[0].images) == 2

    def test_a_link_is_no_advice_where_no_image_is_found(self, tmp_path: Path, secret: Path) -> None:
        path = write_karpathy(tmp_path / "root")
        change(path, lambda content: [entry.update(filename=f"sub/{secret.name}") for entry in content["images"]])
        (tmp_path / "root" / "images" / secret.name).symlink_to(secret)
        with pytest.raises(DataError, match=r"no folder below it contains 'sub/secret\.png'.*Put the images into"):
            load("flickr8k", tmp_path / "root")

    def test_links_that_stay_inside_and_a_linked_image_folder_are_fine(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        write_karpathy(root)
        (root / "images").rename(tmp_path / "disk")
        (root / "images").symlink_to(tmp_path / "disk")
        (tmp_path / "disk" / "0.png").rename(tmp_path / "disk" / "real.png")
        (tmp_path / "disk" / "0.png").symlink_to("real.png")
        assert len(load("flickr8k", root)[0].images) == 2

    @pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\ud800.png", "images"])
    def test_names_that_no_image_can_have_are_missing_images(self, tmp_path: Path, name: str) -> None:
        path = write_karpathy(tmp_path)
        change(path, lambda content: content["images"][3].update(filename=name))
        with pytest.raises(DataError, match="the image is missing"):
            load("flickr8k", tmp_path)
