"""Objectives of K models at once: one product and one search for all that mine the hardest, weights each its own."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from objectives.goal import surrogate
from objectives.mining import Hardest, Similarities, counted, hardest
from objectives.objective import REDUCTIONS, UNKNOWN, Objective
from objectives.relative import relative_positives
from objectives.triplets import Triplets

TOGETHER = 512
"""Largest batch of which K matrices of similarities are formed at once."""

VECTOR = 32
"""Elements that a CPU's loop takes at a time, or a multiple; the last of an array, which fill none, round otherwise."""


class StackedObjective:
    """What each of K models is trained with.

    GOAL's cells on hardest negatives are evaluated together (`Cells`); every other objective is called by itself.

    Args:
        batch: pairs of a batch; large ones leave no objective time to save, and K matrices of theirs are large.
    """

    def __init__(self, objectives: Sequence[Objective], batch: int = 0) -> None:
        self.objectives = list(objectives)
        self._cells = [k for k, objective in enumerate(objectives) if is_cell(objective) and batch <= TOGETHER]
        self._others = [k for k in range(len(self.objectives)) if k not in self._cells]
        self._together = Cells([self.objectives[k] for k in self._cells])

    def __call__(
        self, image: Float[Tensor, "k b d"], text: Float[Tensor, "k b d"], image_of_text: Int[Tensor, "k b"]
    ) -> Float[Tensor, " k"]:
        """The loss of each model on its aligned pairs; see `Objective.__call__`.

        Args:
            image_of_text: which data-set image each of a model's pairs is of.
        """
        if not self._others:
            return self._together(image, text, image_of_text)
        losses = dict[int, Tensor]()
        if self._cells:
            rows = _index(tuple(self._cells), image.device)
            some = self._together(*(values.index_select(0, rows) for values in (image, text, image_of_text)))
            losses |= zip(self._cells, some.unbind(), strict=True)
        images, texts = image.unbind(), text.unbind()
        losses |= {k: self.objectives[k](images[k], texts[k], image_of_text[k]) for k in self._others}
        return torch.stack([losses[k] for k in range(len(self.objectives))])

    @property
    def report(self) -> dict[str, Float[Tensor, " k"]]:
        """`Objective.report` of the last batch, of each model; nan where an objective has no such entry."""
        if not self._others:
            return self._together.report
        of_cells = self._together.report if self._cells else {}
        each = {k: {name: values[place] for name, values in of_cells.items()} for place, k in enumerate(self._cells)}
        each |= {k: self.objectives[k].report for k in self._others}
        shown = {name: value for report in each.values() for name, value in report.items()}
        return {
            name: torch.stack([each[k].get(name, torch.full_like(one, torch.nan)) for k in range(len(each))])
            for name, one in shown.items()
        }


def is_cell(objective: Objective) -> bool:
    """Whether it is one of GOAL's, on the hardest negative."""
    loss = objective.loss
    mines_one = objective.mined == "hardest" and objective.k == 1
    return mines_one and isinstance(loss, partial) and loss.func is surrogate


class Cells:
    """Cells of GOAL's matrix, one a model: a batched product and one search for the maxima serve all of them.

    Each triplet weight, pair weight and relative set is evaluated once for all models that have it; for each of them by
    itself where a batch fills no whole vectors, as then not even a rounding depends on the other models.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        losses = [objective.loss for objective in objectives]
        weights = [loss.keywords for loss in losses if isinstance(loss, partial)]
        self.relative = _groups(objective.relative for objective in objectives)
        self.triplet_weights = _groups(_Weight(each["triplet_weight"]) for each in weights)
        self.pair_weights = _groups(_Weight(each["pair_weight"]) for each in weights)
        self.masked = [k for k, objective in enumerate(objectives) if objective.ignore_same_image]
        self.reductions = [REDUCTIONS[objective.reduction] for objective in objectives]
        self.report: dict[str, Float[Tensor, " k"]] = {}

    def __call__(
        self, image: Float[Tensor, "k b d"], text: Float[Tensor, "k b d"], image_of_text: Int[Tensor, "k b"]
    ) -> Float[Tensor, " k"]:
        """The loss of each model."""
        count, batch, _ = image.shape
        self.report = {"grad_image": UNKNOWN.expand(count), "grad_text": UNKNOWN.expand(count)}
        image, text = self._watched(image, "grad_image"), self._watched(text, "grad_text")
        with torch.no_grad():
            same = image_of_text[:, :, None] == image_of_text[:, None, :]
            mined, found = self._mined(image, text, same)
            w_tri, w_pos, w_neg = self._weights(mined)
        # Similarities are between rows, so that K batches are one whose models mine within their own part of it.
        starts = torch.arange(0, count * batch, batch, device=image.device)[:, None]
        s_pos, s_neg = Similarities.apply(
            image.flatten(0, 1),
            text.flatten(0, 1),
            None,
            *((each.index + starts).flatten() for each in found),
            mined.s_pos.flatten(1)[..., None],
            mined.s_neg.flatten(1)[..., None],
        )
        s_pos, s_neg = s_pos.view(1, count, batch, 1), s_neg.view(2, count, batch, 1)
        if not mined.always:
            s_neg = s_neg.masked_fill(~mined.exists, 0.0)
        losses = _by_model((w_tri * w_neg) * s_neg - (w_tri * w_pos) * s_pos).sum(1)
        self._diagnose(mined, w_tri, _mined_of_own(same, found))
        factors = [reduction(batch) for reduction in self.reductions]
        return losses if set(factors) == {1.0} else losses * torch.tensor(factors, device=losses.device)

    def _mined(
        self, image: Float[Tensor, "k b d"], text: Float[Tensor, "k b d"], same: Bool[Tensor, "k b b"]
    ) -> tuple[Triplets, tuple[Hardest, Hardest]]:
        """Both directions' triplets of every pair, a = (2, k, b), and where their negatives are."""
        batch, sim = image.shape[1], torch.bmm(image, text.mT)
        s_pos = sim.diagonal(dim1=1, dim2=2).clone()
        sim.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
        for k in self.masked:
            sim[k].masked_fill_(same[k], -torch.inf)
        found = hardest(sim, -1), hardest(sim, -2)
        s_neg = torch.stack([each.s_neg for each in found])
        m_pos, m_neg = torch.zeros_like(s_neg), torch.zeros_like(s_neg)
        for relative, models in _apart(self.relative, batch * batch):
            if relative is not None:
                some = _index(models, sim.device)
                own = s_pos[some]
                rows, columns = (Hardest(each.s_neg[some], each.index[some]) for each in found)
                sums = counted(sim[some], rows, columns, relative, relative.threshold(own))
                of_neg = torch.stack([each.mean(relative) for each in sums])
                of_pos = relative_positives(own, s_neg[:, some].transpose(0, 1), relative).transpose(0, 1)
                m_neg[:, some], m_pos[:, some] = of_neg, of_pos
        triplets = Triplets(s_pos[None, ..., None], s_neg[..., None], m_pos[..., None], m_neg[..., None])
        return replace(triplets, always=not self.masked), found

    def _weights(self, mined: Triplets) -> tuple[Tensor, Tensor, Tensor]:
        """T, P+ and P- of every triplet, (2, k, b, 1)."""
        triplets = mined.finite()
        w_tri, w_pos, w_neg = (torch.empty_like(mined.s_neg) for _ in range(3))
        batch = triplets.s_pos.shape[2]
        for weight, models in _apart(self.triplet_weights, 2 * batch):
            some = _index(models, w_tri.device)
            w_tri[:, some] = weight(_part(triplets, some))
        for weight, models in _apart(self.pair_weights, batch):
            some = _index(models, w_tri.device)
            w_pos[:, some], w_neg[:, some] = weight(_part(triplets, some))
        return (w_tri if mined.always else w_tri.where(mined.exists, 0.0)), w_pos, w_neg

    @torch.no_grad()
    def _diagnose(self, mined: Triplets, w_tri: Tensor, own: Bool[Tensor, "2 k b 1"]) -> None:
        """What `objectives.objective.diagnostics` reports, of each model."""
        known = None if mined.always else mined.exists

        def mean(values: Tensor) -> Tensor:
            if known is None:
                return _by_model(values).mean(1)
            return _by_model(values.where(known, 0.0)).sum(1) / _by_model(known).sum(1)

        self.report |= {
            "s_pos": _by_model(mined.s_pos).mean(1),
            "s_neg": mean(mined.s_neg),
            "delta_s": mean((mined.s_neg - mined.s_pos).abs()),
            "active": mean((w_tri > 0.01).float()),
            "false_negatives": mean(own.float()),
        }

    def _watched(self, embedding: Float[Tensor, "k b d"], key: str) -> Float[Tensor, "k b d"]:
        """The same embeddings, whose gradients' norms go to the report once they are known."""
        if not embedding.requires_grad:
            return embedding
        seen, report = embedding.view_as(embedding), self.report

        def note(gradient: Tensor) -> None:
            report[key] = torch.linalg.vector_norm(gradient.detach().flatten(1), dim=1)

        seen.register_hook(note)
        return seen


class _Weight:
    """A weight with its parameters: equal to another that computes the same."""

    def __init__(self, equation: partial[Any]) -> None:
        self.equation = equation
        self._key = (equation.func, tuple(sorted(equation.keywords.items())))

    def __call__(self, triplets: Triplets) -> Any:
        return self.equation(triplets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Weight) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _groups(keys: Iterable[Any]) -> dict[Any, tuple[int, ...]]:
    """The places of each key."""
    groups: dict[Any, tuple[int, ...]] = {}
    for place, key in enumerate(keys):
        groups[key] = (*groups.get(key, ()), place)
    return groups


def _apart(groups: dict[Any, tuple[int, ...]], elements: int) -> list[tuple[Any, tuple[int, ...]]]:
    """The groups, or each model as one, where so many elements of a model fill no whole vectors."""
    if elements % VECTOR == 0:
        return list(groups.items())
    return [(key, (model,)) for key, models in groups.items() for model in models]


@cache
def _index(models: tuple[int, ...], device: torch.device) -> Int[Tensor, " m"]:
    return torch.tensor(models, device=device)


def _part(triplets: Triplets, some: Int[Tensor, " m"]) -> Triplets:
    """The triplets of some models."""
    assert triplets.m_pos is not None
    assert triplets.m_neg is not None
    return replace(
        triplets,
        s_pos=triplets.s_pos[:, some],
        s_neg=triplets.s_neg[:, some],
        m_pos=triplets.m_pos[:, some],
        m_neg=triplets.m_neg[:, some],
    )


def _by_model(values: Shaped[Tensor, "a k b 1"]) -> Shaped[Tensor, "k ab"]:
    """All that is of one model in one row, so that a sum of it does not depend on the other rows."""
    return values.transpose(0, 1).flatten(1)


def _mined_of_own(same: Bool[Tensor, "k b b"], found: tuple[Hardest, Hardest]) -> Bool[Tensor, "2 k b 1"]:
    """Whether each mined negative shows the anchor's own image."""
    return torch.stack([same.gather(2, each.index[..., None]) for each in found])
