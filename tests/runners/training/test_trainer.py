"""The trainer: the same numbers every time, exact to resume, and stopped by what is not finite."""

import math
import random
import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.objectives import OURS, needs
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records.history import all_logged
from goalgrid.retrieval.components.ncr.clean_probabilities import CleanProbabilities, clean_probability
from goalgrid.retrieval.evaluation import Ranks
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.inputs import Batch, batches, prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.optimizers import ramp
from goalgrid.runners.training.progress import Cadence, best_of
from goalgrid.runners.training.trainer import Hooks, NonFinite, Preempted, Trainer

from ...conftest import SMALL
from .interruptions import Killed, killed_after, without_seconds


def settings_of(*overrides: str) -> TrialSettings:
    """Ten steps an epoch, two epochs; of the small convolutional network unless a recipe is named."""
    small = [word for word in SMALL if word != "--set"]
    smaller = () if any("recipes" in word for word in overrides) else ("model.image.channels=8",)
    return trials_of(expand(load("demo", [*small, *smaller, *overrides])))[0].settings


def trainer_in(
    folder: Path,
    settings: TrialSettings,
    hooks: Hooks = Hooks(),  # noqa: B008
    *,
    machine: Machine = Machine(),  # noqa: B008
    cadence: Cadence = Cadence(),  # noqa: B008
    start: TrialFolder | None = None,
) -> Trainer:
    folder.mkdir(exist_ok=True)
    inputs = prepare(settings, machine)
    return Trainer(settings, inputs, TrialFolder(folder), hooks=hooks, cadence=cadence, start=start)


def final_ranks(trainer: Trainer) -> Ranks:
    """Ranks of the test split by the trial's own protocol."""
    protocol = trainer.settings.dataset.protocol
    return trainer.by_protocols([protocol])[protocol]


def order(trainer: Trainer) -> list[torch.Tensor]:
    """Rows of the captions of each batch of the first epoch."""
    return batches(trainer.settings, trainer.inputs, 0).rows


WITH_EVERYTHING = {
    "a fusion encoder, and a learnt temperature": (
        'recipes=["xvlm-tiny"]', "objectives=itc", "model.image.size=16",
        "model.text.layers=1", "model.fusion.layers=1", "dataset.max_words=8",
    ),
    "dropout, and an objective that learns": (
        "model.text.encoder=gru", "model.text.dropout=0.3", 'objectives=["siglip"]', "train.decay_every=2",
    ),
    "word drop and GPO": (
        "model.text.encoder=bigru", "model.text.pooling=gpo", "model.text.word_drop=0.2", "model.text.word_dim=16",
    ),
    "an unfrozen backbone, crops and size augmentation": (
        'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=16", "train.warmup_epochs=1",
    ),
    "weights of pairs that learn": ('objectives=["meta-spn"]', "model.text.encoder=gru", "model.text.dropout=0.3"),
}  # fmt: skip


def assert_same(whole: Trainer, resumed: Trainer) -> None:
    """To the bit: history, the selected weights, what the objective learnt, and the ranks of every test query."""
    assert without_seconds(whole.progress.rows) == without_seconds(resumed.progress.rows)
    assert without_seconds([whole.progress.selected]) == without_seconds([resumed.progress.selected])
    assert list(whole.progress.trace.rows()) == list(resumed.progress.trace.rows())
    assert final_ranks(whole).i2t.tolist() == final_ranks(resumed).i2t.tolist()
    for ours, theirs in ((whole.model, resumed.model), (whole.objective, resumed.objective)):
        assert all(a.equal(b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    kept, again = (best_of(trainer.progress.folder, trainer.inputs.device) for trainer in (whole, resumed))
    for name in whole.learner.learnt():
        assert all(value.equal(again[name][key]) for key, value in kept[name].items())


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(words, id=name, marks=[pytest.mark.gate] if "weights of pairs" in name else [])
        for name, words in WITH_EVERYTHING.items()
    ],
)
def test_resumed_equals_uninterrupted_to_the_bit(
    tmp_path: Path, few_pictures: Path, overrides: tuple[str, ...]
) -> None:
    few = f'data.few.root="{few_pictures}"', 'datasets=["few"]', "dataset.train_images=16"
    settings = settings_of("train.epochs=4", "train.batch_size=20", *few, *overrides)
    machine = Machine(roots=(("few", str(few_pictures)),))
    whole = trainer_in(tmp_path / "whole", settings, machine=machine)
    whole.fit()

    every = Cadence(steps=1)
    for step in (6, 8, 10):  # four steps an epoch: within one, at the end of one, within the next
        with pytest.raises(Killed):
            trainer_in(tmp_path / "cut", settings, killed_after(step), machine=machine, cadence=every).fit()
        random.random(), np.random.random(), torch.rand(100)  # another trial in the process may draw in between
    begun: list[int] = []
    resumed = trainer_in(tmp_path / "cut", settings, Hooks(begin=begun.append), machine=machine, cadence=every)
    resumed.fit()
    assert begun == [9]  # the step that was killed had no checkpoint yet
    assert_same(whole, resumed)


@pytest.fixture(scope="module")
def short() -> TrialSettings:
    """Five steps an epoch, three epochs, dropout; every second step is kept."""
    small = (
        "train.trace_every=2",
        "model.dim=8",
        "model.text.word_dim=8",
        "model.image.channels=4",
        "dataset.max_words=8",
    )
    return settings_of(
        "train.epochs=3", "train.batch_size=200", "model.text.encoder=gru", "model.text.dropout=0.3", *small
    )


@pytest.fixture(scope="module")
def whole(short: TrialSettings, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """That, undisturbed."""
    trainer = trainer_in(tmp_path_factory.mktemp("whole"), short)
    trainer.fit()
    return trainer


@settings_of_hypothesis(max_examples=6)
@given(kills=st.lists(st.integers(1, 14), max_size=4), every=st.sampled_from([None, 1, 2, 3, 7]))
def test_killed_at_any_steps_and_resumed_it_is_the_same(
    short: TrialSettings, whole: Trainer, kills: list[int], every: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reached = 0
        for step in kills:
            trainer = trainer_in(Path(folder), short, killed_after(step), cadence=Cadence(every))
            try:
                trainer.fit()
            except Killed:
                assert trainer.progress.step == step
            reached = max(reached, trainer.progress.step)
        begun: list[int] = []
        resumed = trainer_in(Path(folder), short, Hooks(begin=begun.append), cadence=Cadence(every))
        resumed.fit()
        interval = min(every or 5, 5)
        assert begun[0] >= reached - interval
        assert_same(whole, resumed)


def test_a_smaller_training_split_holds_the_first_images_of_a_larger_one() -> None:
    few, more = (settings_of(f"dataset.train_images={count}") for count in (100, 300))
    inputs = [prepare(settings, Machine()) for settings in (few, more)]
    of_image = inputs[0].pairs.train.image_of_text
    seen = [{int(of_image[row]) for batch in batches(s, i, 0).rows for row in batch}
            for s, i in zip((few, more), inputs, strict=True)]  # fmt: skip
    assert seen == [set(range(100)), set(range(300))]
    assert inputs[0].words <= inputs[1].words
    with pytest.raises(UserError, match=r"dataset\.train_images = 9,000: the train split of 'shapes' has"):
        prepare(settings_of("dataset.train_images=9000"), Machine())


def test_no_step_is_kept_twice_or_missing_after_a_kill(whole: Trainer) -> None:
    """`assert_same` holds every resumed training to these."""
    kept = [(row["epoch"], row["step"]) for row in whole.progress.trace.rows()]
    assert kept == [(1, 2), (1, 4), (2, 6), (2, 8), (2, 10), (3, 12), (3, 14)]


def test_asked_to_end_it_leaves_a_checkpoint_of_that_very_step(
    tmp_path: Path, short: TrialSettings, whole: Trainer
) -> None:
    with pytest.raises(Preempted):
        trainer_in(tmp_path, short, Hooks(beat=lambda step: step == 7)).fit()
    begun: list[int] = []
    resumed = trainer_in(tmp_path, short, Hooks(begin=begun.append))
    resumed.fit()
    assert begun == [7]
    assert_same(whole, resumed)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "one wrong bit": lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
    "empty": lambda data: b"",
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [("last", "cut short"), ("last", "one wrong bit"), ("previous", "empty"), ("best", "empty"), ("best", "cut short")],
)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(
    tmp_path: Path, short: TrialSettings, whole: Trainer, name: str, damage: str
) -> None:
    with pytest.raises(Killed):
        trainer_in(tmp_path, short, killed_after(13), cadence=Cadence(2)).fit()
    path = tmp_path / f"{name}.ckpt"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    begun: list[int] = []
    warned: list[str] = []
    resumed = trainer_in(tmp_path, short, Hooks(begin=begun.append, warn=warned.append))
    resumed.fit()
    assert begun == [{"last": 10, "previous": 12, "best": 0}[name]]
    if name != "previous":  # nobody needed it
        wrong = "its checksum is wrong" if damage == "one wrong bit" else "it has no checksum"
        assert wrong in warned[0]
        assert (tmp_path / f"{name}.corrupt").exists()
    assert_same(whole, resumed)


def test_with_both_checkpoints_damaged_it_starts_anew(tmp_path: Path, short: TrialSettings, whole: Trainer) -> None:
    with pytest.raises(Killed):
        trainer_in(tmp_path, short, killed_after(13)).fit()
    for name in ("last", "previous"):
        (tmp_path / f"{name}.ckpt").write_bytes(b"nothing")
    resumed = trainer_in(tmp_path, short)
    resumed.fit()
    assert_same(whole, resumed)


def test_the_disk_holds_three_checkpoints_at_most(tmp_path: Path, short: TrialSettings) -> None:
    trainer_in(tmp_path, short, cadence=Cadence(1)).fit()
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["best.ckpt", "last.ckpt", "previous.ckpt"]


def test_a_trial_that_is_over_at_once_writes_no_checkpoint_to_go_on_from(tmp_path: Path, short: TrialSettings) -> None:
    """Unless it was asked for: what a kill costs is bounded by the cadence, however short the trial."""
    brief = short.model_copy(update={"train": short.train.model_copy(update={"epochs": 1})})
    trainer_in(tmp_path / "brief", brief).fit()
    assert [path.name for path in (tmp_path / "brief").glob("*.ckpt")] == ["best.ckpt"]
    trainer_in(tmp_path / "asked", brief, cadence=Cadence(1)).fit()
    assert (tmp_path / "asked" / "last.ckpt").exists()


def test_a_checkpoint_is_one_that_torch_reads(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "a.ckpt", {"weights": torch.arange(3.0)})
    assert torch.load(tmp_path / "a.ckpt", weights_only=True)["weights"].tolist() == [0, 1, 2]


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "a.ckpt", {"code": print})
    with pytest.raises(checkpoints.Corrupt, match="cannot be read"):
        checkpoints.load(tmp_path / "a.ckpt", torch.device("cpu"))


def test_training_twice_gives_the_same_numbers(tmp_path: Path) -> None:
    settings = settings_of()
    first, second = trainer_in(tmp_path / "a", settings), trainer_in(tmp_path / "b", settings_of("train.trace_every=1"))
    first.fit()
    second.fit()
    assert final_ranks(first).t2i.tolist() == final_ranks(second).t2i.tolist()
    steps = list(second.progress.trace.rows())
    assert [row["step"] for row in steps] == list(range(1, 21))
    for epoch in first.progress.rows:
        kept = [row for row in steps if row["epoch"] == epoch["epoch"]]
        means = {name: sum(row[name] for row in kept) / len(kept) for name in kept[0] if name not in ("epoch", "step")}
        assert means == pytest.approx({name: epoch[name] for name in means})
        assert means.keys() > {"loss", "s_pos", "delta_s", "grad_norm_text"}


def test_all_objectives_see_the_same_batches_and_weights(tmp_path: Path) -> None:
    trials = trials_of(expand(load("demo", [w for w in SMALL if w != "--set"] + ["seeds=[0]"])))
    trainers = [trainer_in(tmp_path / trial.id, trial.settings) for trial in trials]
    assert len(trainers) == len(GOAL)
    batches = {tuple(rows.tolist()) for t in trainers for rows in order(t)[:1]}
    assert len(batches) == 1
    weights = [next(iter(t.model.parameters())) for t in trainers]
    assert all(weight.equal(weights[0]) for weight in weights)


def literal_validation_loss(trainer: Trainer) -> float:
    """Batches as large as in training, of validation images with their first captions; what fills no batch is left."""
    split, size = trainer.inputs.pairs.val, trainer.settings.train.batch_size
    count = trainer.settings.dataset.val_images or len(split.images)
    count = count // 2 if trainer.settings.objective.name == "meta-spn" else count  # the others teach its weights
    firsts = [split.image_of_text.tolist().index(image) for image in range(count)]
    starts = range(0, count - size + 1, size) if count >= size else [0]
    losses = []
    with torch.no_grad():
        for start in starts:
            images = torch.arange(start, min(start + size, count))
            pixels = torch.as_tensor(split.images.gather(images.numpy()))
            ids, lengths = trainer.inputs.tokens["val"].gather(torch.tensor(firsts)[images])
            image, text = trainer.model.embed_images(pixels), trainer.model.embed_texts(ids, lengths)
            losses.append(float(trainer.objective(image, text, images)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("recipe", "objective"), [("cnn-bow", "siglip"), ("saf-tiny", "con_con")])
def test_the_squares_of_the_parts_gradient_norms_add_up_and_clip_as_torch_does(
    recipe: str, objective: str, tmp_path: Path, few_pictures: Path
) -> None:
    machine = Machine(roots=(("few", str(few_pictures)),))
    few = (
        f'data.few.root="{few_pictures}"',
        'datasets=["few"]',
        "dataset.train_images=40",
        f'recipes=["{recipe}"]',
        f"objectives={objective}",
    )
    learner = trainer_in(tmp_path / "t", settings_of("train.batch_size=20", *few), machine=machine).learner
    measured = learner.gradient(next(batch for _, batch in learner.begin(0).since(0)), 0.0)
    parts = {name: float(value) for name, value in measured.items() if name.startswith("grad_norm_")}
    named = dict(learner.model.named_parameters())
    of_part = dict(zip(named, learner.model.parts(), strict=True))
    learnt = dict(learner.objective.named_parameters("objective"))
    assert bool(learnt) == (objective == "siglip")
    named, of_part = named | learnt, of_part | dict.fromkeys(learnt, "objective")
    assert {name for name, part in of_part.items() if part == "last"} == {"image.project.weight", "image.project.bias"}
    assert {"last", "text", "image" if recipe == "cnn-bow" else "scorer"} <= set(of_part.values())
    assert set(parts) == {f"grad_norm_{part}" for part in of_part.values()}
    assert sum(value**2 for value in parts.values()) == pytest.approx(float(measured["grad_norm"]) ** 2, rel=1e-5)
    clipped = [weight.grad.clone() for weight in named.values() if weight.grad is not None]
    clip = learner.settings.train.clip_norm
    whole = sum(float(gradient.double().square().sum()) for gradient in clipped) ** 0.5
    assert whole == pytest.approx(min(clip, float(measured["grad_norm"])), rel=1e-4)
    assert float(measured["clipped"]) == float(float(measured["grad_norm"]) > clip)
    for part, norm in parts.items():
        squares = sum(
            float(weight.grad.double().square().sum())
            for name, weight in named.items()
            if weight.grad is not None and f"grad_norm_{of_part[name]}" == part
        )
        assert norm == pytest.approx(squares**0.5 * max(1.0, float(measured["grad_norm"]) / clip), rel=1e-4)


@pytest.mark.parametrize("name", [name for name in OURS if "offline-negatives" not in needs(name)])
def test_every_objective_trains(name: str, tmp_path: Path) -> None:
    brief = "train.epochs=1", "dataset.train_images=80"
    trainer = trainer_in(tmp_path / "t", settings_of(f'objectives=["{name}"]', *brief))
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer.fit()
    assert any(not value.equal(before[key]) for key, value in trainer.model.state_dict().items())
    [row] = trainer.progress.rows
    assert {"s_pos", "s_neg", "delta_s", "active", "false_negatives", "grad_image", "grad_text"} <= set(row)
    assert {"val_loss", "val_s_pos", "val_s_neg", "grad_norm_image", "grad_norm_last", "grad_norm_text"} <= set(row)
    assert set(row) <= set(all_logged())
    assert row["val_loss"] == pytest.approx(literal_validation_loss(trainer), rel=1e-5)
    assert final_ranks(trainer).metrics()["rsum"] > 0


def test_each_of_twins_reads_the_clean_probabilities_that_the_other_estimated_also_after_a_kill(
    tmp_path: Path, few_pictures: Path
) -> None:
    few = f'data.few.root="{few_pictures}"', 'datasets=["few"]', "dataset.train_images=40", "dataset.noise=0.4"
    goal = 'objectives=["ncr"]', "model.networks=twins", "train.warmup_epochs=2", "train.epochs=4"
    machine = Machine(roots=(("few", str(few_pictures)),))
    settings = settings_of("train.batch_size=50", *few, *goal)
    trainer = trainer_in(tmp_path / "t", settings, machine=machine)
    seen, step = list[tuple[torch.Tensor | None, list[torch.Tensor]]](), trainer._step

    def watched(batch: Batch, passed: float) -> dict[str, torch.Tensor]:
        measured = step(batch, passed)
        (method,) = trainer.learner.methods
        assert isinstance(method, CleanProbabilities)
        assert batch.added is not None
        seen.append((batch.added.values.get("clean"), [own[-1] for own in method._losses]))
        return measured

    trainer._step = watched  # type: ignore[method-assign]
    trainer.fit()
    epochs = [seen[start : start + 4] for start in range(0, 16, 4)]
    assert all(clean is None for clean, _ in epochs[0] + epochs[1])
    for epoch in (2, 3):
        losses = [torch.cat([own[network] for _, own in epochs[epoch - 1]]) for network in range(2)]
        before = torch.cat(list(batches(trainer.settings, trainer.inputs, epoch - 1).rows)).tolist()
        seed = derived_seed(settings, f"mixture of epoch {epoch - 1}") % 2**32
        found = [
            clean_probability(own.double().numpy(), seed, "k-means") for own in losses
        ]  # demo has the released variant
        estimates = [dict(zip(before, own, strict=True)) for own in found]
        for rows, (clean, _) in zip(batches(trainer.settings, trainer.inputs, epoch).rows, epochs[epoch], strict=True):
            assert clean is not None
            for network in range(2):
                expected = [estimates[1 - network][row] for row in rows.tolist()]
                torch.testing.assert_close(clean[network], torch.tensor(expected), check_dtype=False)
    for network in trainer.model.networks:  # each gradient is clipped for itself
        squares = [float(weight.grad.square().sum()) for weight in network.parameters() if weight.grad is not None]
        assert 0 < sum(squares) ** 0.5 <= trainer.settings.train.clip_norm * 1.0001
    matched = trainer.inputs.pairs.train.matched
    assert matched is not None
    assert 0.55 < matched.mean() < 0.7
    rows = trainer.progress.rows
    assert ["clean_auc" in row for row in rows] == [False, True, True, True]
    assert set(rows[-1]) <= set(all_logged())
    assert rows[-1]["clean"] == pytest.approx(np.mean([list(own.values()) for own in estimates]))
    ordered = [
        (own[one] > own[other]) + (own[one] == own[other]) / 2
        for own in estimates
        for one in matched.nonzero()[0]
        for other in (~matched).nonzero()[0]
    ]
    assert rows[-1]["clean_auc"] == pytest.approx(np.mean(ordered))

    every = Cadence(steps=1)
    for step in (8, 10):  # at the end of an epoch, and within the next
        with pytest.raises(Killed):
            trainer_in(tmp_path / "cut", settings, killed_after(step), machine=machine, cadence=every).fit()
    resumed = trainer_in(tmp_path / "cut", settings, machine=machine, cadence=every)
    resumed.fit()
    assert_same(trainer, resumed)


def test_replicas_go_on_with_the_threads_that_the_trial_began_with(tmp_path: Path, short: TrialSettings) -> None:
    before = torch.get_num_threads()
    with pytest.raises(Killed):
        trainer_in(tmp_path / "t", short, killed_after(3), cadence=Cadence(steps=1)).fit()
    torch.set_num_threads(before + 1)
    try:
        resumed = trainer_in(tmp_path / "t", short)
        resumed.fit()
        assert torch.get_num_threads() == resumed.replicas.machine.resources.cpu == before
    finally:
        torch.set_num_threads(before)


def test_a_checkpoint_of_an_earlier_version_goes_on_with_the_threads_of_now(
    tmp_path: Path, short: TrialSettings
) -> None:
    with pytest.raises(Killed):
        trainer_in(tmp_path / "t", short, killed_after(3), cadence=Cadence(steps=1)).fit()
    folder = TrialFolder(tmp_path / "t")
    content = checkpoints.load(folder.last_checkpoint, torch.device("cpu"))
    assert content.pop("threads") == torch.get_num_threads()
    checkpoints.save(folder.last_checkpoint, content)
    warned: list[str] = []
    resumed = trainer_in(tmp_path / "t", short, Hooks(warn=warned.append))
    resumed.fit()
    assert resumed.progress.over
    assert resumed.progress.threads == torch.get_num_threads()
    assert warned == []


def test_the_warm_up_mines_all_negatives_first(tmp_path: Path) -> None:
    """While all negatives count, far more triplets are inactive than among the hardest."""
    trainer = trainer_in(tmp_path / "t", settings_of("train.warmup_epochs=1", "objective.margin=0.1"))
    assert trainer.objective.k == 1
    trainer.fit()
    plain = trainer_in(tmp_path / "p", settings_of("objective.margin=0.1"))
    plain.fit()
    assert trainer.progress.rows[0]["active"] < plain.progress.rows[0]["active"]
    assert trainer.progress.rows[0]["loss"] != plain.progress.rows[0]["loss"]


def test_a_loss_that_is_not_finite_stops_with_step_and_term(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path / "t", settings_of())
    with torch.no_grad():
        next(iter(trainer.model.text.parameters())).fill_(float("inf"))
    with pytest.raises(NonFinite, match=r"the loss became nan at step 1 \(epoch 1\)\. It is the first step: check"):
        trainer.fit()


@pytest.mark.parametrize(
    ("objective", "said"), [("infonce", "train.lr or objective.gamma"), ("triplet-hn", "train.lr")]
)
def test_a_loss_that_becomes_infinite_later_names_settings_that_there_are(
    objective: str, said: str, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path / "t", settings_of(f'objectives=["{objective}"]', "train.clip_norm=1e30"))
    weight = dict(trainer.model.named_parameters())["text.project.weight"]
    gradients = count(1)
    weight.register_hook(lambda gradient: gradient * float("inf") if next(gradients) > 2 else gradient)
    with pytest.raises(NonFinite, match=rf" at step 3 \(epoch 1\)\. A smaller {said} often helps"):
        trainer.fit()


def test_a_gradient_that_is_not_finite_names_its_weight(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path / "t", settings_of())
    weight = dict(trainer.model.named_parameters())["text.project.weight"]
    weight.register_hook(lambda gradient: gradient * float("inf"))
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    with pytest.raises(NonFinite, match=r"the gradient of text\.project\.weight became (nan|inf) at step 1"):
        trainer.fit()
    assert all(map(torch.equal, before, trainer.model.parameters()))  # the optimiser skipped the step


def test_a_vector_that_is_nan_after_eval_stops_the_trial_before_anything_is_ranked(tmp_path: Path) -> None:
    """A comparison with NaN is false, so such a caption would be found first, or never."""
    trainer = trainer_in(tmp_path / "t", settings_of())
    spoilt = torch.tensor([3])
    trainer.model.text.register_forward_hook(
        lambda text, _, vectors: vectors if text.training else vectors.index_fill(0, spoilt, math.nan)
    )
    with pytest.raises(
        NonFinite,
        match=r"scores of the model are NaN, because the embeddings of 0 of 250 images and 3 of 1,250 captions",
    ):
        trainer.fit()


def test_what_a_part_keeps_of_a_validation_may_be_used_in_training(tmp_path: Path) -> None:
    trainer, kept = trainer_in(tmp_path / "t", settings_of("train.epochs=2")), list[torch.Tensor]()

    def scale(text: torch.nn.Module, _: object, vectors: torch.Tensor) -> torch.Tensor:
        if not text.training:
            kept.append(vectors)
        return vectors * kept[-1][:1] if text.training and kept else vectors

    trainer.model.text.register_forward_hook(scale)
    trainer.fit()
    assert trainer.progress.over


def test_the_learning_rate_steps_down(tmp_path: Path) -> None:
    settings = settings_of("train.epochs=3", "train.decay_every=2", "train.lr=1e-2")
    trainer = trainer_in(tmp_path / "t", settings)
    trainer.fit()
    assert [row["lr"] for row in trainer.progress.rows] == pytest.approx([1e-2, 1e-2, 1e-3])


@pytest.mark.parametrize("selection", ["best-val-rsum", "last"])
def test_the_selection_rule_picks_the_tested_weights(tmp_path: Path, selection: str) -> None:
    trainer = trainer_in(tmp_path / "t", settings_of("train.epochs=3", f"train.selection={selection}"))
    trainer.fit()
    rsums = [row["val_rsum"] for row in trainer.progress.rows]
    assert trainer.progress.selected["epoch"] == (3 if selection == "last" else rsums.index(max(rsums)) + 1)
    final_ranks(trainer)
    assert trainer.evaluate("val").metrics()["rsum"] == rsums[trainer.progress.selected["epoch"] - 1]
    assert best_of(trainer.progress.folder, trainer.inputs.device)["row"] == trainer.progress.selected


def test_a_single_pair_at_the_end_of_an_epoch_is_left_out(tmp_path: Path, small_trial: Trial) -> None:
    train = small_trial.settings.train.model_copy(update={"batch_size": 999})
    trainer = trainer_in(tmp_path / "t", small_trial.settings.model_copy(update={"train": train}))
    assert [len(rows) for rows in order(trainer)] == [999]


class TestSchedules:
    """Of the recipes that train a backbone."""

    GRID = ('recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=16", "train.batch_size=500")

    def test_each_group_learns_at_its_own_rate(self, tmp_path: Path) -> None:
        settings = settings_of(*self.GRID, "train.image_lr_factor=0.01", "train.text_lr_factor=0.1", "train.epochs=1")
        trainer = trainer_in(tmp_path, settings)
        trainer.learner.begin(0)
        rates = sorted(group["lr"] / settings.train.lr for group in trainer.optimizer.param_groups)
        assert rates == pytest.approx([0.01, 0.1, 1.0])

    def test_the_loss_rises_linearly_after_the_frozen_epochs(self) -> None:
        train = settings_of(*self.GRID, "train.frozen_epochs=1", "train.ramp_epochs=2").train
        factors = [ramp(train, epoch, share) for epoch in range(4) for share in (0.0, 0.5)]
        assert factors == [1.0, 1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]

    def test_dropping_the_last_batch_leaves_whole_ones(self, tmp_path: Path) -> None:
        whole = order(trainer_in(tmp_path, settings_of("train.batch_size=300")))
        dropped = order(trainer_in(tmp_path, settings_of("train.batch_size=300", "train.drop_last=true")))
        assert [len(rows) for rows in whole] == [300] * 3 + [100]
        assert [len(rows) for rows in dropped] == [300] * 3

    def test_bfloat16_encoders_train_and_objectives_stay_in_float32(self, tmp_path: Path) -> None:
        settings = settings_of("train.precision=bf16", "train.epochs=1")
        trainer = trainer_in(tmp_path, settings)
        trainer.fit()
        assert trainer.progress.rows[0]["loss"] > 0
        assert all(weight.dtype == torch.float32 for weight in trainer.model.parameters())


class TestChain:
    """A parent with cached features and its fine-tuned child."""

    SIZES = ("model.image.size=32", "model.dim=16", "train.batch_size=500", "train.epochs=1")

    def test_a_child_starts_where_its_parent_ended(self, tmp_path: Path) -> None:
        pair = trials_of(expand(load("demo", ['recipes=["vsepp-r152-tiny-ft"]', "seeds=[0]", *self.SIZES])))
        parent, child = (next(t.settings for t in pair if t.settings.recipe.endswith(end)) for end in ("tiny", "ft"))
        machine = Machine(features=tmp_path / "features")
        ended = trainer_in(tmp_path / "parent", parent, machine=machine)
        ended.fit()
        started = trainer_in(tmp_path / "child", child, machine=machine, start=TrialFolder(tmp_path / "parent"))
        before, after = final_ranks(ended).metrics(), started.evaluate("test").metrics()
        # the parent saw float16 features, the child computes them: a rank may move, the recall stays
        assert after["rsum"] == pytest.approx(before["rsum"], abs=1.0)
        fresh = trainer_in(tmp_path / "fresh", child, machine=machine).evaluate("test").metrics()
        assert fresh["rsum"] < before["rsum"]

        best = TrialFolder(tmp_path / "parent").best_checkpoint
        content = checkpoints.load(best, torch.device("cpu"))
        assert content["vocabulary"] == ended.inputs.vocabulary
        checkpoints.save(best, {**content, "vocabulary": "other"})
        with pytest.raises(
            UserError, match=r"starts from parent, whose vocabulary \(other\) differs from that of the data here"
        ):
            trainer_in(tmp_path / "other", child, machine=machine, start=TrialFolder(tmp_path / "parent"))


def test_weights_of_another_epoch_than_the_selected_one_are_not_tested(tmp_path: Path) -> None:
    """Whoever put them there: a message names both epochs, and the next try starts from scratch."""
    settings, warned = settings_of("train.epochs=2", "train.batch_size=200"), list[str]()
    trainer = trainer_in(tmp_path, settings, cadence=Cadence(steps=2))
    trainer.fit()
    progress = trainer.progress
    content = {"row": progress.rows[1], "model": trainer.model.weights()}
    checkpoints.save(progress.folder.best_checkpoint, content)
    progress.selected = progress.rows[0]
    with pytest.raises(UserError, match=r"best\.ckpt holds epoch 2, but epoch 1 is selected"):
        final_ranks(trainer)
    again = trainer_in(tmp_path, settings, Hooks(warn=warned.append))
    again.fit()
    assert "its best weights are missing" in warned[0]
    assert without_seconds(again.progress.rows) == without_seconds(progress.rows)


def test_another_trials_checkpoint_is_set_aside(tmp_path: Path) -> None:
    settings, warned = settings_of("train.epochs=2", "train.batch_size=200"), list[str]()
    for name in ("one", "other"):
        trainer_in(tmp_path / name, settings, cadence=Cadence(steps=2)).fit()
    (tmp_path / "other" / "last.ckpt").replace(tmp_path / "one" / "last.ckpt")
    trainer_in(tmp_path / "one", settings, Hooks(warn=warned.append)).fit()
    assert "last.ckpt belongs to another trial, other; moved to last.corrupt" in warned[0]


@pytest.mark.parametrize(("name", "twin"), [("best", "last"), ("last", "best")])
def test_a_checkpoint_of_another_kind_is_set_aside(tmp_path: Path, name: str, twin: str) -> None:
    settings, warned = settings_of("train.epochs=2", "train.batch_size=200"), list[str]()
    trainer_in(tmp_path, settings, cadence=Cadence(steps=2)).fit()
    shutil.copy(tmp_path / f"{twin}.ckpt", tmp_path / f"{name}.ckpt")
    trainer_in(tmp_path, settings, Hooks(warn=warned.append)).fit()
    assert f"{name}.ckpt is a checkpoint of another kind; moved to {name}.corrupt" in warned[0]
