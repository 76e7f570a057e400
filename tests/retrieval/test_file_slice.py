"""Images inside larger files: the same pixels, sizes and checksums as in files of their own."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goalgrid.retrieval.data.check import look_at
from goalgrid.retrieval.data.content import Stamp
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.picture_files import opened, read_as, size_of
from goalgrid.retrieval.splits.pairs import DataError


@pytest.fixture
def joined(tmp_path: Path) -> tuple[list[Path], list[FileSlice]]:
    """Three pictures as files, one of them turned by EXIF; and as parts of one file, with other bytes between them."""
    files, parts, whole = [], [], b"front"
    for place, size in enumerate([(40, 30), (30, 60), (8, 8)]):
        noise = np.random.default_rng(place).integers(0, 255, (*size, 3), dtype=np.uint8)
        files.append(tmp_path / f"{place}.png")
        exif = Image.Exif()
        exif[0x112] = 6 if place == 1 else 1
        Image.fromarray(noise).save(files[-1], exif=exif)
        content = files[-1].read_bytes()
        parts.append(FileSlice(tmp_path / "joined", len(whole), len(content), f"photos/{place}.png"))
        whole += content + b"between"
    (tmp_path / "joined").write_bytes(whole)
    return files, parts


def test_a_part_of_a_file_is_the_picture_of_the_file(joined: tuple[list[Path], list[FileSlice]]) -> None:
    for file, part in zip(*joined, strict=True):
        whole = FileSlice(file)
        assert np.array_equal(np.asarray(opened(part)), np.asarray(opened(whole)))
        assert size_of(part) == size_of(whole)
        assert read_as(part) == read_as(whole)
        assert part.sha256() == hashlib.sha256(file.read_bytes()).hexdigest()
        assert (part.name, part.bytes) == (file.name, file.stat().st_size)


def test_a_part_that_is_cut_or_no_picture_is_named(joined: tuple[list[Path], list[FileSlice]], tmp_path: Path) -> None:
    parts, path = joined[1], tmp_path / "joined"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"joined: photos/2\.png cannot be read: it ends after"):
        opened(parts[2])
    with pytest.raises(OSError, match="it ends"):
        parts[2].sha256()
    no_picture = FileSlice(path, 0, 5, "front.png")
    with pytest.raises(DataError, match=r"joined: front\.png cannot be read: cannot identify image file\. "):
        opened(no_picture)
    problems, _ = look_at([parts[0], no_picture])
    assert [problem.place for problem in problems] == [f"{path}: front.png"]


def test_parts_are_read_again_once_their_file_changes(
    joined: tuple[list[Path], list[FileSlice]], tmp_path: Path
) -> None:
    parts, read = joined[1], list[str]()

    def summed(part: FileSlice) -> str:
        read.append(part.label)
        return part.sha256()

    first = Stamp(tmp_path)
    marks = first.digests(parts, summed)
    assert Stamp(tmp_path, first.paths).digests(parts, summed) == marks
    assert len(read) == 3
    path = tmp_path / "joined"
    content = path.read_bytes()
    path.write_bytes(content[:-30] + b"x" * 31)
    assert Stamp(tmp_path, first.paths).digests(parts, summed)[:2] == marks[:2]
    assert len(read) == 6
