"""Published features of experts become arrays that hold the same numbers; a source that does not fit is one message."""

import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

from goalgrid.retrieval.components.video import expert_files
from goalgrid.retrieval.components.video.convert import convert
from goalgrid.retrieval.components.video.expert_files import Expert
from goalgrid.retrieval.splits.pairs import DataError

RNG = np.random.default_rng(0)
VECTORS = {"video0": RNG.normal(size=(3, 4)).astype(np.float32), "video7": RNG.normal(size=(1, 4)).astype(np.float32)}


class Code:
    """What a pickle must not run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def read(root: Path, expert: str) -> Expert:
    found = expert_files.read(root / "experts" / expert, [])
    assert found is not None
    return found


def vectors_of(expert: Expert, video: str) -> np.ndarray:
    start, count = expert.spans_of([video])[0]
    return np.asarray(expert.array[start : start + count])


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_of_ce_keeps_its_numbers(protocol: int, tmp_path: Path) -> None:
    content = {**VECTORS, "video1": float("nan"), "video2": VECTORS["video7"][0], "video3": np.full((1, 4), np.nan)}
    (tmp_path / "face.pickle").write_bytes(pickle.dumps(content, protocol=protocol))
    assert convert([f"face={tmp_path}/face.pickle"], tmp_path) == {"face": 3}
    expert = read(tmp_path, "face")
    for video, vectors in VECTORS.items():
        np.testing.assert_array_equal(vectors_of(expert, video), vectors)
    np.testing.assert_array_equal(vectors_of(expert, "video2"), VECTORS["video7"])
    assert [len(vectors_of(expert, video)) for video in ("video1", "video3", "never")] == [0, 0, 0]


def test_h5_files_of_mmt_keep_their_numbers_and_times(tmp_path: Path) -> None:
    (tmp_path / "h5" / "7").mkdir(parents=True)
    times = np.array([[0, 1], [1, 2], [-1, -1]])
    for video, vectors in VECTORS.items():
        with h5py.File(tmp_path / "h5" / "7" / f"{video}.h5", "w") as file:
            file["features.s3d"], file["features_t.s3d"] = vectors, times[: len(vectors)]
            file["features.rgb"], file["features.face"] = vectors * 2, vectors[:0]
    assert convert([str(tmp_path / "h5")], tmp_path) == {"face": 0, "rgb": 2, "s3d": 2}
    s3d, rgb = read(tmp_path, "s3d"), read(tmp_path, "rgb")
    np.testing.assert_array_equal(vectors_of(s3d, "video0"), VECTORS["video0"])
    np.testing.assert_array_equal(vectors_of(rgb, "video7"), VECTORS["video7"] * 2)
    assert s3d.times is not None
    assert rgb.times is not None
    np.testing.assert_allclose(s3d.times, [0.5, 1.5, -1, 0.5])
    np.testing.assert_allclose(rgb.times, [0, 0.2, 0.4, 0])


def test_a_file_a_video_keeps_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    np.save(tmp_path / "audio" / "video0.npy", VECTORS["video0"].astype(np.float16))
    np.savez(tmp_path / "audio" / "video7.npz", features=VECTORS["video7"], times=[3.5])
    assert convert([f"audio={tmp_path}/audio"], tmp_path) == {"audio": 2}
    expert = read(tmp_path, "audio")
    assert expert.array.dtype == np.float16
    np.testing.assert_array_equal(vectors_of(expert, "video0"), VECTORS["video0"].astype(np.float16))
    assert expert.times is not None
    np.testing.assert_allclose(expert.times, [-1, -1, -1, 3.5])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"video0": Code()}, "it refers to posix.system, which arrays do not need; the code was not run"),
        ({"video0": np.ones((2, 4)), "video1": np.ones((2, 5))}, "5 values for 'video1', but of 4 for 'video0'"),
        ({"video0": np.array([[1.0, np.nan]])}, "has NaN or infinity in the vectors of 'video0'"),
        ({"video0": np.ones((2, 3, 4))}, r"expected numbers \(D\) or \(T, D\)"),
        ([1, 2], "holds a list"),
        ({"video0": "x"}, r"expected numbers \(D\) or \(T, D\)"),
    ],
    ids=["code", "width", "NaN", "shape", "list", "text"],
)
def test_a_pickle_that_does_not_fit_is_one_message(
    content: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("face.pickle").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=said):
        convert(["face=face.pickle"], tmp_path)
    assert not Path("ran").exists()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["face.pickle"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("face", "neither EXPERT=PATH nor"),
        ("face=", "neither EXPERT=PATH nor"),
        ("../face=no.pickle", "expert '../face' must be a valid folder name"),
        ("face=no.pickle", "No such file"),
        ("face=.", "no .npy"),
    ],
)
def test_a_source_that_is_none_is_one_message(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        convert([source], tmp_path)
