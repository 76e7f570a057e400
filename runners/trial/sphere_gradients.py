"""Gradients on the unit sphere: the tangential part moves an embedding; normalisation removes the radial part.

Unified §3.3 and SelHN §3.2 give different conditions under which the gradient of Triplet-HN vanishes; both
are measured.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.objectives import mining
from goalgrid.objectives.objective import Objective, ScoresObjective
from goalgrid.objectives.triplets import BatchPairs
from goalgrid.runners.training.inputs import batches
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import precision
from goalgrid.runners.trial.loaded_model import LoadedModel


class Gradients(NamedTuple):
    """Gradient statistics of each anchor of a batch, images first: (2 b,). Tangents are the parts along the sphere."""

    delta_s: Tensor
    """|s_neg - s_pos| for the hardest negative. SelHN Eq. (10)."""
    distance: Tensor
    """|y_neg - y_pos|, distance of hardest negative and positive: the norm of Triplet-HN's gradient at the anchor."""
    anchor: Tensor
    """Norm of the tangent at the anchor. Unified Eq. (11), for any loss."""
    positive: Tensor
    negatives: Tensor
    """Norm of the tangents at all negatives together."""
    radial: Tensor
    """Radial share of the squared gradient at the anchor, which normalisation removes."""
    cosine: Tensor
    """Cosine between the gradients at positive and hardest negative; at -1 they cancel in a shared encoder."""
    selhn: Tensor
    """|y_neg - y_pos| |s_neg - s_pos|: Triplet-HN's tangent at the anchor according to SelHN Eq. (8)."""


def on_sphere(
    objective: Objective,
    image: Float[Tensor, "b d"],
    text: Float[Tensor, "b d"],
    owners: Int[Tensor, " b"] | None = None,
) -> Gradients:
    """Compute gradients at unit vectors, of each anchor's loss (or of the batch's loss, for a loss on all scores).

    `owners` is the image of each pair, for objectives that treat captions of the same image differently.
    """
    with torch.enable_grad():
        sim = mining.product(image, text).detach().requires_grad_()
        pairs = BatchPairs(len(sim), owners, objective.ignore_same_image)
        if isinstance(objective, ScoresObjective):
            losses = [objective.of_scores(sim).sum()] * 2
        else:
            triplets = mining.candidates(sim, pairs, objective.relative, objective.k)
            losses = [objective.loss(part).sum() for part in triplets]
        of_images, of_texts = (torch.autograd.grad(loss, sim, retain_graph=True)[0] for loss in losses)
    sim, same = sim.detach(), pairs.of_same_image() if pairs.masked else None
    same = torch.eye(len(sim), dtype=torch.bool, device=sim.device) if same is None else same
    both = _one_way(image, text, sim, same, of_images), _one_way(text, image, sim.T, same, of_texts.T)
    return Gradients(*(torch.cat(parts) for parts in zip(*both, strict=True)))


def _one_way(
    x: Tensor, y: Tensor, sim: Float[Tensor, "b b"], same: Bool[Tensor, "b b"], gradient: Float[Tensor, "b b"]
) -> Gradients:
    """Gradients for anchors x and others y of different images; at x, the sum of y weighted by the score gradients."""
    s_pos, of_pos = sim.diagonal(), gradient.diagonal()
    s_neg, hardest = (sim - 3 * same).max(1)
    at_anchor = gradient @ y
    along = (at_anchor * x).sum(1)
    whole = at_anchor.square().sum(1)
    sine = (1 - sim.square()).clamp(min=0)
    at_others = gradient.square() * sine
    at_positive = of_pos[:, None] * (x - s_pos[:, None] * y)
    at_hardest = gradient.gather(1, hardest[:, None]) * (x - s_neg[:, None] * y[hardest])
    distance = (y[hardest] - y).norm(dim=1)
    return Gradients(
        delta_s=(s_neg - s_pos).abs(),
        distance=distance,
        anchor=(at_anchor - along[:, None] * x).norm(dim=1),
        positive=at_others.diagonal().sqrt(),
        negatives=(at_others.sum(1) - at_others.diagonal()).clamp(min=0).sqrt(),
        radial=along.square() / whole,
        cosine=(at_positive * at_hardest).sum(1) / (at_positive.norm(dim=1) * at_hardest.norm(dim=1)),
        selhn=distance * (s_neg - s_pos).abs(),
    )


def mean_gradients(loaded: LoadedModel) -> dict[str, float]:
    """Average gradient statistics over the anchors of a trial's first training batch, with best weights, no dropout.

    Anchors without a gradient are excluded from the means of shares and cosines. Raises UserError if the model scores
    sets, which have no single unit sphere; if it has no trainable weights; or if the checkpoint lacks the objective's
    learnt values.
    """
    settings, inputs = loaded.settings, loaded.inputs
    if settings.model.of_sets:
        raise UserError("its scorer reads sets of vectors; gradients on the sphere need single unit vectors.")
    if not loaded.model.groups():
        raise UserError("its model has no trainable weights, so there are no gradients. Choose another trial.")
    learner = Learner(settings, inputs)
    learnt = loaded.learnt if settings.train.epochs else learner.learnt()
    if learner.learnt().keys() - learnt.keys():
        raise UserError(
            f"objective {settings.objective.name!r} has learnt values that this trial's best.ckpt does not "
            "contain, since an older version trained it. Retrain it: goalgrid run GRID --force --only FILTER."
        )
    learner.load_learnt(learnt)
    _, batch = next(batches(settings, inputs, 0).since(0))
    images, tokens, owners = batch.on(inputs.device)
    loaded.model.eval()
    with torch.inference_mode(), precision(settings, inputs.device):
        image, text = loaded.model.embed_images(images), loaded.model.embed_texts(*tokens)
    assert isinstance(image, Tensor)
    assert isinstance(text, Tensor)
    gradients = on_sphere(learner.objective, image.double().clone(), text.double().clone(), owners)
    means = torch.stack([values.nanmean() for values in gradients]).tolist()
    return dict(zip(Gradients._fields, means, strict=True))
