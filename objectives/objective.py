"""What the trainer calls: an objective, whatever it is made of."""

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
"""Value of each triplet, or of each anchor with all its negatives."""

REDUCTIONS: dict[str, Callable[[int], float]] = {
    "sum": lambda pairs: 1.0,
    "mean": lambda pairs: 1.0 / pairs,
    "average": lambda pairs: 0.5 / pairs,
    "negatives": lambda pairs: 0.5 / (pairs * (pairs - 1)),
}
"""Factor on the sum over pairs and both directions: 1, as GOAL and VSE++; a mean over pairs; over directions too; over
negatives too, as CE and MMT."""

UserLoss = tuple[str, Callable[..., Any]]
"""The name of a user's own loss, and its function or class."""

UNKNOWN = torch.tensor(torch.nan)
"""Value of a report that this call cannot know."""


@dataclass(frozen=True)
class GradientSurrogate:
    """Surrogate for the loss in a cell of GOAL's matrix: T (P- s_neg - P+ s_pos) with T, P+, P- constant.

    So dl/ds_pos = -T P+ and dl/ds_neg = T P-. GOAL Eq. (3). Whatever scales the loss (AMP, accumulation, coefficients)
    scales that gradient, and mined negatives receive theirs too. The value is no measure of progress; the report holds
    what is: `active` is the share of T > 0.01.

    Args:
        triplet_weight, pair_weight: with their parameters set.
    """

    triplet_weight: TripletWeight
    pair_weight: PairWeight

    def __call__(self, t: Triplets) -> Float[Tensor, "*a k"]:
        """The value of each triplet."""
        triplet = t.finite()
        # Before any weight sees them: P- = s_neg would otherwise keep its graph.
        constants = triplet.detach()
        w_tri = self.triplet_weight(constants)
        w_pos, w_neg = self.pair_weight(constants)
        if not t.always:
            w_tri = w_tri.where(t.exists, 0.0)
        t.notes["active"] = w_tri > 0.01
        return (w_tri * w_neg) * triplet.s_neg - (w_tri * w_pos) * triplet.s_pos


class Objective(torch.nn.Module):
    """A loss of mined triplets, or a gradient in the form of one (`GradientSurrogate`).

    Args:
        loss: gives the value of each triplet.
        k: how many hardest negatives of an anchor make a triplet each; None: all negatives.
        remines: whether the loss has a meaning on other negatives too.
        relative: the relative sets, for a loss that reads m+ and m-.
        reduction: a name in REDUCTIONS.
        ignore_same_image: captions of the same image are no negatives; needs `image_of_text` in the call.
        row_margin: gives, from what else is known of the pairs, what is added to each image's scores before mining;
            None: nothing.
        user_loss: of a user's own loss, its name and the function or class, for the check of what it returns.
    """

    report: dict[str, Tensor]
    """Diagnostics of the last batch: detached scalars on its device, means of both directions.

    `s_pos`, `s_neg` (hardest), `delta_s` = |s_neg - s_pos| (SelHN Eq. 10), `active` (share of triplets with a weight
    over 0.01, or a loss over 1e-4), `false_negatives` (share of mined negatives that are of the anchor's own image;
    nan without image_of_text), and after backward `grad_image`, `grad_text`: norms of the gradient of the embeddings,
    with whatever scales the loss (nan from a similarity matrix). ADOPT adds `k`; `shn`, `sct`
    and `selhn` add `branch`, the share of anchors on the branch that makes them other than Triplet-HN.
    """

    built_of: str
    """Its name and parameters, for a reader; empty unless `goalgrid.objectives.build` made it."""

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
        """Return the loss of unit vectors, of which row k of both is pair k.

        Args:
            image_of_text: which image of the data set each pair has; read by `ignore_same_image` and the diagnostics.
            extra: what else the loss reads of the pairs, as `Triplets.extra`.

        Raises:
            ValueError: the batch has no negatives or no pairs, or `image_of_text` is of others or missing where needed.
            WrongReturn: a user's own loss returns no values of its triplets or anchors, or none that learn.
        """
        if image.ndim != 2 or image.shape != text.shape:
            shapes = f"{tuple(image.shape)} and {tuple(text.shape)}"
            raise ValueError(f"embeddings {shapes} are no pairs: both must be (pairs, dimensions), in one order")
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
        """Return the loss of a matrix of scores, images by texts, of any range: for cross-attention scorers.

        Args:
            rescore: scores pairs again; for an objective that `learns_from_few`, the matrix then needs no graph.
        """
        if sim.ndim != 2 or sim.shape[0] != sim.shape[1]:
            raise ValueError(f"scores {tuple(sim.shape)} are of no pairs: they must be (pairs, pairs), images by texts")
        pairs = self._pairs(len(sim), image_of_text, extra)
        self._new_report()
        if self.learns_from_few:
            return self._value([mining.hardest_of_similarity(sim, pairs, self.relative, rescore)], extra)
        return self._of_all(mining.full(sim), pairs, extra)

    @property
    def learns_from_few(self) -> bool:
        """Whether only the positive and the two hardest negatives of each pair get a gradient."""
        return self.k == 1

    def with_all_negatives(self) -> "Objective":
        """Return the same objective on all negatives; itself, if its equation leaves no choice.

        A trainer warms up with it, as VSE-infinity does in epoch 0.
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
        """What the loss gives; a user's own changes no setting of torch for others."""
        if self.user_loss is None:
            return loss(of)
        with contained(self.user_loss[1]):
            return loss(of)

    def _check(self, values: list[Any], of: str, expected: tuple[tuple[int, ...], ...], *, learns: bool) -> None:
        """Check what a user's own loss returned, as `check_shape` and, where scores learn, `check_gradient` do."""
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
    """A user's own loss of the whole matrix of scores, called once a batch: its value is the loss of the batch.

    The scores are (b, b), images by texts, pair k at (k, k). Its report has no share of active triplets.
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
    """Compute the values of `Objective.report` that the surrogate cannot show."""
    s_pos, hardest = t.s_pos.detach(), t.hardest.detach()
    known = None if t.always else hardest > -torch.inf
    notes = dict(t.notes)

    def share(holds: Tensor | None) -> Tensor:
        """Of the triplets, or of the anchors."""
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
    """Have backward report the norms of the gradients of images and texts, of which these were computed."""

    def note(gradients: tuple[Tensor | None, ...], _: object) -> None:
        for key, gradient in zip(("grad_image", "grad_text"), gradients, strict=False):
            if gradient is not None:
                flat = mining.full(gradient.detach()).flatten()
                report[key] = torch.dot(flat, flat).sqrt()

    if not torch.compiler.is_compiling() and similarities.grad_fn is not None:
        similarities.grad_fn.register_hook(note)
