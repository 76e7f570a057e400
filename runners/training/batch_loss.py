"""The loss of a batch: each network embeds it, and the objective reads the embeddings or their scores."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives.mining import product
from goalgrid.objectives.objective import Objective
from goalgrid.objectives.triplets import Extra
from goalgrid.retrieval.model import Vse
from goalgrid.retrieval.parts.companion import Companion
from goalgrid.retrieval.scorers.sets import Embedded, Sets
from goalgrid.runners.training.exchange import ALONE, ProcessGroup, synchronised
from goalgrid.runners.training.graphed import Graphs
from goalgrid.runners.training.inputs import Batch, Inputs
from goalgrid.runners.training.machine import precision
from goalgrid.runners.training.recomputation import embedded_in_parts


class BatchLoss:
    """The loss of a batch; in a process group, each rank embeds a part and gathers the embeddings of all."""

    def __init__(
        self, settings: TrialSettings, inputs: Inputs, model: Vse, companions: Sequence[Companion] = ()
    ) -> None:
        self.settings, self.inputs, self.model, self.companions = settings, inputs, model, companions
        self.group: ProcessGroup = ALONE
        alone = not companions  # one of them may ask for the losses of two batches before it takes a gradient
        self._graphs = Graphs(enabled=inputs.graphs and alone, pairs=settings.train.batch_size)

    def __call__(self, batch: Batch, objective: Objective) -> tuple[Float[Tensor, ""], list[dict[str, Tensor]]]:
        """The sum of the networks' losses, and the objective's report of each network, which backward completes."""
        images, tokens, owners = batch.on(self.inputs.device)
        extra = {name: values.to(self.inputs.device, non_blocking=True) for name, values in batch.extra.items()}
        values, reports = list[Tensor](), list[dict[str, Tensor]]()
        for place, network in enumerate(self.model.networks):
            with precision(self.settings, self.inputs.device), synchronised(self.group):
                embedded = embedded_in_parts(network, images, *tokens, self.settings.train.micro_batch)
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
        """The loss of the embeddings of the network at this place.

        If only mined pairs get a gradient, mine on scores computed under no_grad, then recompute those pairs with grad.
        """
        network = self.model.networks[place]
        for companion in self.companions:
            image, text, further = companion.split(network, image, text, len(owners))
            extra = {**extra, **further}
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            image, text = (self.group.all_gather(part, len(owners)) for part in (image, text))
            self._scored(place, partial(product, image.detach(), text.detach()))
            if extra or self.group.size > 1:
                return objective(image, text, owners, extra=extra)
            return self._graphs(objective, place, image, text, owners)
        scorer = network.scorer
        assert scorer is not None
        assert isinstance(image, Sets)
        assert isinstance(text, Sets)
        image, text = (self._gathered(part, len(owners)) for part in (image, text))
        few = objective.learns_from_few and scorer.by_pair
        with torch.set_grad_enabled(not few):
            scores = scorer(image, text)
        self._scored(place, scores.detach)
        again = partial(scorer.pairs, image, text) if few else None
        return objective.from_similarity(scores, owners, extra=extra, again=again)

    def _scored(self, place: int, scores: Callable[[], Float[Tensor, "b b"]]) -> None:
        for companion in self.companions:
            if companion.listens:
                companion.scored(place, scores())

    def _gathered(self, part: Sets, count: int) -> Sets:
        if self.group.size == 1:
            return part
        whole = None if part.whole is None else self.group.all_gather(part.whole, count)
        sizes = self.group.all_gather(part.sizes, count).cpu()  # the host knows them, and so need not wait for a GPU
        return Sets(self.group.all_gather(part.vectors, count), sizes, whole)
