"""The loss of a batch: each network embeds it, and the objective reads the embeddings or their scores."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives.mining import full, product
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.fusion.encoder import FusionEncoder
from goalgrid.retrieval.fusion.matching_loss import matching_loss
from goalgrid.retrieval.model import Embedded, Vse
from goalgrid.retrieval.scorers.sets import Sets
from goalgrid.runners.training.exchange.collectives import ALONE, Exchange
from goalgrid.runners.training.exchange.synced_batchnorm import synchronised
from goalgrid.runners.training.inputs import Batch, Inputs
from goalgrid.runners.training.per_pair.clean_probability import CleanProbabilities
from goalgrid.runners.training.precision import precision


class BatchLoss:
    """The loss of a batch, of which a replica embeds a part and reads the embeddings of all.

    Args:
        clean: is told the scores of each batch, where an objective reads how probably pairs match.
    """

    def __init__(
        self, settings: TrialSettings, inputs: Inputs, model: Vse, clean: CleanProbabilities | None = None
    ) -> None:
        self.settings, self.inputs, self.model, self.clean = settings, inputs, model, clean
        self.exchange: Exchange = ALONE

    def __call__(self, batch: Batch, objective: Objective) -> tuple[Float[Tensor, ""], list[dict[str, Tensor]]]:
        """The sum of the networks' losses, and for each the objective's report, to which backward adds."""
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

    def _value(
        self, objective: Objective, network: int, image: Embedded, text: Embedded, owners: Tensor, clean: Tensor | None
    ) -> Tensor:
        """The loss of a network's embeddings.

        Where an objective learns from few of the scores of sets, all scores are computed without a graph first, and the
        few again with a graph.
        """
        offline = None
        if self.inputs.offline is not None:
            offline = self.offline(network, image, text, len(owners))
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

    def offline(self, network: int, image: Embedded, text: Embedded, count: int) -> Float[Tensor, "2 b 2"]:
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
