"""The objective that the trainer calls: a loss on mined triplets, or on all scores of a batch."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.global_state import contained
from goalgrid.grid.settings.user_modules import check_gradient, check_shape
from goalgrid.objectives import mining
from goalgrid.objectives.pair_weights import PairWeight
from goalgrid.objectives.relative import Relative
from goalgrid.objectives.triplet_weights import TripletWeight
from goalgrid.objectives.triplets import NOTHING, BatchPairs, Extra, Triplets

Loss = Callable[[Triplets], Float[Tensor, "*a #k"]]
"""Function that returns the loss of each triplet, or of each anchor with all its negatives."""

REDUCTIONS: dict[str, Callable[[int], float]] = {
    "sum": lambda pairs: 1.0,
    "mean": lambda pairs: 1.0 / pairs,
    "average": lambda pairs: 0.5 / pairs,
    "negatives": lambda pairs: 0.5 / (pairs * (pairs - 1)),
}
"""Factor on the sum over pairs and both directions: 1 (GOAL, VSE++), or the factor of a mean over pairs, over pairs and
directions, or over pairs, directions and negatives (CE, MMT)."""

UserLoss = tuple[str, Callable[..., Any]]
"""Name of a user-defined loss, and its function or class."""

UNKNOWN = torch.tensor(torch.nan)
"""NaN, for values of a report that are unknown."""


@dataclass(frozen=True)
class GradientSurrogate:
    """Surrogate loss of a cell of GOAL's matrix: T (P- s_neg - P+ s_pos) with T, P+, P- constant.

    So dl/ds_pos = -T P+ and dl/ds_neg = T P-, GOAL Eq. (3). Any factor on the loss (AMP, accumulation, coefficients)
    also scales this gradient, and mined negatives receive gradients too. The value does not measure progress; use the
    report instead, e.g. `active`, the share of triplets with T > 0.01.

    Args:
        triplet_weight, pair_weight: functions with their parameters bound.
    """

    triplet_weight: TripletWeight
    pair_weight: PairWeight

    def __call__(self, t: Triplets) -> Float[Tensor, "*a k"]:
        """Return the value of each triplet."""
        triplet = t.finite()
        # Detach before computing weights: P- = s_neg would otherwise keep its graph.
        constants = triplet.detach()
        w_tri = self.triplet_weight(constants)
        w_pos, w_neg = self.pair_weight(constants)
        if not t.always:
            w_tri = w_tri.where(t.exists, 0.0)
        t.notes["active"] = w_tri > 0.01
        return (w_tri * w_neg) * triplet.s_neg - (w_tri * w_pos) * triplet.s_pos


class Objective(torch.nn.Module):
    """A loss on mined triplets, or a surrogate that defines only its gradient (`GradientSurrogate`).

    Args:
        loss: returns the value of each triplet.
        k: number of hardest negatives per anchor, one triplet each; None: all negatives.
        remines: whether the loss is also defined on other negatives than its own.
        relative: definition of the relative sets, for losses that read m+ and m-.
        reduction: a key of REDUCTIONS.
        ignore_same_image: do not use captions of the same image as negatives; needs `image_of_text` in the call.
        row_margin: computes from `extra` the margin to add to each image's scores before mining; None: no margin.
        user_loss: name and function or class of a user-defined loss, whose return value is checked.
    """

    report: dict[str, Tensor]
    """Diagnostics of the last batch: detached scalars on its device, averaged over both directions.

    `s_pos`, `s_neg` (hardest), `delta_s` = |s_neg - s_pos| (SelHN Eq. 10), `active` (share of triplets with a weight
    above 0.01, or a loss above 1e-4), `false_negatives` (share of mined negatives that belong to the anchor's own
    image; NaN without image_of_text), and after backward `grad_image`, `grad_text`: gradient norms of the embeddings,
    including any factor on the loss (NaN for a similarity matrix). ADOPT adds `k`; `shn`, `sct` and `selhn` add
    `branch`, the share of anchors for which they differ from Triplet-HN.
    """

    built_of: str
    """Name and parameters, as text; empty unless it was built by `goalgrid.objectives.build`."""

    def __init__(
        self,
        loss: Loss,
        *,
        k: int | None = 1,
        remines: bool = True,
        relative: Relative | None = None,
        reduction: str = "sum",
        ignore_same_image: bool = False,
        row_margin: Callable[[Extra], Float[Tensor, " b"] | None] | None = None,
        user_loss: UserLoss | None = None,
    ) -> None:
        super().__init__()
        self.user_loss = user_loss
        self.loss, self.relative, self.row_margin = loss, relative, row_margin
        self.k, self.remines = k, remines
        self.reduction, self.ignore_same_image = reduction, ignore_same_image
        self.report = {}
        self.built_of = ""

    def extra_repr(self) -> str:
        return self.built_of

    def forward(
        self,
        image: Float[Tensor, "b d"],
        text: Float[Tensor, "t d"],
        image_of_text: Int[Tensor, " n"] | None = None,
        *,
        extra: Extra = NOTHING,
    ) -> Float[Tensor, ""]:
        """Return the loss of unit vectors; row k of `image` and row k of `text` are pair k.

        Args:
            image_of_text: index of each pair's image in the data set; used by `ignore_same_image` and the diagnostics.
            extra: additional inputs of the loss for each pair, as in `Triplets.extra`.

        Raises:
            ValueError: the batch has no negatives or no pairs, or `image_of_text` is missing or has a wrong length.
            WrongReturn: a user-defined loss returns values of a wrong shape, or without a gradient.
        """
        if image.ndim != 2 or image.shape != text.shape:
            shapes = f"{tuple(image.shape)} and {tuple(text.shape)}"
            raise ValueError(f"embeddings {shapes} are not pairs: both must be (pairs, dimensions), in the same order")
        pairs = self._pairs(len(text), image_of_text, extra)
        report = self._new_report()
        if self.learns_from_few:
            triplets = mining.hardest_of_embeddings(image, text, pairs, self.relative)
            _watch(triplets.s_pos, report)
            return self._value([triplets], extra)
        sim = mining.product(image, text)
        _watch(sim, report)
        return self._of_all(sim, pairs, extra)

    def from_similarity(
        self,
        sim: Float[Tensor, "b t"],
        image_of_text: Int[Tensor, " t"] | None = None,
        *,
        extra: Extra = NOTHING,
        rescore: mining.Rescore | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a score matrix, images by texts, with values of any range; for cross-attention scorers.

        Args:
            rescore: recomputes scores of pairs; if the objective `learns_from_few`, `sim` then needs no graph.
        """
        if sim.ndim != 2 or sim.shape[0] != sim.shape[1]:
            raise ValueError(f"scores {tuple(sim.shape)} are not square: they must be (pairs, pairs), images by texts")
        pairs = self._pairs(len(sim), image_of_text, extra)
        self._new_report()
        if self.learns_from_few:
            return self._value([mining.hardest_of_similarity(sim, pairs, self.relative, rescore)], extra)
        return self._of_all(mining.full(sim), pairs, extra)

    @property
    def learns_from_few(self) -> bool:
        """Return whether only the positive and the two hardest negatives of each pair get a gradient."""
        return self.k == 1

    def with_all_negatives(self) -> "Objective":
        """Return this objective on all negatives; itself if its equation fixes the negatives.

        Used for warm-up, as in epoch 0 of VSE-infinity.
        """
        if not self.remines:
            return self
        other = copy.copy(self)
        other.k, other.report = None, {}
        return other

    def _pairs(self, size: int, image_of_text: Tensor | None, extra: Extra) -> BatchPairs:
        return BatchPairs(size, image_of_text, self.ignore_same_image, self.row_margin and self.row_margin(extra))

    def _of_all(self, sim: Float[Tensor, "b b"], pairs: BatchPairs, extra: Extra) -> Float[Tensor, ""]:
        return self._value(mining.candidates(sim, pairs, self.relative, self.k), extra)

    def _value(self, directions: list[Triplets], extra: Extra) -> Float[Tensor, ""]:
        directions = [replace(t, extra=extra) for t in directions] if extra else directions
        values = [self._called(self.loss, t) for t in directions]
        shape = tuple(directions[0].s_neg.shape)
        expected = shape, (*shape[:-1], 1), shape[:-1]
        self._check(values, f"triplets {shape}", expected, learns=directions[0].s_pos.requires_grad)
        self._diagnose(directions, values)
        sums = [value.sum() for value in values]
        total = sums[0] if len(sums) == 1 else torch.stack(sums).sum()
        factor = REDUCTIONS[self.reduction](directions[0].s_pos.numel())
        return total if factor == 1.0 else total * factor

    def _called(self, loss: Callable[..., Any], of: Triplets | Tensor) -> Any:
        """Call the loss; undo changes of torch's global settings by a user-defined loss."""
        if self.user_loss is None:
            return loss(of)
        with contained(self.user_loss[1]):
            return loss(of)

    def _check(self, values: list[Any], of: str, expected: tuple[tuple[int, ...], ...], *, learns: bool) -> None:
        """Check the values of a user-defined loss by `check_shape` and, if the scores learn, `check_gradient`."""
        if self.user_loss is None:
            return
        name, equation = self.user_loss
        for value in values:
            check_shape(f"objective {name!r}", equation, value, of, *expected)
        if learns and torch.is_grad_enabled():
            check_gradient(f"objective {name!r}", equation, of, *values)

    def _new_report(self) -> dict[str, Tensor]:
        self.report = {"grad_image": UNKNOWN, "grad_text": UNKNOWN}
        return self.report

    @torch.no_grad()
    def _diagnose(self, directions: list[Triplets], values: list[Tensor]) -> None:
        shares = [diagnostics(t, value) for t, value in zip(directions, values, strict=True)]
        for key in shares[0]:
            self.report[key] = shares[0][key] if len(shares) == 1 else torch.stack([s[key] for s in shares]).mean()


class ScoresObjective(Objective):
    """A user-defined loss on the whole score matrix, called once per batch; it returns the loss of the batch.

    The scores are (b, b), images by texts, with pair k at (k, k). The report lacks the share of active triplets.
    """

    def __init__(self, loss: Callable[[Float[Tensor, "b b"]], Float[Tensor, ""]], user_loss: UserLoss) -> None:
        super().__init__(lambda t: t.s_neg, k=None, remines=False, reduction="average", user_loss=user_loss)
        self.of_scores = loss

    def _of_all(self, sim: Float[Tensor, "b b"], pairs: BatchPairs, extra: Extra) -> Float[Tensor, ""]:
        value = self._called(self.of_scores, sim)
        of = f"the scores of a batch, {tuple(sim.shape)}"
        self._check([value], of, ((), (1,), (1, 1)), learns=sim.requires_grad)
        mined = mining.hardest_of_similarity(sim.detach(), pairs, None)
        mined.notes["active"] = torch.full_like(mined.s_neg, torch.nan)
        self._diagnose([mined], [mined.s_neg])
        return value.sum()


def diagnostics(t: Triplets, value: Float[Tensor, "*a #k"]) -> dict[str, Tensor]:
    """Compute the values of `Objective.report` from the similarities, since a surrogate's value shows no progress."""
    s_pos, hardest = t.s_pos.detach(), t.hardest.detach()
    known = None if t.always else hardest > -torch.inf
    notes = dict(t.notes)

    def share(holds: Tensor | None) -> Tensor:
        """Return the share of triplets, or of anchors, for which `holds` is true."""
        if holds is None:
            return UNKNOWN
        return _mean(holds.to(s_pos.dtype), None if t.always or holds.shape != t.s_neg.shape else t.exists)

    return {
        "s_pos": s_pos.mean(),
        "s_neg": _mean(hardest, known),
        "delta_s": _mean((hardest - s_pos).abs(), known),
        "active": share(notes.pop("active") if "active" in notes else value.detach() > 1e-4),
        "false_negatives": share(t.false_negative),
        **{key: note.detach().to(s_pos.dtype) for key, note in notes.items()},
    }


def _mean(values: Tensor, known: Tensor | None) -> Tensor:
    return values.mean() if known is None else values.where(known, 0.0).sum() / known.sum()


def _watch(similarities: Tensor, report: dict[str, Tensor]) -> None:
    """Register a hook that reports the gradient norms of the image and text embeddings."""

    def note(gradients: tuple[Tensor | None, ...], _: object) -> None:
        for key, gradient in zip(("grad_image", "grad_text"), gradients, strict=False):
            if gradient is not None:
                flat = mining.full(gradient.detach()).flatten()
                report[key] = torch.dot(flat, flat).sqrt()

    if not torch.compiler.is_compiling() and similarities.grad_fn is not None:
        similarities.grad_fn.register_hook(note)
