"""Packs: trials that differ in objective and seed alone, trained side by side as one computation.

Each keeps its own checkpoints, record and end, as if it were trained alone.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import objectives
from grid.identity import canonical, digest
from grid.protocols import protocol
from grid.settings import TrialSettings
from objectives.stacked import StackedObjective
from retrieval import evaluation
from retrieval.stacked import model as stacked
from runners.embedding import embedded
from runners.inputs import Batch, Inputs, batches
from runners.progress import Cadence, best_of
from runners.schedules import learning_rate, ramp
from runners.stacks import Member, Stack, State, Weights, on_host
from runners.trainer import NonFinite, Preempted, culprit, validation

Made = TypeVar("Made")

Leave = Callable[[Member, Exception], None]
"""Told which trial leaves a pack, and why, while the others go on."""


def alike(settings: TrialSettings) -> str:
    """A word that is the same for trials that may share a pack: those of the same settings but objective and seed."""
    content = canonical(settings)
    for name in ("objective", "seed"):
        content.pop(name)
    return digest(content)[:16]


def why_not(settings: TrialSettings) -> str:
    """Why such trials are not packed, in words; empty where they are."""
    if settings.starts_from is not None:
        return "it starts from another trial"
    if settings.train.precision != "fp32":
        return f"its precision is {settings.train.precision}"
    return stacked.why_not(settings.model)


class Pack:
    """Trains some trials to the end, each from where it stands.

    Trials at one place of the schedule train together. What lags behind is trained first, until it is where others
    wait; a trial that fails leaves, and the others go on. On a CPU with one thread a trial's numbers do not depend on
    the others, so neither that nor a kill in between changes any.

    Args:
        members: of the same settings but objective and seed.
        leave: told of each trial that leaves before its end.
    """

    def __init__(self, members: Sequence[Member], inputs: Inputs, leave: Leave, cadence: Cadence = Cadence()) -> None:  # noqa: B008
        self.members, self.inputs, self.leave, self.cadence = list(members), inputs, leave, cadence
        self.settings = members[0].settings
        self._active: list[Member] = []
        self._stacks: list[Stack] = []

    def fit(self) -> None:
        """Train all that do not leave to the last epoch.

        Raises:
            Preempted: it was asked to end; the checkpoints stand.
            UserError: data cannot be read.
        """
        for member in list(self.members):
            self._try(member, self._begin)
        while waiting := [member for member in self.members if not member.progress.over]:
            first = min(member.progress.position for member in waiting)
            self._activate([member for member in waiting if member.progress.position == first])
            later = [member.progress.position for member in waiting if member.progress.position > first]
            self._train_epoch(min(later, default=None))

    def by_protocols(self, names: Sequence[str]) -> dict[str, dict[str, evaluation.Ranks]]:
        """Evaluate the test split as `Trainer.by_protocols`; by the name of each trial's folder."""
        self._activate(self.members)
        for stack in self._stacks:
            for place, member in enumerate(stack.members):
                progress = member.progress
                if progress.selected is not progress.rows[-1]:
                    stack.model.load_weights_of(place, best_of(progress.folder, self.inputs.device)["model"])
        ranks = dict[str, dict[str, evaluation.Ranks]]()
        for member, image, text, owners in self._embedded("test"):
            ranks[member.progress.folder.trial_id] = {
                name: evaluation.rank_in_folds(image, text, owners, protocol(name).fold) for name in names
            }
        return ranks

    def _activate(self, members: Sequence[Member]) -> None:
        """Stack these, and no others, from the state that each stands in."""
        if list(members) == self._active:
            return
        self._park()
        by_seed = dict[int, list[Member]]()
        for member in members:
            by_seed.setdefault(member.settings.seed, []).append(member)
        self._active = [member for some in by_seed.values() for member in some]
        self._stacks = [Stack(some, self.inputs) for some in by_seed.values()]
        self._weights = Weights(self._stacks)
        self._objectives = [member.objective().to(self.inputs.device) for member in self._active]
        for member in self._active:
            member.state = None
            member.progress.packed = max(member.progress.packed, len(self._active))

    def _park(self) -> None:
        """Keep the state of those that are stacked, with them."""
        for member, state in self._states():
            member.state = on_host(state)
        if self._stacks:  # gone before others are stacked: a device may have no room for both
            self._stacks = []
            del self._weights

    def _states(self) -> Iterator[tuple[Member, State]]:
        """Those that are stacked, each with the state of its trainer."""
        places = [(stack, place) for stack in self._stacks for place in range(len(stack.members))]
        for index, (stack, place) in enumerate(places):
            yield stack.members[place], {**stack.state_of(place), "optimizer": self._weights.state_of(index)}

    def _train_epoch(self, until: tuple[int, int] | None) -> None:
        """Train those that are stacked to the end of their epoch, or to where others wait, or until one leaves."""
        train, (epoch, begun) = self.settings.train, self._active[0].progress.position
        self._weights.set_rate(learning_rate(train, epoch))
        for stack in self._stacks:
            stack.model.train()
        warming = epoch < train.warmup_epochs
        each = [objectives.with_mining(one, "all") if warming else one for one in self._objectives]
        objective = StackedObjective(each, train.batch_size)
        epochs = [batches(stack.members[0].settings, self.inputs, epoch) for stack in self._stacks]
        sums, length, clock = Sums(self._active, self.inputs.device), len(epochs[0]), time.monotonic()
        for steps in zip(*(each.since(begun) for each in epochs), strict=True):
            place = steps[0][0] + 1
            failed = self._step(
                objective, [batch for _, batch in steps], ramp(train, epoch, (place - 1) / length), sums
            )
            clock, share = time.monotonic(), (time.monotonic() - clock) / len(self._active)
            for member in self._active:
                own = member.progress
                own.step, own.batch, own.seconds = own.step + 1, place, own.seconds + share
            for member, error in failed.items():
                self._leaves(member, error)
            self._beat(sums)
            left = not set(self._active) <= set(self.members)
            if (epoch, place) == until or (left and place < length):
                return sums.settle()
        sums.settle()
        self._end_epoch(length, clock)
        return None

    def _step(
        self, objective: StackedObjective, read: Sequence[Batch], factor: float, sums: "Sums"
    ) -> dict[Member, Exception]:
        """One update of all; those that failed, and why."""
        images, texts, owners = list[Tensor](), list[Tensor](), list[Tensor]()
        for stack, batch in zip(self._stacks, read, strict=True):
            pixels, tokens, own = batch.on(self.inputs.device)
            with stack.drawing():
                images.append(stack.model.embed_images(pixels))
                texts.append(stack.model.embed_texts(*tokens))
            owners.append(own.expand(len(stack.members), -1))
        losses = factor * objective(torch.cat(images), torch.cat(texts), torch.cat(owners))
        self._weights.clear()
        losses.sum().backward()
        norms = self._weights.clip(self.settings.train.clip_norm)
        losses = losses.detach()
        finite = torch.isfinite(losses + norms)
        sums.add({"loss": losses, "grad_norm": norms, **objective.report})
        failed = {} if bool(finite.all()) else self._failures(losses, norms, finite)
        self._weights.optimizer.step()
        return failed

    def _failures(self, losses: Tensor, norms: Tensor, finite: Tensor) -> dict[Member, Exception]:
        failed = dict[Member, Exception]()
        for k in (~finite).nonzero()[:, 0].tolist():
            member, find = self._active[k], partial(self._culprit, k)
            failed[member] = NonFinite.of(float(losses[k]), float(norms[k]), find, member.progress)
        return failed

    def _culprit(self, index: int) -> str:
        """The first weight of a trial whose gradient is not finite."""
        for stack in self._stacks:
            if index < len(stack.members):
                named = stack.model.named_parameters()
                return culprit({name: weight.grad[index] for name, weight in named if weight.grad is not None})
            index -= len(stack.members)
        raise IndexError(index)

    def _end_epoch(self, length: int, clock: float) -> None:
        """Validate, and leave what counts so far."""
        rate = learning_rate(self.settings.train, self._active[0].progress.epoch)
        metrics = {
            member: {"lr": rate, **member.progress.means(length), **validation(evaluation.rank(image, text, owners))}
            for member, image, text, owners in self._embedded("val")
        }
        share = (time.monotonic() - clock) / len(self._active)
        for member, state in self._states():

            def end(member: Member, state: State = state) -> None:
                own = member.progress
                own.end_epoch(metrics[member], own.seconds + share, lambda: state["model"])
                if not own.brief:
                    own.save(state)
                member.hooks.epoch(own.epoch, metrics[member])

            self._try(member, end)
        if self._asked() and any(not member.progress.over for member in self.members):
            raise Preempted

    def _beat(self, sums: "Sums") -> None:
        """Tell all that they moved on; leave checkpoints where one is due, or where they are asked to end.

        Raises:
            Preempted: they are.
        """
        asked = self._asked()
        if asked or any(member.progress.due(self.cadence) for member in self._active):  # they differ after a kill
            sums.settle()
            for member, state in self._states():
                self._try(member, partial(_save, state=state))
        if asked:
            raise Preempted

    def _asked(self) -> bool:
        """Whether one answers a beat, which all get, that they are to end."""
        asked = False
        for member in list(self.members):
            asked |= bool(self._try(member, lambda member: member.hooks.beat(member.progress.step)))
        return asked

    def _begin(self, member: Member) -> None:
        state = member.progress.restore()
        member.state = None if state is None else on_host(state)
        member.hooks.begin(member.progress.step)

    def _try(self, member: Member, action: Callable[[Member], Made]) -> Made | None:
        """Do what concerns one trial alone, if it is still there; where that fails, it leaves."""
        if member not in self.members:
            return None
        try:
            return action(member)
        except Exception as error:
            self._leaves(member, error)
            return None

    def _leaves(self, member: Member, error: Exception) -> None:
        self.members.remove(member)
        self.leave(member, error)

    def _embedded(self, split: str) -> Iterator[tuple[Member, Tensor, Tensor, np.ndarray]]:
        """Each trial's embeddings of a split, and which image each caption describes."""
        found, owners = embedded([stack.model for stack in self._stacks], self.settings, self.inputs, split)
        for stack, (image, text) in zip(self._stacks, found, strict=True):
            for place, member in enumerate(stack.members):
                yield member, image[place], text[place], owners


def _save(member: Member, state: State) -> None:
    member.progress.save(state)


class Sums:
    """What the batches of an epoch measured, of all trials at once, until it is settled with each of them."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self.members = members
        zero = torch.zeros((), dtype=torch.double, device=device)
        names = dict.fromkeys(name for member in members for name in member.progress.sums)
        self._sums = {name: torch.stack([each.progress.sums.get(name, zero) for each in members]) for name in names}

    def add(self, measured: Mapping[str, Float[Tensor, " k"]]) -> None:
        for name, values in measured.items():
            self._sums[name] = self._sums.get(name, 0) + values.double()

    def settle(self) -> None:
        """Give each trial its own."""
        for place, member in enumerate(self.members):
            member.progress.sums = {name: values[place].clone() for name, values in self._sums.items()}
