"""Checkpoints are written in a thread: what they hold, who waits, and what a failed write does."""

import gc
import threading
import weakref
from pathlib import Path

import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.files import fenced
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.training.trainer import Hooks, Preempted

from .interruptions import Killed, killed_after
from .test_trainer import settings_of, trainer_in

CPU = torch.device("cpu")
EVERY_SECOND = Cadence(steps=2)


@pytest.fixture(scope="module")
def short() -> TrialSettings:
    return settings_of("train.epochs=1")


def content_of(folder: Path) -> dict[str, object]:
    return checkpoints.load(TrialFolder(folder).last_checkpoint, CPU)


def test_training_goes_on_while_the_state_of_an_earlier_step_is_written(tmp_path: Path, short: TrialSettings) -> None:
    at_step_3 = threading.Event()

    def check() -> None:  # right before the file gets its name
        if threading.current_thread().name.startswith("checkpoint"):
            assert at_step_3.wait(60)

    def beat(step: int) -> bool:
        if step == 3:
            assert not (tmp_path / "t" / "last.ckpt").exists()
            at_step_3.set()
            raise Killed
        return False

    with fenced(tmp_path / "t", check), pytest.raises(Killed):
        trainer_in(tmp_path / "t", short, Hooks(beat=beat), cadence=EVERY_SECOND).fit()
    with pytest.raises(Preempted):
        trainer_in(tmp_path / "ended", short, Hooks(beat=lambda step: step == 2)).fit()
    written, expected = content_of(tmp_path / "t"), content_of(tmp_path / "ended")
    assert written["step"] == expected["step"] == 2
    weights, same = written["model"], expected["model"]
    assert isinstance(weights, dict)
    assert isinstance(same, dict)
    assert all(weights[name].equal(same[name]) for name in same)


def test_a_process_that_lost_its_trial_while_it_wrote_leaves_no_checkpoint(
    tmp_path: Path, short: TrialSettings
) -> None:
    class Lost(Exception):
        pass

    checks: list[int] = []

    def check() -> None:
        if threading.current_thread().name.startswith("checkpoint"):
            checks.append(len(list((tmp_path / "t").glob(".last.ckpt.*"))))
            if checks[-1]:  # the file stands aside, and the trial was lost after the first look
                raise Lost

    with fenced(tmp_path / "t", check), pytest.raises(Lost):
        trainer_in(tmp_path / "t", short, cadence=EVERY_SECOND).fit()
    assert checks == [0, 1]
    assert not list((tmp_path / "t").glob("*last.ckpt*"))


def test_training_ends_soon_after_a_checkpoint_could_not_be_written(tmp_path: Path, short: TrialSettings) -> None:
    steps: list[int] = []
    folder = tmp_path / "t"

    def beat(step: int) -> bool:
        steps.append(step)
        if step == 2:
            for name in ("last.ckpt", "previous.ckpt"):  # nothing can be renamed to a folder that is not empty
                (folder / name / "folder").mkdir(parents=True)
        if step == 3:
            trainer.progress.writer._write.exception()
        return False

    trainer = trainer_in(folder, short, Hooks(beat=beat), cadence=EVERY_SECOND)
    with pytest.raises(UserError, match=r"cannot write .*last\.ckpt"):
        trainer.fit()
    assert steps == [1, 2, 3]


def test_a_second_write_waits_for_the_first() -> None:
    writer, order = checkpoints.Writer(), list[str]()
    first = threading.Event()

    def slow() -> None:
        assert first.wait(60)
        order.append("first")

    writer.start(slow)
    threading.Timer(0.05, first.set).start()
    writer.start(lambda: order.append("second"))
    writer.wait()
    assert order == ["first", "second"]


def test_a_snapshot_changes_with_the_next_alone_and_copies_a_shared_tensor_once() -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state, writer = torch.nn.BatchNorm1d(3).state_dict(), checkpoints.Writer()
    content = {"a": [weight, weight.T], "b": (weight.detach(), 1, "word"), "state": state, "none": torch.zeros(0)}
    taken = writer.copied(content)
    weight += 1
    assert taken["a"][0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert taken["a"][1].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert taken["b"][0] is taken["a"][0]
    assert taken["b"][1:] == (1, "word")
    assert taken["state"]._metadata == state._metadata
    again = writer.copied(content)
    assert again["a"][0].data_ptr() == taken["a"][0].data_ptr()
    assert again["a"][1].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_a_training_that_moves_to_another_kind_of_device_says_so(tmp_path: Path, short: TrialSettings) -> None:
    with pytest.raises(Killed):
        trainer_in(tmp_path / "t", short, killed_after(3), cadence=EVERY_SECOND).fit()
    path = TrialFolder(tmp_path / "t").last_checkpoint
    checkpoints.save(path, content_of(tmp_path / "t") | {"devices": ["cuda"]})
    warned: list[str] = []
    resumed = trainer_in(tmp_path / "t", short, Hooks(warn=warned.append))
    resumed.fit()
    assert resumed.progress.devices == ["cuda", "cpu"]
    assert warned == ["it resumes on cpu after training on cuda, which rounds differently (recorded)"]


def test_a_finished_training_leaves_neither_its_thread_nor_the_copies_of_its_state(
    tmp_path: Path, short: TrialSettings
) -> None:
    """Python's collector of cycles may come hours later: until then, each trial of a process would keep a copy."""
    copied: list[weakref.ref[torch.Tensor]] = []

    def beat(step: int) -> bool:
        copied.extend(weakref.ref(value) for value in trainer.progress.writer._copies.values())
        return False

    threads = {thread.name for thread in threading.enumerate()}
    trainer = trainer_in(tmp_path / "t", short, Hooks(beat=beat), cadence=EVERY_SECOND)
    collected = gc.isenabled()
    gc.disable()
    try:
        trainer.fit()
        assert len(copied) > 10
        assert [reference() for reference in copied if reference() is not None] == []
    finally:
        if collected:
            gc.enable()
    assert {thread.name for thread in threading.enumerate()} <= threads


def test_a_training_that_is_cut_off_ends_its_thread_too(tmp_path: Path, short: TrialSettings) -> None:
    before = threading.active_count()
    for number in range(3):
        with pytest.raises(Killed):
            trainer_in(tmp_path / str(number), short, killed_after(3), cadence=EVERY_SECOND).fit()
    assert threading.active_count() == before
