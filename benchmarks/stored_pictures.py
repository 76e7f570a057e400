"""How fast pictures come out of tars and of the copy of parquet files, against files: `... --pictures DIR [--count N]`.

Random batches of the same pictures are decoded by the threads that training has, in turns, so that each round's ratio
is of the same minute of the machine. DIR: a folder of JPEG files.
"""

import argparse
import io
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import measuring
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data.annotations import parquet, webdataset
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles

VIEW = View(224, "centre-crop", "resized-crop", flip=True)
ROUNDS, BATCH = 9, 128


def tar_of(files: Sequence[Path], folder: Path) -> list[FileSlice]:
    with tarfile.open(folder / "0.tar", "w") as tar:
        for place, file in enumerate(files):
            for name, content in ((f"{place}.jpg", file.read_bytes()), (f"{place}.txt", b"a dog")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    rows = webdataset.FORMAT.table([folder / "0.tar"], folder, (), None, []).rows
    return [row.image for row in rows if row.image]


def copy_of(files: Sequence[Path], folder: Path) -> list[FileSlice]:
    rows = [{"image": {"bytes": file.read_bytes(), "path": file.name}, "caption": "a dog"} for file in files]
    pq.write_table(pa.Table.from_pylist(rows), folder / "0.parquet", row_group_size=100)
    read = parquet.FORMAT.table([folder / "0.parquet"], folder, (), folder / "copies", []).rows
    return [row.image for row in read if row.image]


def seconds(images: ImageFiles, draw: int) -> float:
    rows = np.random.default_rng(draw).integers(len(images), size=BATCH)
    started = time.process_time()  # other work keeps the cores busy
    images.gather(rows, draw)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    files = sorted(given.pictures.glob("*.jpg"))[: given.count]
    ways: dict[str, Callable[[Sequence[Path], Path], list[FileSlice]]] = {"tar": tar_of, "copy of parquet": copy_of}
    with tempfile.TemporaryDirectory() as folder:
        stored = {"files": [*map(FileSlice, files)]} | {name: make(files, Path(folder)) for name, make in ways.items()}
        images = {name: ImageFiles(of, VIEW, workers=given.threads, keep=False) for name, of in stored.items()}
        for name in images:  # into the cache of the operating system, alike
            seconds(images[name], ROUNDS)
        times = [{name: seconds(of, draw) for name, of in images.items()} for draw in range(ROUNDS)]
    measuring.begin("torch", "PIL", "pyarrow", note=f"{len(files)} pictures, {given.threads} threads")
    for name in ways:
        ratios = [of_round["files"] / of_round[name] for of_round in times]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {ROUNDS} rounds"
        line = measuring.row(
            f"{name}: pictures a CPU second over those of files",
            f"{median(ratios):.2f}",
            peer=spread,
            goal="0.9",
            met=median(ratios) >= 0.9,
        )
        measuring.show([line])
    rate = BATCH / median(of_round["files"] for of_round in times)
    measuring.show([measuring.row("files: pictures a CPU second", f"{rate:.0f}")])


if __name__ == "__main__":
    main()
