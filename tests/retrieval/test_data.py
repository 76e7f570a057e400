"""Data sets: all forms through one interface, and what loading refuses."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import opening, precomp, shapes
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.fit import check_protocol
from goalgrid.retrieval.splits.pairs import DataError

from .packages import write_karpathy, write_precomp

CNN = View(16)
LINEAR = None


class TestShapes:
    def test_it_is_the_same_on_every_machine(self) -> None:
        """Golden: other data would make other numbers under the same trial ids."""
        sums = ""
        for split in shapes.load(View(32)).splits.values():
            pixels = split.images.gather(np.arange(len(split.images))).numpy().tobytes()
            whole = hashlib.sha256(hashlib.sha256(pixels).hexdigest().encode())
            whole.update(split.image_of_text.tobytes() + "\n".join(split.captions).encode())
            sums += whole.hexdigest()
        assert hashlib.sha256(sums.encode()).hexdigest()[:16] == "cf9fed8a2ff8c51f"

    def test_every_image_has_five_different_captions(self) -> None:
        for split in (pairs := shapes.load(View(8))).train, pairs.val, pairs.test:
            for image in range(0, len(split.images), 50):
                rows = np.flatnonzero(split.image_of_text == image)
                assert len({split.captions[row] for row in rows}) == 5

    def test_splits_share_no_scene(self) -> None:
        pairs = shapes.load(View(8))
        first = [
            {split.captions[row] for row in range(0, len(split.captions), 5)} for split in (pairs.train, pairs.test)
        ]
        assert len(first[1] - first[0]) > 0.9 * len(first[1])


class TestPrecomp:
    @pytest.mark.parametrize("repeated", [False, True])
    @pytest.mark.parametrize("ids", [False, True])
    def test_both_row_layouts_give_one_row_an_image(self, tmp_path: Path, repeated: bool, ids: bool) -> None:
        write_precomp(tmp_path, repeated=repeated, ids=ids)
        split = precomp.load(tmp_path).train
        assert len(split.images) == 6
        for row, caption in enumerate(split.captions):
            image = split.images.gather(split.image_of_text[[row]])
            assert caption.startswith(f"image {int(image[0, 0, 0]) - 1} ")

    def test_the_shape_of_an_image_is_read_of_the_header_alone(self, tmp_path: Path) -> None:
        """1.3 TB, none of which is on the disk."""
        np.lib.format.open_memmap(tmp_path / "train_ims.npy", mode="w+", dtype=np.float32, shape=(1 << 22, 38, 2048))
        assert precomp.shape(tmp_path) == (38, 2048)

    def test_features_stay_on_disk_in_their_type(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        images = precomp.load(tmp_path).train.images
        assert isinstance(images, precomp.Features)
        assert images.shape == (3, 4)
        assert isinstance(images.array.base, np.memmap)
        assert images.gather(np.array([1, 0])).dtype == torch.float16

    def test_captions_of_one_image_may_be_any_number(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        (tmp_path / "dev_caps.txt").write_text("a\nb\nc\nd\n")
        (tmp_path / "dev_ids.txt").write_text("7\n7\n7\n9\n")
        np.save(tmp_path / "dev_ims.npy", np.ones((2, 4), np.float32))
        assert precomp.load(tmp_path).val.image_of_text.tolist() == [0, 0, 0, 1]

    @pytest.mark.parametrize("rows", [2, 4])
    def test_captions_of_one_image_stand_together_where_a_row_is_an_image(self, tmp_path: Path, rows: int) -> None:
        write_precomp(tmp_path)
        (tmp_path / "dev_caps.txt").write_text("a\nb\nc\nd\n")
        (tmp_path / "dev_ids.txt").write_text("9\n7\n9\n7\n")
        np.save(tmp_path / "dev_ims.npy", np.arange(rows * 4, dtype=np.float32).reshape(rows, 4))
        if rows == 2:  # which of the two is the first row's image, nobody says
            with pytest.raises(DataError, match=r"dev_ids.txt: 2 ids with captions in lines that are not consecutive"):
                precomp.load(tmp_path)
        else:
            val = precomp.load(tmp_path).val
            assert val.images.gather(val.image_of_text)[:, 0].tolist() == [0.0, 4.0, 0.0, 4.0]

    def test_testall_is_used_where_it_is_wanted(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        for kind in ("ims.npy", "caps.txt", "ids.txt"):
            (tmp_path / f"test_{kind}").rename(tmp_path / f"testall_{kind}")
        assert len(precomp.load(tmp_path, test_splits=["testall", "test"]).test.images) == 6

    def test_numbers_that_do_not_match_are_named(self, tmp_path: Path) -> None:
        write_precomp(tmp_path, ids=False)
        np.save(tmp_path / "dev_ims.npy", np.ones((7, 4), np.float32))
        with pytest.raises(DataError, match=r"dev_ims\.npy has 7 rows, .*dev_caps\.txt 30 lines"):
            precomp.load(tmp_path)

    def test_ids_that_count_other_images_than_the_features_are_no_guesswork(self, tmp_path: Path) -> None:
        write_precomp(tmp_path, repeated=True)
        np.save(tmp_path / "dev_ims.npy", np.ones((5, 4), np.float32))  # 30 captions would fit 5 images of 6 each
        with pytest.raises(DataError, match=r"dev_ims\.npy has 5 rows"):
            precomp.load(tmp_path)

    def test_an_empty_split_is_named(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        (tmp_path / "dev_caps.txt").write_text("")
        with pytest.raises(DataError, match=r"dev split under .* is empty: 6 feature rows, 0 captions"):
            precomp.load(tmp_path)

    def test_a_missing_or_broken_file_is_named(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        (tmp_path / "dev_ims.npy").write_bytes(b"\x93NUMPY")
        with pytest.raises(DataError, match=r"dev_ims\.npy: cannot be read"):
            precomp.load(tmp_path)
        (tmp_path / "dev_ims.npy").unlink()
        with pytest.raises(DataError, match=r"dev_ims\.npy: is missing"):
            precomp.load(tmp_path)

    def test_integers_are_no_features(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        np.save(tmp_path / "train_ims.npy", np.ones((6, 4), np.int64))
        with pytest.raises(DataError, match="expected floats"):
            precomp.load(tmp_path)


class TestRawImages:
    def test_a_split_without_images_is_an_error(self, tmp_path: Path) -> None:
        path = write_karpathy(tmp_path)
        annotated = json.loads(path.read_text())
        annotated["images"] = [entry for entry in annotated["images"] if entry["split"] != "val"]
        path.write_text(json.dumps(annotated))
        with pytest.raises(DataError, match="the val split of 'flickr8k' is empty"):
            content("flickr8k", tmp_path, features=False)

    def test_one_pair_is_too_little_to_train_on(self, tmp_path: Path) -> None:
        path = write_karpathy(tmp_path, counts=(1, 1, 1, 1))
        annotated = json.loads(path.read_text())
        del annotated["images"][1]
        path.write_text(json.dumps(annotated))
        with pytest.raises(DataError, match="so there are no negatives"):
            content("flickr8k", tmp_path, features=False)

    def test_without_annotations_it_says_what_is_expected(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no annotations under .*dataset\.json.*captions_train2014.*id_mapping"):
            opening.load("flickr8k", tmp_path, CNN)


class TestProtocol:
    @pytest.mark.parametrize("images", [999, 1001])
    def test_another_number_of_test_images_is_not_the_protocol(self, tmp_path: Path, images: int) -> None:
        write_precomp(tmp_path, images=images, captions=1)
        pairs = opening.load("flickr8k", tmp_path, LINEAR)
        with pytest.raises(
            DataError, match=rf"has {images:,} images; protocol 'flickr8k-1k' requires 1,000.*my-flickr8k"
        ):
            check_protocol(len(pairs.test.images), "flickr8k", "flickr8k-1k", None)

    def test_coco_test_alone_names_testall(self, tmp_path: Path) -> None:
        write_precomp(tmp_path, images=1000, captions=1)
        pairs = opening.load("coco", tmp_path, LINEAR)
        for protocol in ("coco-5k", "coco-5x1k"):
            with pytest.raises(DataError, match=r"has 1,000 images; protocol .* requires 5,000.*`testall`"):
                check_protocol(len(pairs.test.images), "coco", protocol, None)

    def test_data_of_ones_own_may_have_any_size(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        pairs = opening.load("mine", tmp_path, LINEAR)
        check_protocol(len(pairs.test.images), "mine", "mine-test", None)
        assert len(pairs.test.images) == 6

    def test_the_first_validation_images_keep_their_captions(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        val = opening.load("mine", tmp_path, LINEAR).val
        images, texts = val.first(2)
        assert (images, texts.tolist()) == (2, list(range(10)))
        assert val.first(None)[0] == val.first(99)[0] == 6
        assert len(val.first(None)[1]) == 30

    def test_noise_shuffles_images_among_a_share_of_the_captions(self, tmp_path: Path) -> None:
        write_precomp(tmp_path)
        train = opening.load("mine", tmp_path, LINEAR).train
        few, many = train.shuffled(0.2, seed=1), train.shuffled(0.6, seed=1)
        for split, share in ((few, 0.2), (many, 0.6)):
            assert sorted(split.image_of_text) == sorted(train.image_of_text)
            assert split.matched is not None
            assert split.matched.tolist() == (split.image_of_text == train.image_of_text).tolist()
            assert 0 < (~split.matched).sum() <= share * len(train.captions)
        assert many.image_of_text.tolist() == train.shuffled(0.6, seed=1).image_of_text.tolist()
        assert many.image_of_text.tolist() != train.shuffled(0.6, seed=2).image_of_text.tolist()


class TestLoad:
    def test_without_a_root_it_says_what_is_needed(self) -> None:
        with pytest.raises(UserError, match=r"no root for data set 'flickr8k'.*--root DIR"):
            opening.load("flickr8k", None, LINEAR)

    def test_a_root_that_is_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for root in (tmp_path / "none", Path("none")):
            with pytest.raises(UserError, match=f"no folder at {tmp_path}/none"):
                opening.load("flickr8k", root, LINEAR)

    def test_features_are_found_below_the_root(self, tmp_path: Path) -> None:
        (tmp_path / "precomp").mkdir()
        write_precomp(tmp_path / "precomp")
        assert opening.load("flickr8k", tmp_path, LINEAR).train.images.shape == (3, 4)

    def test_the_wrong_form_says_which_recipe_fits(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no train_ims\.npy .* choose a cnn-\* recipe"):
            opening.load("flickr8k", tmp_path, LINEAR)
        with pytest.raises(UserError, match="has images only"):
            opening.load("shapes", None, LINEAR)

    def test_real_photographs_both_ways(self, flickr8k: Path) -> None:
        features = opening.load("flickr8k", flickr8k, LINEAR)
        photographs = opening.load("flickr8k", flickr8k, CNN)
        for split in ("train", "val", "test"):
            a, b = getattr(features, split), getattr(photographs, split)
            assert len(a.images) == len(b.images) == (6000 if split == "train" else 1000)
            assert len(a.captions) == len(b.captions) == 5 * len(a.images)
        assert sorted(features.test.captions)[:100] == sorted(photographs.test.captions)[:100]
