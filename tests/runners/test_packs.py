"""Packs: each trial is the one that it would be alone, whatever happens to the others."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from filelock import FileLock

from grid.expansion import Trial, expand, trials_of
from grid.files import write_json
from grid.gridfile import load
from grid.home import Home, State, TrialFolder
from grid.settings import TrialSettings
from runners import checkpoints
from runners.attempts import Origin, held
from runners.events import Event
from runners.fusing import TURN, gain, remembered
from runners.inputs import Inputs, prepare
from runners.jobs import Job, jobs_for
from runners.machine import Machine
from runners.packed_trials import run_pack
from runners.packs import Pack, alike, why_not
from runners.planner import packed
from runners.progress import Cadence, Progress
from runners.stacks import Member
from runners.stopping import Stop
from runners.trainer import Hooks, NonFinite, Preempted, Trainer
from runners.trial import run_trial

from .interruptions import Killed, killed_after, without_seconds

OBJECTIVES = ("con_con", "sig-ms_cir", "infonce")
CPU = torch.device("cpu")
TINY = (
    "model.image.size=8", "model.dim=8", "model.text.word_dim=8", "dataset.max_words=8", "train.epochs=3",
    "train.batch_size=500",
)  # fmt: skip


def trials(*overrides: str, names: tuple[str, ...] = OBJECTIVES, seeds: int = 1) -> list[Trial]:
    axes = f"objectives={list(names)!r}".replace("'", '"'), f"seeds={list(range(seeds))}"
    return trials_of(expand(load("demo", [*TINY, *axes, *overrides])))


def member(folder: Path, trial: Trial, hooks: Hooks = Hooks()) -> Member:  # noqa: B008
    own = folder / trial.id
    own.mkdir(parents=True, exist_ok=True)
    return Member(trial.settings, Progress(trial.settings.train, TrialFolder(own), CPU), hooks)


def pack(folder: Path, some: list[Trial], hooks: Hooks = Hooks(), cadence: Cadence = Cadence()) -> Pack:  # noqa: B008
    """Trials in folders of their own; the first one's hooks are given."""
    members = [member(folder, trial, hooks if place == 0 else Hooks()) for place, trial in enumerate(some)]
    left: list[tuple[str, Exception]] = []
    made = Pack(
        members, inputs_of(some[0].settings), lambda m, error: left.append((m.settings.objective.name, error)), cadence
    )
    made.left = left  # type: ignore[attr-defined]
    return made


def inputs_of(settings: TrialSettings) -> Inputs:
    return prepare(settings, Machine())


def alone(folder: Path, trial: Trial, hooks: Hooks = Hooks()) -> Trainer:  # noqa: B008
    own = folder / trial.id
    own.mkdir(parents=True, exist_ok=True)
    return Trainer(trial.settings, inputs_of(trial.settings), TrialFolder(own), hooks=hooks)


def learnt(row: dict[str, Any]) -> dict[str, Any]:
    """What training measured; of validation, single ranks turn on a rounding."""
    return {name: value for name, value in row.items() if not name.startswith("val_")}


def weights(folder: Path, trial: Trial) -> dict[str, torch.Tensor]:
    content = checkpoints.load(folder / trial.id / "best.ckpt", CPU)
    assert content is not None
    return dict(content["model"])


def assert_same(one: Pack, other: Pack) -> None:
    """To the bit: histories, selected weights and test ranks."""
    ranks = [each.by_protocols([each.settings.dataset.protocol]) for each in (one, other)]
    for a, b in zip(one.members, other.members, strict=True):
        assert without_seconds(a.progress.rows) == without_seconds(b.progress.rows)
        first, second = (checkpoints.load(m.progress.folder.best_checkpoint, CPU) for m in (a, b))
        assert first is not None
        assert second is not None
        assert all(value.equal(second["model"][name]) for name, value in first["model"].items())
        found = [each[a.progress.folder.trial_id][one.settings.dataset.protocol] for each in ranks]
        assert found[0].i2t.tolist() == found[1].i2t.tolist()
        assert found[0].t2i.tolist() == found[1].t2i.tolist()


LONG = {
    "cnn-bow": (),
    "cnn-gru": ("model.text.encoder=gru", "model.text.dropout=0.3"),
    "fc-bow": ('recipes=["fc-bow"]',),
    "fc-gru": ('recipes=["fc-gru"]', "model.text.word_drop=0.1"),
}


@pytest.mark.parametrize("recipe", LONG)
def test_after_200_steps_each_is_the_one_trained_alone(recipe: str, tmp_path: Path, few_of_flickr8k: Path) -> None:
    few = f'data.few.root="{few_of_flickr8k}"', 'datasets=["few"]'
    settings = ("train.epochs=40", "train.batch_size=40", *LONG[recipe], "model.dim=16", "model.text.word_dim=16")
    tiny = [word for word in TINY if "image" not in word or "cnn" in recipe]
    axes = 'objectives=["con_con","sig-ms_cir"]', "seeds=[0,1]"
    some = trials_of(expand(load("demo", [*few, *tiny, *axes, *settings])))
    machine = Machine(roots=(("few", str(few_of_flickr8k)),))
    members = [member(tmp_path / "packed", trial) for trial in some]
    together = Pack(members, prepare(some[0].settings, machine), lambda who, error: pytest.fail(f"{error}"))
    together.fit()
    for trial, of_pack in zip(some, members, strict=True):
        (tmp_path / trial.id).mkdir()
        single = Trainer(trial.settings, prepare(trial.settings, machine), TrialFolder(tmp_path / trial.id))
        single.fit()
        assert single.progress.step == of_pack.progress.step == 200
        last = checkpoints.load(of_pack.progress.folder.last_checkpoint, CPU)
        assert last is not None
        exact = recipe.endswith("bow")
        bounds = {"atol": 0.0, "rtol": 0.0} if exact else {"atol": 1e-5, "rtol": 1e-4}
        for name, value in single.model.weights().items():
            torch.testing.assert_close(last["model"][name], value, msg=lambda m: f"{name}: {m}", **bounds)  # noqa: B023
        losses = [[row["loss"] for row in progress.rows] for progress in (of_pack.progress, single.progress)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # one hinge more or less in an epoch


def test_a_pack_killed_anywhere_and_resumed_is_the_same_to_the_bit(tmp_path: Path) -> None:
    some = trials("model.text.encoder=gru", "model.text.dropout=0.3", seeds=2)
    whole = pack(tmp_path / "whole", some)
    whole.fit()
    for step in (3, 5, 11):
        with pytest.raises(Killed):
            pack(tmp_path / "cut", some, killed_after(step), Cadence(steps=2)).fit()
    torch.rand(100)
    begun: list[int] = []
    resumed = pack(tmp_path / "cut", some, Hooks(begin=begun.append), Cadence(steps=2))
    resumed.fit()
    assert begun == [10]
    assert_same(whole, resumed)


def test_those_that_a_kill_left_behind_catch_up_and_join(tmp_path: Path) -> None:
    """A kill between two checkpoints of one moment leaves trials at different steps."""
    some = trials(seeds=2)
    whole = pack(tmp_path / "whole", some)
    whole.fit()
    for place, trial in enumerate(some):  # each was killed somewhere else
        with pytest.raises(Killed):
            pack(tmp_path / "cut", [trial], killed_after(4 + 3 * (place % 3)), Cadence(steps=1)).fit()
    resumed = pack(tmp_path / "cut", some)
    resumed.fit()
    assert {m.progress.packed for m in resumed.members} == {len(some)}
    assert_same(whole, resumed)


def test_whose_last_checkpoint_is_older_than_the_others_has_its_next_in_time(tmp_path: Path) -> None:
    some = trials(names=("con_con", "sig-ms_cir"))
    for trial, step in zip(some, (3, 2), strict=True):
        with pytest.raises(Preempted):
            alone(tmp_path, trial, Hooks(beat=lambda steps, step=step: steps == step)).fit()
    with pytest.raises(Killed):
        pack(tmp_path, some, killed_after(7), Cadence(steps=4)).fit()
    last = [checkpoints.load(tmp_path / trial.id / "last.ckpt", CPU) for trial in some]
    assert [content and content["step"] for content in last] == [6, 6]


def test_a_trial_in_a_pack_is_the_same_to_the_bit_whoever_stands_beside_it(tmp_path: Path) -> None:
    some = trials("model.text.encoder=bigru", "model.text.pooling=gpo", seeds=2)
    whole = pack(tmp_path / "all", some)
    whole.fit()
    for trial, its in zip(some, whole.members, strict=True):
        one = pack(tmp_path / "one", [trial])
        one.fit()
        assert without_seconds(one.members[0].progress.rows) == without_seconds(its.progress.rows)
        a, b = weights(tmp_path / "one", trial), weights(tmp_path / "all", trial)
        assert all(value.equal(b[name]) for name, value in a.items())


@pytest.mark.parametrize("first", ["alone", "packed"])
def test_a_trial_begun_in_a_pack_goes_on_alone_and_the_other_way_round(first: str, tmp_path: Path) -> None:
    some = trials()
    with suppress(Killed):
        if first == "packed":
            pack(tmp_path / "changed", some, killed_after(7), Cadence(steps=1)).fit()
    for trial in some if first == "alone" else ():
        one = alone(tmp_path / "changed", trial, killed_after(7))
        one.cadence = Cadence(steps=1)
        with suppress(Killed):
            one.fit()
    begun: list[int] = []
    if first == "packed":
        ended = [alone(tmp_path / "changed", trial, Hooks(begin=begun.append)) for trial in some]
        for one in ended:
            one.fit()
        found = [without_seconds(one.progress.rows) for one in ended]
    else:
        together = pack(tmp_path / "changed", some, Hooks(begin=begun.append))
        together.fit()
        found = [without_seconds(each.progress.rows) for each in together.members]
    assert set(begun) == {6}
    for trial, its in zip(some, found, strict=True):
        one = alone(tmp_path / "whole", trial)
        one.fit()
        for mine, expected in zip(its, without_seconds(one.progress.rows), strict=True):
            assert learnt(mine) == pytest.approx(learnt(expected), rel=1e-4, abs=1e-3)


def test_a_trial_that_is_not_finite_leaves_and_the_others_do_not_notice(tmp_path: Path) -> None:
    some = trials(seeds=2)
    spoiled = pack(tmp_path / "spoiled", some)
    original = spoiled._activate

    def activate(members: Any) -> None:
        original(members)
        if len(spoiled.members) == len(some):
            with torch.no_grad():
                spoiled._stacks[0].model.get_parameter("text.project.weight")[1] = torch.inf

    spoiled._activate = activate  # type: ignore[method-assign]
    spoiled.fit()
    ((name, error),) = spoiled.left  # type: ignore[attr-defined]
    assert name == some[1].settings.objective.name
    assert isinstance(error, NonFinite)
    assert "the loss became nan at step 1 (epoch 1)" in str(error)
    whole = pack(tmp_path / "whole", [some[0], *some[2:]])
    whole.fit()
    assert_same(whole, spoiled)


def test_asked_to_end_it_leaves_a_checkpoint_of_that_step_of_each(tmp_path: Path) -> None:
    some = trials()
    with pytest.raises(Preempted):
        pack(tmp_path, some, Hooks(beat=lambda step: step == 7)).fit()
    assert {(checkpoints.load(tmp_path / t.id / "last.ckpt", CPU) or {})["step"] for t in some} == {7}


def test_whom_another_process_took_over_leaves_alone(tmp_path: Path) -> None:
    def beat(step: int) -> bool:
        if step == 4:
            raise RuntimeError("fenced")
        return False

    made = pack(tmp_path, trials(), Hooks(beat=beat))
    made.fit()
    assert [name for name, _ in made.left] == ["con_con"]  # type: ignore[attr-defined]
    assert all(each.progress.over for each in made.members)


def test_a_pack_leaves_what_its_trials_leave_alone(tmp_path: Path) -> None:
    some = trials(names=("con_con", "sig-ms_cir"))
    events: list[Event] = []
    folders = [Home(tmp_path / "packed").trial(trial.id) for trial in some]
    run_pack([(t.settings, f) for t, f in zip(some, folders, strict=True)], events.append, Machine())
    for trial, folder in zip(some, folders, strict=True):
        single = Home(tmp_path / "alone").trial(trial.id)
        assert run_trial(trial.settings, single, lambda event: None, Machine()) is State.DONE
        assert folder.state() is State.DONE
        assert {path.name for path in folder.path.iterdir()} == {path.name for path in single.path.iterdir()}
        ours, theirs = (pd.read_parquet(each.record).iloc[0] for each in (folder, single))
        assert ours["packed"] == 2
        assert pd.isna(theirs["packed"])
        same = [
            name for name in ours.index if name.startswith(("val_", "test_", "diagnostic_")) and "ranks" not in name
        ]
        assert dict(ours[same]) == pytest.approx(dict(theirs[same]), rel=1e-5, nan_ok=True)
        assert ours["test_t2i_ranks"].tolist() == theirs["test_t2i_ranks"].tolist()
        kinds = [event.kind for event in events if event.trial_id == trial.id]
        assert kinds == ["started", "epoch", "epoch", "epoch", "done"]
        assert [attempt.outcome() for attempt in folder.attempts()] == ["done"]


def test_of_a_pack_only_what_is_left_is_trained_again(tmp_path: Path) -> None:
    some = trials(names=("con_con", "sig-ms_cir"))
    pairs = [(trial.settings, Home(tmp_path).trial(trial.id)) for trial in some]
    run_trial(*pairs[0], lambda event: None, Machine())
    stop = Stop()
    stop.ask()
    events: list[Event] = []
    run_pack(pairs, events.append, Machine(), stop=stop)
    assert [(event.trial_id, event.kind) for event in events if event.kind != "started"] == [
        (some[0].id, "done"),
        (some[1].id, "stopped"),
    ]
    run_pack(pairs, events.append, Machine())
    assert [len(folder.attempts()) for _, folder in pairs] == [1, 2]
    assert all(folder.state() is State.DONE for _, folder in pairs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="trains on a GPU")
@pytest.mark.parametrize("text", ["bow", "gru", "bigru"])
def test_on_a_gpu_trials_of_a_pack_learn_what_they_learn_alone(text: str, tmp_path: Path) -> None:
    some = trials(f"model.text.encoder={text}", "train.epochs=1", names=("con_con", "sig-ms_cir", "infonce", "adopt"))
    machine, pairs = Machine(gpu=True), [(each.settings, Home(tmp_path / "packed").trial(each.id)) for each in some]
    run_pack(pairs, lambda event: None, machine)
    for settings, folder in pairs:
        single = Home(tmp_path / "alone").trial(folder.trial_id)
        assert run_trial(settings, single, lambda event: None, machine) is State.DONE
        ours, theirs = (pd.read_parquet(each.record).iloc[0] for each in (folder, single))
        assert ours["packed"] == len(some)
        same = ["diagnostic_s_pos", "diagnostic_s_neg", "diagnostic_grad_norm"]
        assert dict(ours[same]) == pytest.approx(dict(theirs[same]), rel=0.05)


@pytest.mark.parametrize(("slots", "sizes"), [(1, [45]), (2, [22, 23]), (4, [11, 11, 11, 12])])
def test_jobs_are_packed_as_many_as_run_at_a_time(slots: int, sizes: list[int]) -> None:
    grid = load("demo")
    jobs = jobs_for(grid, trials_of(expand(grid)), Home(Path("runs")), gpus=0)
    made = packed(jobs, slots)
    assert sorted(len(job.ids) for job in made) == sizes
    assert sorted(name for job in made for name in job.ids) == sorted(job.ids[0] for job in jobs)
    assert all(Job.from_json(job.to_json()) == job for job in made)


def test_few_trials_of_a_seed_and_chains_stay_jobs_of_their_own() -> None:
    for overrides in (['objectives=["con_con"]'], ['recipes=["vsepp-r152-tiny-ft"]', "seeds=[0]"]):
        grid = load("demo", overrides)
        jobs = jobs_for(grid, trials_of(expand(grid)), Home(Path("runs")), gpus=0)
        assert packed(jobs, 2) == jobs


def test_what_a_pack_gains_is_measured_once(tmp_path: Path) -> None:
    names = ("con_con", "sig-ms_cir", "lin_nca", "sig_con")
    some = [trial.settings for trial in trials("train.epochs=9999", names=names)]
    first = gain(Home(tmp_path), some, Machine())
    assert first > 0
    assert gain(Home(tmp_path), some[:2], Machine()) == first


@pytest.mark.parametrize("steps", ["train.epochs=3", "train.batch_size=5000"])
def test_trials_that_are_soon_done_are_not_worth_measuring(steps: str, tmp_path: Path) -> None:
    assert gain(Home(tmp_path), [trial.settings for trial in trials(steps)], Machine()) == 0.0


def test_one_process_measures_while_others_wait_for_what_it_finds(tmp_path: Path) -> None:
    some = [trial.settings for trial in trials()]
    kept = remembered(Home(tmp_path), some[0], Machine())
    with ThreadPoolExecutor() as pool:
        with FileLock(TURN):
            waiting = pool.submit(gain, Home(tmp_path), some, Machine())
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            write_json(kept, {"gain": -1.0})  # which no measurement finds
        assert waiting.result(timeout=60) == -1.0


def test_a_pack_is_left_to_the_worker_that_began_its_first_trial(tmp_path: Path) -> None:
    some = trials(names=("con_con", "sig-ms_cir"))
    pairs = [(trial.settings, Home(tmp_path).trial(trial.id)) for trial in some]
    with held(pairs[0][1], Origin("a launch"), Stop()):
        run_pack(pairs, lambda event: None, Machine(), origin=Origin("a launch"))
        assert [folder.attempts() for _, folder in pairs[1:]] == [[]]
        run_pack(pairs, lambda event: None, Machine(), origin=Origin("another launch"))
    assert [len(folder.attempts()) for _, folder in pairs] == [1, 1]
    assert pairs[1][1].state() is State.DONE


def test_alike_are_trials_that_differ_in_objective_and_seed() -> None:
    of = [trial.settings for trial in trials(seeds=2)]
    assert len({alike(settings) for settings in of}) == 1
    assert alike(of[0]) != alike(trials("train.lr=1e-4")[0].settings)
    assert alike(of[0]) == alike(trials("objective.margin=0.3")[0].settings)


def test_what_is_not_packed_says_why() -> None:
    assert why_not(trials()[0].settings) == ""
    assert "bf16" in why_not(trials("train.precision=bf16")[0].settings)
    assert "starts from" in why_not(trials('recipes=["vsepp-r152-tiny-ft"]')[-1].settings)
