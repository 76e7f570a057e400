"""A model with its objective, optimiser and schedules, and the gradient of a batch; alone, or as one of replicas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

import objectives
from grid.identity import derived_seed
from grid.settings import TrainSettings, TrialSettings
from objectives.mining import full, product
from objectives.objective import Objective
from retrieval.fusion.encoder import FusionEncoder
from retrieval.fusion.matching_loss import matching_loss
from retrieval.model import Embedded, Vse
from retrieval.pinned import sent
from retrieval.scorers.sets import Sets
from retrieval.twins import Twins
from runners.training import checkpoints
from runners.training.collectives import ALONE, Exchange
from runners.training.inputs import Batch, Epoch, Inputs, batches
from runners.training.optimizers.groups import optimizer
from runners.training.optimizers.schedules import learning_rate, linear_rate, ramp
from runners.training.per_pair.clean_probability import CleanProbabilities
from runners.training.per_pair.meta_weights import MetaWeights
from runners.training.synced_batchnorm import synchronised


class Learner:
    """Computes gradients; its optimiser updates the weights.

    Replicas that each learn from a part of the batch compute the gradient of the whole batch.
    """

    exchange: Exchange = ALONE
    """What this replica exchanges with the others."""
    epoch = 0
    lr = 0.0
    finite: Bool[Tensor, ""]
    """Whether loss and gradient of the last batch are, on the device."""
    _steps = 1
    """Batches of an epoch."""

    def __init__(self, settings: TrialSettings, inputs: Inputs) -> None:
        self.settings, self.inputs = settings, inputs
        checkpoints.seed_torch(derived_seed(settings, "dropout"), inputs.device)
        self.model = model_of(settings, inputs)
        if settings.train.compile:
            for network in self.model.networks:
                for part in network.heavy():
                    part.compile()
        self.objective = objective_of(settings, inputs.device)
        self._mining = self.objective
        """The objective; while the training warms up, the same on all negatives."""
        estimated = CLEAN.get(settings.objective.name)
        train = inputs.pairs.train
        self.clean = estimated(settings, len(train.captions), train.matched) if estimated else None
        learnt = WEIGHTS.get(settings.objective.name)
        self.weights = learnt(settings, inputs.device) if learnt else None
        if self.weights is not None:
            loss: Callable[..., Tensor] = self.objective.loss
            self.objective.loss = partial(loss, weigh=self.weights.weigh)
        self.optimizer = optimizer(self.model, self.objective, settings.train)
        self._parameters = [*self.model.parameters(), *self.objective.parameters()]
        self._parts = [*self.model.parts(), *["objective"] * len(list(self.objective.parameters()))]
        self._members = dict[tuple[bool, ...], Bool[Tensor, "parts g"]]()
        """Which gradients belong to which part of the model, by which weights have a gradient; on the device."""

    def begin(self, epoch: int) -> Epoch:
        """Set rates, modes and mining as the recipe says for this epoch, and return its batches."""
        train = self.settings.train
        set_tf32(train)
        self.epoch = epoch
        self._set_rates(learning_rate(train, epoch))
        self.model.hold_image_backbone(epoch < train.frozen_epochs)
        self.model.train()
        self.objective.train()
        warming = epoch < train.warmup_epochs
        self._mining = self.objective.with_all_negatives() if warming else self.objective
        found = batches(self.settings, self.inputs, epoch, self.exchange)
        self._steps = len(found)
        if self.clean is None:
            return found
        before = batches(self.settings, self.inputs, self.clean.epoch).rows
        return replace(found, clean=self.clean.begin(epoch, torch.cat(list(before))))

    def _set_rates(self, lr: float) -> None:
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]

    def gradient(self, batch: Batch, passed: float, settle: Callable[[], None] = lambda: None) -> dict[str, Tensor]:
        """Compute the clipped gradient of the whole batch; returns loss, norms and report, still on the device.

        If loss or norm is not finite, the optimiser skips the step, on the device.

        Args:
            passed: share of the epoch trained so far, from 0 to 1.
            settle: called before the gradient of the step before is dropped.
        """
        if self.settings.train.schedule == "linear":
            self._set_rates(linear_rate(self.settings.train, self.epoch, round(passed * self._steps), self._steps))
        if self.weights is not None and batch.meta is not None:
            self._learn_weights(self.weights, batch, batch.meta)
        value, reports = self._of_batch(batch)
        loss = ramp(self.settings.train, self.epoch, passed) * value
        settle()
        for weight in self._parameters:
            weight.grad = None
        loss.backward()
        if self.exchange.replicas > 1:
            scorers = [network.scorer for network in self.model.networks if network.scorer]
            scoring = [weight for scorer in scorers for weight in scorer.pair_weights()]
            for weight in (*scoring, *self.objective.parameters()):
                if weight.grad is not None:
                    weight.grad /= self.exchange.replicas  # every replica scored all pairs
        self.exchange.sum_gradients(self._parameters)
        measured = {"loss": loss.detach(), **self._clip()}
        self.finite = torch.isfinite(measured["loss"] + measured["grad_norm"])
        self.optimizer.found_inf = (~self.finite).float()  # type: ignore[attr-defined]
        return {**measured, **(reports[0] if len(reports) == 1 else _means(reports))}

    def _of_batch(self, batch: Batch, objective: Objective | None = None) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """The loss of a batch, and the objective's report for each network, to which backward adds.

        Args:
            objective: another than the trial's.
        """
        objective = objective or self._mining
        images, tokens, owners = batch.on(self.inputs.device)
        clean = None if batch.clean is None else batch.clean.to(self.inputs.device, non_blocking=True)
        values, reports = list[Tensor](), list[dict[str, Tensor]]()
        for place, network in enumerate(self.model.networks):
            matching = None
            with precision(self.settings, self.inputs.device), synchronised(self.exchange):
                if network.fusion is None:
                    image, text = network.embed_images(images), network.embed_texts(*tokens)
                else:
                    image, text, *seen = network.embed_pairs(images, *tokens)
                    matching = self._matching(objective, network.fusion, image, text, seen, tokens[1], owners)
            value = self._value(objective, place, image, text, owners, None if clean is None else clean[place])
            reports.append(objective.report)
            if objective.reduction == "sum" and (matching is not None or self.settings.train.mean_loss):
                value = value / len(owners)
            if matching is not None:
                value = value + matching
                reports[-1]["matching"] = matching.detach()
            values.append(value)
        return values[0] if len(values) == 1 else torch.stack(values).sum(), reports

    def _matching(
        self,
        objective: Objective,
        fusion: FusionEncoder,
        image: Tensor,
        text: Tensor,
        seen: list[Tensor],
        lengths: Tensor,
        owners: Tensor,
    ) -> Tensor:
        """The loss of the fusion encoder; a temperature that the objective learns is that of the draws, too."""
        tokens, states = seen
        temperature = getattr(objective.loss, "temperature", fusion.temperature).detach()
        return matching_loss(fusion, states, lengths, tokens, product(image, text).detach(), owners, temperature)

    def _learn_weights(self, weights: MetaWeights, batch: Batch, meta: Batch) -> None:
        """Have the weights of pairs learn ahead of the model's step."""
        plain = objectives.build("triplet-hn", margin=weights.margin).to(self.inputs.device)
        weights.learn(
            self.model,
            self.lr,
            lambda: self._of_batch(batch)[0] / len(batch.owners),
            lambda: self._of_batch(meta, plain)[0] / len(meta.owners),
        )

    @torch.no_grad()
    def _clip(self) -> dict[str, Tensor]:
        """Clip each network's gradient as `nn.utils.clip_grad_norm_` does; returns its norm before, whole and by part.

        The squares of the parts' norms add up to the square of `grad_norm`.
        """
        parameters = self._parameters
        learns = tuple(weight.grad is not None for weight in parameters)
        norms = torch.stack(torch._foreach_norm([weight.grad for weight in parameters if weight.grad is not None]))
        networks = len(self.model.networks)
        size = (len(parameters) - len(list(self.objective.parameters()))) // networks
        bounds = [*range(0, networks * size, size), len(parameters)]  # what the objective learns counts with the last
        wholes = []
        for start, end in pairwise(bounds):
            wholes.append(torch.linalg.vector_norm(norms[sum(learns[:start]) : sum(learns[:end])]))
            nn.utils.clip_grads_with_norm_(parameters[start:end], self.settings.train.clip_norm, wholes[-1])
        whole = wholes[0] if len(wholes) == 1 else torch.linalg.vector_norm(torch.stack(wholes))
        of = [part for part, learning in zip(self._parts, learns, strict=True) if learning]
        names = list(dict.fromkeys(of))
        if learns not in self._members:
            members = torch.tensor([[part == name for part in of] for name in names])
            self._members[learns] = sent(members, norms.device)
        parts = norms.square().where(self._members[learns], 0.0).sum(-1).sqrt_()
        return {"grad_norm": whole, **{f"grad_norm_{name}": part for name, part in zip(names, parts, strict=True)}}

    def _value(
        self, objective: Objective, network: int, image: Embedded, text: Embedded, owners: Tensor, clean: Tensor | None
    ) -> Tensor:
        """The loss of a network's embeddings.

        Where an objective learns from few of the scores of sets, all scores are computed without a graph first, and the
        few again with a graph.
        """
        offline = None
        if self.inputs.offline is not None:
            offline = self._offline(network, image, text, len(owners))
            image, text = image[: len(owners)], text[: len(owners)]
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            image, text = (self.exchange.together(part, len(owners)) for part in (image, text))
            if self.clean is not None:
                self.clean.note(network, product(image.detach(), text.detach()))
            return objective(image, text, owners, clean=clean, offline=offline)
        scorer = self.model.networks[network].scorer
        assert scorer is not None
        assert isinstance(image, Sets)
        assert isinstance(text, Sets)
        image, text = (self._together(part, len(owners)) for part in (image, text))
        few = objective.learns_from_few and scorer.by_pair
        with torch.set_grad_enabled(not few):
            scores = scorer(image, text)
        if self.clean is not None:
            self.clean.note(network, scores)
        again = partial(scorer.pairs, image, text) if few else None
        return objective.from_similarity(scores, owners, clean=clean, offline=offline, again=again)

    def _offline(self, network: int, image: Embedded, text: Embedded, count: int) -> Float[Tensor, "2 b 2"]:
        """Scores of each pair with its offline negatives, then of these with one another, by direction.

        AOQ's four: image and drawn caption, drawn image and caption; both drawn; image of the drawn caption and caption
        of the drawn image.
        """
        pair = torch.arange(count, device=self.inputs.device)
        rows = torch.stack([pair, pair + count, pair + count, pair + 2 * count])
        columns = torch.stack([pair + count, pair, pair + count, pair + 2 * count])
        scorer = self.model.networks[network].scorer
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            scores = torch.linalg.vecdot(full(image)[rows], full(text)[columns])
        else:
            assert scorer is not None
            assert isinstance(image, Sets)
            assert isinstance(text, Sets)
            if scorer.by_pair:
                scores = scorer.pairs(image, text, rows.flatten(), columns.flatten()).view(4, count)
            else:
                parts = zip(rows, columns, strict=True)
                scores = torch.stack([scorer(image[row], text[column]).diagonal() for row, column in parts])
        return torch.stack([scores[:2], scores[2:]], dim=-1)

    def _together(self, part: Sets, count: int) -> Sets:
        """The sets of all replicas."""
        if self.exchange.replicas == 1:
            return part
        whole = None if part.whole is None else self.exchange.together(part.whole, count)
        sizes = self.exchange.together(part.sizes_beside, count)
        return Sets(self.exchange.together(part.vectors, count), sizes.cpu(), whole)

    def state(self) -> dict[str, Any]:
        """What the next update depends on besides random states: "model", "optimizer".

        Beside these, where there are any: "objective", what it learns; "clean"; "weights".
        """
        found = {"model": self.model.weights(), "optimizer": self.optimizer.state_dict(), **self.learnt()}
        beside = {"clean": self.clean, "weights": self.weights}
        return found | {name: part.state() for name, part in beside.items() if part is not None}

    def learnt(self) -> dict[str, dict[str, Tensor]]:
        """What training changes outside the model: "objective", its parameters; "weights", what weighs pairs.

        Empty where an objective learns nothing, as most do.
        """
        weights = {} if self.weights is None else self.weights.pairs.state_dict()
        return {name: own for name, own in (("objective", self.objective.state_dict()), ("weights", weights)) if own}

    def load_learnt(self, learnt: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what `learnt` returned."""
        self.objective.load_state_dict(learnt.get("objective", {}))
        if self.weights is not None:
            self.weights.pairs.load_state_dict(learnt["weights"])

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.model.load_weights(state["model"])
        self.objective.load_state_dict(state.get("objective", {}))
        self.optimizer.load_state_dict(state["optimizer"])
        if self.clean is not None:
            self.clean.load(state["clean"], self.inputs.device)
        if self.weights is not None:
            self.weights.load(state["weights"])


CLEAN: dict[str, Callable[..., CleanProbabilities]] = {
    "ncr": CleanProbabilities,
    "unified-adaptive": CleanProbabilities,
}
"""What estimates clean probabilities, for the objectives that read them."""

WEIGHTS: dict[str, Callable[..., MetaWeights]] = {"meta-spn": MetaWeights}
"""What learns the weights of pairs, for the objectives that have weights of pairs."""

MODELS: dict[str, type[Vse]] = {"single": Vse, "twins": Twins}
"""By `model.networks`."""


def _means(reports: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the networks' reports."""
    return {name: torch.stack([report[name] for report in reports]).mean() for name in reports[0]}


class FiniteCheck:
    """Whether loss and gradient of a step were finite, copied to host memory while the device goes on."""

    def __init__(self, measured: Mapping[str, Tensor], finite: Bool[Tensor, ""]) -> None:
        self.measured = measured
        self._finite, self._copied = finite, None
        if self._finite.is_cuda:
            on_device, self._finite = self._finite, torch.empty((), dtype=torch.bool, pin_memory=True)
            self._finite.copy_(on_device, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def finite(self) -> bool:
        """Wait until the device has made this step; the work that it was given since then may go on."""
        if self._copied is not None:
            self._copied.synchronize()
        return bool(self._finite)


def model_of(settings: TrialSettings, inputs: Inputs) -> Vse:
    """The trial's model as it starts, on the device that trains."""
    shape, words, seed = inputs.pairs.train.images.shape, inputs.words, derived_seed(settings, "weights")
    return MODELS[settings.model.networks](settings.model, shape, words, seed=seed, places=inputs.places).to(
        inputs.device
    )


def objective_of(settings: TrialSettings, device: torch.device) -> Objective:
    """The trial's objective as it starts, on this device; what it learns starts from a seed of its own."""
    goal = settings.objective
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(settings, "objective"))
        return objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(device)


def set_tf32(train: TrainSettings) -> None:
    """Have this process compute in TF32 on a GPU or not. torch's own default is TF32 for cuDNN's layers alone."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = train.tf32


def precision(settings: TrialSettings, device: torch.device) -> torch.autocast:
    """Autocast of encoders to bfloat16 where the recipe says so; objectives switch it off for themselves."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.train.precision == "bf16")
