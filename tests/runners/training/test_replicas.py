"""Replicas: several processes that train one trial as one process would, and that begin and end with it."""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import ObjectiveSettings, TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.training import checkpoints, exchange, replica_process
from goalgrid.runners.training.batch_sizes import check_batches
from goalgrid.runners.training.embedding import _shared
from goalgrid.runners.training.exchange import GradientSums, ProcessGroup
from goalgrid.runners.training.inputs import batches, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.training.replicas import Replica, ReplicaDied, Replicas
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer

from ...conftest import SMALL, Goalgrid
from .interruptions import without_seconds


def settings_of(*overrides: str) -> TrialSettings:
    words = [word for word in SMALL if word != "--set" and "image" not in word]
    return trials_of(expand(load("demo", [*words, *overrides])))[0].settings


def few(root: Path, *overrides: str, replicas: int = 1) -> tuple[TrialSettings, Machine]:
    """A small training on a few photographs: 200 captions in batches of 67, 67 and 66."""
    small = ("model.dim=8", "model.text.word_dim=8", "train.batch_size=67", "train.epochs=3")
    settings = settings_of(f'data.few.root="{root}"', 'datasets=["few"]', *small, *overrides)
    return settings, Machine(Resources(replicas=replicas), roots=(("few", str(root)),))


def go_on(trainer: Trainer, step: int) -> bool:
    """The answer at every step of a training that nobody disturbs."""
    return False


def fit(
    folder: Path,
    given: tuple[TrialSettings, Machine],
    at_step: Callable[[Trainer, int], bool] = go_on,
    warn: Callable[[str], None] = pytest.fail,
) -> Trainer:
    """Train in a folder, to the end or until asked to end; a checkpoint is written at each step."""
    settings, machine = given
    folder.mkdir(exist_ok=True)
    with Replicas(settings, machine) as replicas:
        hooks = Hooks(beat=lambda step: at_step(trainer, step), warn=warn)
        inputs, cadence = prepare(settings, machine), Cadence(steps=1)
        trainer = Trainer(settings, inputs, TrialFolder(folder), hooks=hooks, cadence=cadence, replicas=replicas)
        with suppress(Preempted):
            trainer.fit()
    assert children() == []
    assert not torch.distributed.is_initialized(), "it left alone, or not at all"
    return trainer


def children() -> list[psutil.Process]:
    """The replicas that this process has started, and not yet ended."""
    started = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    while not all(child.cmdline() for child in started):  # in the moment in which its program begins, it has none
        pass
    return [child for child in started if "replica_process" in " ".join(child.cmdline())]


BACKBONE = (
    'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.image.norm_eval=true", "model.image.drop=0",
    "model.text.encoder=bow",
)  # fmt: skip
NETWORKS = {
    "pixels": (2, ("model.image.size=16", "objectives=siglip")),
    "features": (
        3,
        ('recipes=["fc-gru"]', "model.image.encoder=linear-mlp", "model.image.hidden=16", "model.image.pooling=gcn"),
    ),
    "parts": (2, (*BACKBONE, "train.frozen_epochs=0", "objectives=sig-ms_cir", "train.micro_batch=9")),
    "sets": (2, ('recipes=["saf"]', "model.scorer.width=8", "model.scorer.dropout=0", "model.text.dropout=0")),
}
"""Replicas, and what overrides the recipe: batch norm of images, and of vectors beside a GRU; parts of batches."""

UNDETERMINED = (
    "image.mlp.0.bias", "image.mlp.1.running_mean", "scorer.of_image.mean.bias",
    "scorer.of_image.mean_norm.running_mean", "scorer.filter.bias", "scorer.norm.running_mean",
    "scorer.of_image.common.bias", "scorer.of_text.common.bias",
)  # fmt: skip
"""Biases that batch norm or a softmax takes out: their gradient is rounding error, of which Adam makes whole steps."""


@pytest.mark.gate
@pytest.mark.parametrize(("count", "overrides"), NETWORKS.values(), ids=NETWORKS)
def test_replicas_learn_what_one_process_learns(
    tmp_path: Path, few_pictures: Path, count: int, overrides: tuple[str, ...]
) -> None:
    """The gradient of the first batch, and what becomes of that in three epochs; batches have no equal parts."""
    first: list[dict[str, torch.Tensor]] = []

    def keep(trainer: Trainer, step: int) -> bool:
        if step == 1:
            named = trainer.model.named_parameters()
            first.append({name: weight.grad.clone() for name, weight in named if weight.grad is not None})
        return False

    one, several = (
        fit(tmp_path / str(replicas), few(few_pictures, *overrides, replicas=replicas), keep) for replicas in (1, count)
    )
    norm = one.settings.train.clip_norm
    torch.testing.assert_close(first[1], first[0], atol=1e-6 * norm, rtol=0)
    ours, theirs = (
        {name: value for name, value in trainer.model.weights().items() if name not in UNDETERMINED}
        for trainer in (several, one)
    )
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():  # as wholes: where a gradient is near 0, Adam makes steps of rounding errors
        apart = float((ours[name] - value).double().norm())
        assert apart <= 1e-3 * float(value.double().norm()), name
    torch.testing.assert_close(several.objective.state_dict(), one.objective.state_dict(), atol=1e-5, rtol=1e-5)
    assert several.progress.step == one.progress.step == 9
    assert several.progress.replicas == count
    assert [other.process.returncode for other in several.replicas._others] == [0] * (count - 1)  # all left together
    for after, alone in zip(several.progress.rows, one.progress.rows, strict=True):
        assert after["loss"] == pytest.approx(alone["loss"], rel=1e-3)
        assert after.get("grad_image", 0) == pytest.approx(alone.get("grad_image", 0), rel=1e-3)


def on_two_ranks(folder: Path, work: Callable[[ProcessGroup], Any]) -> tuple[Any, Any]:
    """What some work returns on both ranks of a process group: in this process, and in a fork of it."""

    def joined(rank: int) -> Any:
        group = exchange.init(rank, 2, folder / "meeting", torch.device("cpu"))
        result = work(group)
        exchange.destroy()
        return result

    if torch.cuda.is_available():
        pytest.skip("torch's backward has threads for a GPU, which a fork lacks")
    if (pid := os.fork()) == 0:
        try:
            torch.save(joined(1), folder / "other")
        finally:
            os._exit(0)
    result = joined(0)
    os.waitpid(pid, 0)
    return result, torch.load(folder / "other", weights_only=True)


def test_each_rank_embeds_some_batches_and_gets_the_embeddings_of_all(tmp_path: Path) -> None:
    rows, counts = torch.arange(14.0).reshape(7, 2), list[int]()

    def embed(batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        counts.append(len(batches))
        return [rows[batch] ** 2 for batch in batches]

    def shared(group: ProcessGroup) -> list[Any]:
        counts.clear()
        wholes = [_shared(group, torch.arange(7).split(size), embed) for size in (2, 7)]
        return [wholes, *counts]

    (wholes, *first), (others, *second) = on_two_ranks(tmp_path, shared)
    assert all(whole.equal(rows**2) for whole in (*wholes, *others))
    assert [first[0], second[0]] == [2, 2]


def test_gradients_are_summed_while_backward_goes_on(tmp_path: Path) -> None:
    """Two ranks, a parameter a bucket: the sums of both are those of the whole batch, and most go before the end."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(4)])
    frozen, *trained = layers[1:]
    frozen.requires_grad_(False)
    both = torch.nn.Parameter(torch.ones(4))  # of which every rank has the whole gradient
    batch, parameters = torch.randn(6, 4), [*layers.parameters(), both]

    def loss(values: torch.Tensor) -> torch.Tensor:
        for layer in (frozen, *trained):
            values = layer(values).tanh()
        return values.square().sum() + both.square().sum()

    def summed(group: ProcessGroup) -> tuple[int, list[torch.Tensor | None]]:
        with GradientSums(group, parameters, [both], bucket=1) as sums:
            loss(batch[group.part(len(batch))]).backward()
            before_the_end = len(sums._sent)
        return before_the_end, [parameter.grad for parameter in parameters]

    loss(batch).backward()
    whole = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    (sent, gradients), (sent_there, same) = on_two_ranks(tmp_path, summed)
    assert sent == sent_there == 1 + len(list(trained[0].parameters())) * len(trained)
    for ours, theirs, expected in zip(gradients, same, whole, strict=True):
        assert (ours is None) == (theirs is None) == (expected is None)
        if ours is not None:
            assert ours.equal(theirs)
            torch.testing.assert_close(ours, expected)


def test_parts_of_a_batch_are_those_of_the_whole() -> None:
    """Random views and the words left out too."""
    tiny = 'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "train.batch_size=11", "model.text.word_drop=0.5"
    settings = settings_of(*tiny)
    inputs = prepare(settings, Machine())
    whole = next(batches(settings, inputs, 0).since(3))[1]
    parts = [next(batches(settings, inputs, 0, ProcessGroup(rank, 3)).since(3))[1] for rank in range(3)]
    assert [len(part.images) for part in parts] == [3, 4, 4]
    assert torch.cat([part.images for part in parts]).equal(whole.images)
    for place in range(2):
        assert torch.cat([part.tokens[place] for part in parts]).equal(whole.tokens[place])
    assert all(part.owners.tolist() == whole.owners.tolist() for part in parts)


@pytest.mark.gate
def test_going_on_with_more_or_fewer_replicas_and_from_their_checkpoint(tmp_path: Path, few_pictures: Path) -> None:
    """To the bit, as long as their number stays; else it is said that dropout differs."""
    dropout = "model.image.size=16", "model.text.encoder=gru", "model.text.dropout=0.3"
    one, two = (few(few_pictures, *dropout, replicas=replicas) for replicas in (1, 2))
    warned: list[str] = []
    fit(tmp_path / "cut", one, lambda trainer, step: step == 2)

    def as_a_kill_leaves_it(trainer: Trainer, step: int) -> bool:
        if step == 8:
            shutil.copytree(tmp_path / "cut", tmp_path / "copy" / "cut")
        return False

    undisturbed = fit(tmp_path / "cut", two, as_a_kill_leaves_it, warned.append)
    shutil.copytree(tmp_path / "copy", tmp_path / "fewer")
    random.random(), np.random.random(), torch.rand(100)
    resumed = fit(tmp_path / "copy" / "cut", two)
    assert without_seconds(resumed.progress.rows) == without_seconds(undisturbed.progress.rows)
    ours, theirs = resumed.learner.state(), undisturbed.learner.state()
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)

    fewer = fit(tmp_path / "fewer" / "cut", one, go_on, warned.append)
    assert fewer.progress.over
    assert fewer.progress.replicas == 2
    assert [message.partition(":")[0] for message in warned] == [
        "it resumes with resources.replicas = 2 (previously 1), so dropout masks differ",
        "it resumes with resources.replicas = 1 (previously 2), so dropout masks differ",
    ]


@pytest.mark.gate
def test_a_replica_ends_with_the_first_one_and_with_nothing_else(small_trial: Trial) -> None:
    mine = "import goalgrid\n\n\n@goalgrid.objective('mine')\ndef mine(t):\n    return t.s_neg - t.s_pos\n"
    replica = Replica.start(1)
    settings = small_trial.settings.model_copy(update={"objective": ObjectiveSettings(name="mine")})
    machine = Machine(Resources(replicas=2), uses=(("/on/another/host/mine.py", mine),))
    replica.connection.send(("prepare", 1, settings.model_dump_json(), machine))
    assert replica.connection.recv() == "ready"
    for number in (signal.SIGINT, signal.SIGTERM):  # the first one hears them too
        replica.process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        replica.process.wait(0.1)
    replica.connection.close()
    assert replica.process.wait() == 0


@pytest.mark.gate
def test_what_a_replica_raises_is_raised(tmp_path: Path, few_pictures: Path) -> None:
    """Photographs that only it reads are gone once both have opened the data."""
    root = tmp_path / "few"
    shutil.copytree(few_pictures, root)
    settings, machine = few(root, "train.batch_size=8", "model.image.size=16", replicas=2)
    with Replicas(settings, machine) as replicas:
        inputs = prepare(settings, machine)

        def remove(step: int) -> None:
            reads = [batches(settings, inputs, 0, ProcessGroup(rank, 2)) for rank in range(2)]
            owners = inputs.pairs.train.image_of_text[reads[0].rows[0].numpy()]
            for row in set(owners[4:]) - set(owners[:4]):
                inputs.pairs.train.images.files[row].path.unlink()

        trainer = Trainer(settings, inputs, TrialFolder(tmp_path), hooks=Hooks(begin=remove), replicas=replicas)
        with pytest.raises(DataError, match="is missing") as raised:
            trainer.fit()
    assert trainer.progress.step == 0
    assert any(note.startswith("In a replica:") for note in raised.value.__notes__)


def test_a_replica_that_dies_before_it_answers_is_named(tmp_path: Path, few_pictures: Path) -> None:
    settings, machine = few(few_pictures, "train.batch_size=8", "model.image.size=16", replicas=2)
    with Replicas(settings, machine) as replicas:
        (process,) = children()
        process.kill()
        with pytest.raises(
            ReplicaDied, match=f"replica 1 of the training, process {process.pid}, died: signal SIGKILL"
        ):
            Trainer(settings, prepare(settings, machine), TrialFolder(tmp_path), replicas=replicas).fit()


def test_a_replica_that_joins_at_another_step_or_rank_draws_other_dropout(tmp_path: Path, few_pictures: Path) -> None:
    settings, machine = few(few_pictures)
    state = checkpoints.dumped(Learner(settings, prepare(settings, machine)).state())

    def drawn(step: int) -> torch.Tensor:
        orders = iter([
            ("prepare", 0, settings.model_dump_json(), machine), ("init", str(tmp_path / f"meeting-{step}")),
            ("start", state, None, step), ("random",), ("end",),
        ])  # fmt: skip
        answers: list[Any] = []
        with torch.random.fork_rng():
            replica_process.follow(lambda: next(orders), answers.append)
        states: torch.Tensor = checkpoints.loaded(answers[1], torch.device("cpu"))["cpu"]
        return states

    for step in (5, 6):
        seed = derived_seed(settings, f"dropout of replica 0 from step {step}")
        assert drawn(step).equal(torch.Generator().manual_seed(seed).get_state())


def test_replicas_need_a_part_of_every_batch(small_trial: Trial) -> None:
    train = small_trial.settings.train
    check_batches(train, 5002, Resources(replicas=2))
    with pytest.raises(UserError, match=r"has 2 pairs \(5,002 in batches of 100\): .*= 3.* Use at most 2 replicas\."):
        check_batches(train, 5002, Resources(replicas=3))
    check_batches(train.model_copy(update={"drop_last": True}), 5002, Resources(replicas=3))


@pytest.mark.parametrize("objective", ["aoq", "meta-spn"])
def test_replicas_are_refused_where_pairs_are_read_beside_the_batch(
    objective: str, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    """Before the training: no trial has a folder."""
    words = [
        f"objectives={objective}",
        "resources.replicas=2",
        "resources.gpu=0",
        *(["train.ranker=cnn-bow"] if objective == "aoq" else []),
    ]
    overrides = [word for setting in words for word in ("--set", setting)]
    refused = goalgrid("run", "demo", "--here", "--mlflow-uri", "", *SMALL, *overrides, runs=tmp_path)
    assert refused.returncode == 2
    assert f"objective {objective!r} needs" in refused.stderr
    assert "which resources.replicas = 2 cannot give: set resources.replicas = 1" in refused.stderr
    assert not (tmp_path / "trials").exists()
