"""How fast pictures come to a trainer: `python benchmarks/feeding.py --pictures DIR`, a folder of JPEG files.

Views: milliseconds of a core a training view, from the files and with `dataset.cache`'s shrunk pictures.
Tail: between the end of the last view of a batch and the return of the batch, while decode threads have nothing to do;
beside it, stacking the views in the end, as it was. The CPU time of the thread that gathers is all that is serial.
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import torch
from PIL import Image

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles, pixels_of, planes
from goalgrid.retrieval.data.images import _crop as crop
from goalgrid.retrieval.data.picture_files import opened
from goalgrid.retrieval.shrunk import ShrunkImages, ShrunkPictures
from goalgrid.retrieval.splits.pairs import Pairs, Split

VIEWS = [
    View(224, "centre-crop", "resized-crop", flip=True),
    View(384, "square", "rand-augment", flip=True),
    View(512, "square", "scale-crop", flip=True),
]
BATCH, BATCHES = 128, 8


class Watched(ImageFiles):
    """Notes when the last view was ready."""

    def _decode(self, *arguments: object) -> None:
        super()._decode(*arguments)  # type: ignore[arg-type]
        self.ended = time.perf_counter()


def large(files: list[Path], folder: Path) -> list[Path]:
    """The pictures at 640 x 480 pixels with grain, as JPEGs of the size that COCO's have: 110 KB or so."""
    for place, file in enumerate(files):
        smooth = np.asarray(opened(FileSlice(file)).resize((640, 480), Image.Resampling.BICUBIC), dtype=np.float32)
        grain = np.random.default_rng(place).normal(0, 9, (480, 640, 1))
        Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).save(folder / file.name, quality=85)
    return [folder / file.name for file in files]


def tail(files: list[Path], threads: int) -> tuple[float, float, float]:
    """Milliseconds of a batch: after its last view, of CPU in the thread that gathers, and of a stack instead."""
    images = Watched([*map(FileSlice, files)], VIEWS[0], workers=threads, keep=False)
    tails, serial, stacked = [], [], []
    for draw in range(BATCHES):
        rows = np.random.default_rng(draw).integers(len(files), size=BATCH)
        before = time.thread_time()
        views = images.gather(rows, draw)
        tails.append(time.perf_counter() - images.ended)
        serial.append(time.thread_time() - before)
        apart, before = [planes(view.permute(1, 2, 0).contiguous().numpy()) for view in views], time.thread_time()
        torch.stack(apart).clone()  # the copy to pinned memory
        stacked.append(time.thread_time() - before)
    of_all, of_gather, of_stack = (1e3 * median(values) for values in (tails, serial, stacked))
    return of_all, of_gather, of_stack


def view_seconds(files: list[Path], view: View) -> float:
    """Seconds of a core a view, opened from its file."""
    started = time.process_time()
    for place, file in enumerate(files):
        pixels_of(opened(FileSlice(file)), view, np.random.default_rng(place))
    return (time.process_time() - started) / len(files)


def shrunk_seconds(files: list[Path], view: View) -> tuple[float, float, float]:
    """Seconds of a core a view of the cache's pictures, as they are and as JPEGs of quality 95; share of bytes."""
    splits = [
        Split(ImageFiles([*map(FileSlice, part)], view), [], np.zeros(0, dtype=int))
        for part in (files, files[:1], files[:1])
    ]
    with tempfile.TemporaryDirectory() as folder:
        images = ShrunkPictures("made", Pairs(*splits), "made", Path(folder)).load().train.images
        assert isinstance(images, ShrunkImages)
        coded = []
        for row in range(len(files)):
            images.picture(row).save(buffer := io.BytesIO(), "JPEG", quality=95)
            coded.append(buffer)

        def look(picture: Callable[[int], Image.Image]) -> Callable[[], object]:
            rows = range(len(files))
            return lambda: [pixels_of(picture(row), view, np.random.default_rng(row)) for row in rows]

        raw = measuring.cpu_seconds(look(images.picture))
        jpeg = measuring.cpu_seconds(look(lambda row: Image.open(coded[row]).convert("RGB")))
        share = sum(len(code.getvalue()) for code in coded) / len(images.pixels)
    return raw / len(files), jpeg / len(files), share


def halved(files: list[Path], view: View) -> tuple[float, float, float, float]:
    """By libjpeg's half size where a crop is twice as large as the view: of how many views, the seconds a view with and
    without, and the mean difference of pixels from 0 to 255 in those views."""
    differences, seconds = list[float](), [0.0, 0.0]
    for place, file in enumerate(files):
        started = time.process_time()
        with Image.open(file) as picture:
            box = crop(view, *picture.size, np.random.default_rng(place))
            factor = 2 if min(box[2] - box[0], box[3] - box[1]) >= 2 * view.size else 1
            picture.draft("RGB", (picture.width // factor, picture.height // factor))
            half = picture.convert("RGB").resize((view.size,) * 2, view.resampling, box=tuple(x / factor for x in box))
        seconds[0] += time.process_time() - started
        started = time.process_time()
        whole = opened(FileSlice(file)).resize((view.size,) * 2, view.resampling, box=box)
        seconds[1] += time.process_time() - started
        if factor > 1:
            differences.append(float(np.abs(np.subtract(half, whole, dtype=np.float32)).mean()))
    with_draft, without = (value / len(files) for value in seconds)
    return len(differences) / len(files), with_draft, without, float(np.mean(differences or [0.0]))


def crops(files: list[Path]) -> tuple[float, float]:
    """Seconds of a core for ten training views of a picture: decoded once, and ten times."""
    images, rows = ImageFiles([*map(FileSlice, files[:64])], VIEWS[0], keep=False), np.arange(len(files[:64]))
    once = measuring.cpu_seconds(lambda: images.looks(rows, range(10)))
    each = measuring.cpu_seconds(lambda: [images.gather(rows, draw) for draw in range(10)])
    return once / len(rows), each / len(rows)


def flipped_later(files: list[Path], view: View) -> float:
    """Share of views that another byte differs in if the mirrored place is cropped first and the view is mirrored."""
    mirror, other = Image.Transpose.FLIP_LEFT_RIGHT, 0
    for place, file in enumerate(files):
        picture, size = opened(FileSlice(file)), (view.size,) * 2
        left, top, right, bottom = crop(view, *picture.size, np.random.default_rng(place))
        first = picture.transpose(mirror).resize(size, view.resampling, box=(left, top, right, bottom))
        there = (max(0.0, picture.width - right), top, picture.width - left, bottom)
        other += picture.resize(size, view.resampling, box=there).transpose(mirror).tobytes() != first.tobytes()
    return other / len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    files = large(sorted(given.pictures.glob("*.jpg"))[: given.count], Path(tempfile.mkdtemp()))
    measuring.begin(
        "torch",
        "PIL",
        note=f"{len(files)} pictures of {sum(file.stat().st_size for file in files) / len(files) / 1e3:.0f} KB",
    )
    torch.set_num_threads(1)
    for view in VIEWS:
        name = f"{view.augmentation} to {view.size}"
        plain, (raw, jpeg, share) = view_seconds(files, view), shrunk_seconds(files, view)
        show(f"{name}: ms of a core a view", f"{1e3 * plain:.2f}")
        against = {"peer": f"as JPEG 95 {1e3 * jpeg:.2f}, {share:.0%} of the bytes", "ratio": f"{plain / raw:.1f}"}
        show(f"{name}: the same of the cache's pictures", f"{1e3 * raw:.2f}", **against)
        share, draft, whole, difference = halved(files, view)
        measured = (
            f"{share:.0%} of views, {1e3 * draft:.2f} for {1e3 * whole:.2f} ms a view, pixels {difference:.1f} apart"
        )
        show(f"{name}: half size from libjpeg where the crop allows it", measured)
        show(f"{name}: views with other bytes if mirrored last", f"{flipped_later(files, view):.0%}")
    once, each = crops(files)
    show(
        "ten resized crops of a picture, decoded once: ms of a core",
        f"{1e3 * once:.1f}",
        peer=f"ten times {1e3 * each:.1f}",
    )
    for threads in given.threads:
        after, serial, stack = tail(files, threads)
        show(
            f"{threads} threads, {BATCH} pictures: ms after the last view",
            f"{after:.2f}",
            peer=f"stack and copy {stack:.1f}",
        )
        show(f"{threads} threads, {BATCH} pictures: CPU ms of the gathering thread", f"{serial:.2f}")


def show(what: str, ours: str, **more: str) -> None:
    measuring.show([measuring.row(what, ours, **more)])


if __name__ == "__main__":
    main()
