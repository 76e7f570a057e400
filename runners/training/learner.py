"""The learner: computes the gradient of a batch and updates the model, in one process or in a process group."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from goalgrid import objectives
from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.step_log import of_step
from goalgrid.objectives.mining import product
from goalgrid.objectives.objective import Objective
from goalgrid.objectives.triplets import Extra
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.retrieval.scorers.sets import Embedded, TokenSets
from goalgrid.runners.training import checkpoints, recomputation
from goalgrid.runners.training.exchange import ALONE, GradientSums, ProcessGroup, synchronised
from goalgrid.runners.training.graphed import Graphs
from goalgrid.runners.training.inputs import Batch, Epoch, Inputs, batches
from goalgrid.runners.training.machine import precision, set_tf32
from goalgrid.runners.training.optimizers import Clipping, learning_rate, linear_rate, optimizer, ramp
from goalgrid.runners.training.training_methods import methods_of


class Learner:
    """The model, objective and optimiser of a training; every rank computes the gradient of the whole batch."""

    epoch = 0
    lr = 0.0
    finite: Bool[Tensor, ""]
    """Whether loss and gradient of the last batch are finite, on the device."""
    _steps = 1
    """Number of batches per epoch."""

    def __init__(self, settings: TrialSettings, inputs: Inputs, model: DualEncoder | None = None) -> None:
        self.settings, self.inputs = settings, inputs
        checkpoints.seed_all(derived_seed(settings, "dropout"), inputs.device)
        self.model = model or model_of(settings, inputs)
        recomputation.check([(settings, self.model.train())])
        if settings.train.checkpoint_activations:
            recomputation.checkpoint_blocks(self.model)
        if settings.train.compile:
            for network in self.model.networks:
                for part in network.heavy():
                    part.compile()
        self.objective = objective_of(settings, inputs.device)
        self._mining = self.objective
        """The objective; during warm-up, its version on all negatives."""
        self.methods = methods_of(settings, inputs)
        for method in self.methods:
            method.join(self.objective)
        self.take_weights()
        self.group: ProcessGroup = ALONE
        """The process group whose ranks compute the gradient together."""
        alone = not self.methods  # one of them may ask for the losses of two batches before it takes a gradient
        self._graphs = Graphs(enabled=inputs.graphs and alone, pairs=settings.train.batch_size)

    def take_weights(self) -> None:
        """Create a new optimiser for the current weights of model and objective."""
        self.optimizer = optimizer(self.model, self.objective, self.settings.train)
        self._clipping = Clipping(self.model, self.objective, self.settings.train.clip_norm)
        self._parameters = [*self.model.parameters(), *self.objective.parameters()]

    def begin(self, epoch: int) -> Epoch:
        """Set learning rates, train modes and mining for this epoch, as the recipe says, and return its batches."""
        train = self.settings.train
        set_tf32(train)
        self.epoch = epoch
        self._set_rates(learning_rate(train, epoch))
        self.model.hold_image_backbone(epoch < train.frozen_epochs)
        self.model.train()
        self.objective.train()
        warming = epoch < train.warmup_epochs
        self._mining = self.objective.with_all_negatives() if warming else self.objective
        for method in self.methods:
            method.begin(epoch, lambda number: torch.cat(list(batches(self.settings, self.inputs, number).rows)))
        trained = batches(self.settings, self.inputs, epoch, self.group, self.methods)
        self._steps = len(trained)
        return trained

    def _gradient_sums(self) -> AbstractContextManager[object]:
        """Return a context manager that sums gradients over the ranks during backward."""
        if self.group.size == 1:
            return nullcontext()
        scorers = [network.scorer for network in self.model.networks if network.scorer]
        scoring = [weight for scorer in scorers for weight in scorer.pair_weights()]  # every rank scores all pairs
        return GradientSums(self.group, self._parameters, (*scoring, *self.objective.parameters()))

    def _set_rates(self, lr: float) -> None:
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]

    def gradient(self, batch: Batch, passed: float, check: Callable[[], None] = lambda: None) -> dict[str, Tensor]:
        """Compute the clipped gradient of the whole batch; return loss, norms and report, still on the device.

        If loss or norm is not finite, the optimiser skips the step, on the device. `passed` is the share of the epoch
        trained so far; `check` is called before the gradient of the previous step is dropped.
        """
        if self.settings.train.schedule == "linear":
            self._set_rates(linear_rate(self.settings.train, self.epoch, round(passed * self._steps), self._steps))
        for method in self.methods:
            method.before_step(self.model, self.lr, batch, self._mean_loss)
        with of_step() as logged:
            value, reports = self._loss(batch, self._mining)
        loss = ramp(self.settings.train, self.epoch, passed) * value
        check()
        for weight in self._parameters:
            weight.grad = None
        with self._gradient_sums():
            loss.backward()
        measured = {"loss": loss.detach(), **self._clipping.clip()}
        self.finite = torch.isfinite(measured["loss"] + measured["grad_norm"])
        self.optimizer.found_inf = (~self.finite).float()  # type: ignore[attr-defined]
        if len(reports) == 1:
            measured |= reports[0]
        else:
            measured |= {name: torch.stack([report[name] for report in reports]).mean() for name in reports[0]}
        if taken := logged.keys() & measured.keys():
            raise UserError(f"goalgrid.log({min(taken)!r}, ...): the trainer reserves this name. Use another name.")
        return measured | {name: _mean(values, loss) for name, values in logged.items()}

    def _mean_loss(self, batch: Batch, objective: Objective | None = None) -> Float[Tensor, ""]:
        """Return the loss per pair of a batch under `objective` (default: the objective of the training)."""
        return self._loss(batch, objective or self._mining)[0] / len(batch.owners)

    def _loss(self, batch: Batch, objective: Objective) -> tuple[Float[Tensor, ""], list[dict[str, Tensor]]]:
        """Return the sum of the networks' losses, and a report per network; backward adds the gradient norms to it.

        In a process group, each rank embeds a part of the batch and gathers the embeddings of the other ranks.
        """
        images, tokens, owners = batch.on(self.inputs.device)
        added = batch.added.values if batch.added else {}
        extra = {name: values.to(self.inputs.device, non_blocking=True) for name, values in added.items()}
        values, reports = list[Tensor](), list[dict[str, Tensor]]()
        for place, network in enumerate(self.model.networks):
            with precision(self.settings, self.inputs.device), synchronised(self.group):
                embedded = recomputation.embedded_in_parts(network, images, *tokens, self.settings.train.micro_batch)
                further = network.further_losses(objective, embedded, tokens[1], owners)
            of_network = {name: values[place][:, None] for name, values in extra.items()}
            value = self._value(objective, place, *embedded[:2], owners, of_network)
            reports.append(objective.report)
            mean = objective.reduction != "sum" or self.settings.train.mean_loss
            if objective.reduction == "sum" and (mean or (further and network.beside == "mean")):
                value = value / len(owners)
            for name, loss in further.items():
                value = value + (loss / len(owners) if mean and network.beside == "sum" else loss)
                reports[-1][name] = loss.detach()
            values.append(value)
        return values[0] if len(values) == 1 else torch.stack(values).sum(), reports

    def _value(
        self, objective: Objective, place: int, image: Embedded, text: Embedded, owners: Tensor, extra: Extra
    ) -> Tensor:
        """Return the loss of the embeddings of network number `place`.

        If only mined pairs get a gradient, mine on scores computed under no_grad, then rescore those pairs with grad.
        """
        network = self.model.networks[place]
        for method in self.methods:
            image, text, given = method.split(network, image, text, len(owners))
            extra = {**extra, **given}
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            image, text = (self.group.all_gather(part, len(owners)) for part in (image, text))
            self._on_scores(place, partial(product, image.detach(), text.detach()))
            if extra or self.group.size > 1:
                return objective(image, text, owners, extra=extra)
            return self._graphs(objective, place, image, text, owners)
        scorer = network.scorer
        assert scorer is not None
        assert isinstance(image, TokenSets)
        assert isinstance(text, TokenSets)
        image, text = (self._gathered(part, len(owners)) for part in (image, text))
        few = objective.learns_from_few and scorer.by_pair
        with torch.set_grad_enabled(not few):
            scores = scorer(image, text)
        self._on_scores(place, scores.detach)
        again = partial(scorer.pairs, image, text) if few else None
        return objective.from_similarity(scores, owners, extra=extra, rescore=again)

    def _on_scores(self, place: int, scores: Callable[[], Float[Tensor, "b b"]]) -> None:
        for method in self.methods:
            if method.reads_scores:
                method.on_scores(place, scores())

    def _gathered(self, part: TokenSets, count: int) -> TokenSets:
        if self.group.size == 1:
            return part
        whole = None if part.whole is None else self.group.all_gather(part.whole, count)
        sizes = self.group.all_gather(part.sizes, count).cpu()  # the host knows them, and so need not wait for a GPU
        return TokenSets(self.group.all_gather(part.vectors, count), sizes, whole)

    def state(self) -> dict[str, Any]:
        """Return the training state without random states: "model", "optimizer", any "objective" and methods."""
        state = {"model": self.model.weights(), "optimizer": self.optimizer.state_dict(), **self.learnt()}
        return state | {method.name: part for method in self.methods if (part := method.state())}

    def learnt(self) -> dict[str, dict[str, Tensor]]:
        """Return learnt weights outside the model, keyed by "objective" or training method; usually empty."""
        return {name: values for name, network in self._learning().items() if (values := network.state_dict())}

    def load_learnt(self, learnt: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what `learnt` returned."""
        for name, network in self._learning().items():
            network.load_state_dict(learnt.get(name, {}))

    def _learning(self) -> dict[str, torch.nn.Module]:
        """Return the modules outside the model that may have learnt weights."""
        networks = {method.name: method.network for method in self.methods if method.network}
        return {"objective": self.objective, **networks}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.model.load_weights(state["model"])
        self.objective.load_state_dict(state.get("objective", {}))
        self.optimizer.load_state_dict(state["optimizer"])
        for method in self.methods:
            method.load(state.get(method.name, {}))


def _mean(values: Sequence[Any], like: Tensor) -> Tensor:
    """Return the mean of numbers and one-element tensors, detached, on the device of `like`."""
    return torch.stack([torch.as_tensor(value).detach().to(like).reshape(()) for value in values]).mean()


class FiniteCheck:
    """Asynchronous check whether loss and gradient of a step were finite, copied from device to host."""

    def __init__(self, measured: Mapping[str, Tensor], finite: Bool[Tensor, ""]) -> None:
        self.measured = measured
        self._finite, self._copied = finite, None
        if self._finite.is_cuda:
            on_device, self._finite = self._finite, torch.empty((), dtype=torch.bool, pin_memory=True)
            self._finite.copy_(on_device, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def finite(self) -> bool:
        """Wait until the device has finished this step (not later ones), and return whether the values were finite."""
        if self._copied is not None:
            self._copied.synchronize()
        return bool(self._finite)


def model_of(settings: TrialSettings, inputs: Inputs) -> DualEncoder:
    """Build the trial's untrained model on the training device."""
    shape, words, seed = inputs.pairs.train.images.shape, inputs.words, derived_seed(settings, "weights")
    kind = class_of(settings.model)
    model = kind(settings.model, shape, words, seed=seed, places=inputs.places)
    return model.to(inputs.device, memory_format=inputs.layout)  # type: ignore[call-overload]


def objective_of(settings: TrialSettings, device: torch.device) -> Objective:
    """Build the trial's untrained objective on this device; its parameters have a separate seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(settings, "objective"))
        return objectives.built(settings.objective).to(device)
