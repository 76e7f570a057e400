"""The probability that a training pair is clean, estimated from its loss: mismatches are learnt later. NCR."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid import optional_dependencies
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives.assisted import pair_losses
from goalgrid.retrieval.components.training_method import NOTHING, Request, TrainingMethod
from goalgrid.retrieval.splits.pairs import Pairs

SPREAD = 5e-4
"""Added to the variances of the mixture; losses are scaled to [0, 1]. NCR's `reg_covar`."""


class CleanProbabilities(TrainingMethod):
    """Collects the losses of all pairs in an epoch to estimate the clean probabilities for the next epoch.

    A single network uses its own estimate; each of two twins uses the other's (NCR's co-teaching).
    """

    name: ClassVar[str] = "clean"
    reads_scores = True

    def __init__(self, settings: TrialSettings, pairs: Pairs, device: torch.device, prepared: Any = None) -> None:
        super().__init__(settings, pairs, device, prepared)
        self.matched = pairs.train.matched
        self.margin = float(settings.objective.parameters["margin"] or 0.0)
        self.mixture = str(settings.objective.parameters.get("mixture", "quartiles"))
        self.warmup = settings.train.warmup_epochs
        self.values = torch.ones(2 if settings.model.networks == "twins" else 1, len(pairs.train.captions))
        """Probability that each pair is clean, per network; in host memory."""
        self.known = False
        """Whether an estimate exists."""
        self.epoch = 0
        """The epoch in which the losses were collected."""
        self._losses: list[list[Tensor]] = [[] for _ in self.values]
        self._texts = torch.arange(self.values.shape[1])
        """Indices of this epoch's captions, in ascending order."""
        self._read: Float[Tensor, "networks t"] | None = None
        """Probabilities used in this epoch; None during warm-up, when all pairs are treated as clean."""

    def begin(self, epoch: int, order: Callable[[int], Int[Tensor, " n"]]) -> None:
        if epoch != self.epoch and self._losses[0]:
            before = order(self.epoch)
            losses = [torch.cat(parts).double().cpu() for parts in self._losses]
            seed = derived_seed(self.settings, f"mixture of epoch {self.epoch}") % 2**32
            estimates = [clean_probability(loss.numpy(), seed, self.mixture) for loss in losses]
            for place, estimate in enumerate(reversed(estimates)):
                self.values[place, before] = torch.from_numpy(estimate).float()
            self.known = True
        if epoch != self.epoch:
            self.epoch, self._losses = epoch, [[] for _ in self.values]
        self._texts = order(epoch).sort().values
        self._read = self.values.clone() if self.known and epoch >= self.warmup else None

    def batch(self, owners: Int[np.ndarray, " b"], texts: Int[Tensor, " b"], index: int, seed: int) -> Request:
        return NOTHING if self._read is None else Request(values=self._read[:, texts])

    def on_scores(self, network: int, sim: Float[Tensor, "b b"]) -> None:
        self._losses[network].append(pair_losses(sim, margin=self.margin))

    def report(self) -> dict[str, float]:
        """Return the mean probability of the epoch's pairs, and its AUC if the mismatches are known."""
        if not self.known:
            return {}
        values = self.values[:, self._texts]
        means, matched = {"clean": float(values.mean())}, None if self.matched is None else self.matched[self._texts]
        if matched is not None and not matched.all() and matched.any():
            from sklearn.metrics import roc_auc_score

            means["clean_auc"] = float(np.mean([roc_auc_score(matched, row.numpy()) for row in values]))
        return means

    def state(self) -> dict[str, Any]:
        losses = [torch.cat(parts) if parts else torch.zeros(0) for parts in self._losses]
        return {"values": self.values, "known": self.known, "epoch": self.epoch, "losses": torch.stack(losses)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.values, self.known, self.epoch = state["values"].cpu(), state["known"], state["epoch"]
        self._losses = [[loss.to(self.device)] if len(loss) else [] for loss in state["losses"]]


def clean_probability(
    losses: Float[np.ndarray, " n"], seed: int = 0, start: str = "quartiles"
) -> Float[np.ndarray, " n"]:
    """Fit a mixture of two Gaussians to the losses; return the posterior of the component with the smaller mean.

    Losses are first scaled to [0, 1], as in NCR. If all losses are equal, all pairs are taken as clean.

    Args:
        start: initialisation. "quartiles" is independent of the seed, and the fit runs to convergence; "k-means"
            starts from seeded centres and stops early, as in NCR's code.
    """
    optional_dependencies.require("an estimate of clean probabilities", "scikit-learn")
    from sklearn.exceptions import ConvergenceWarning  # a second; no other training needs it
    from sklearn.mixture import GaussianMixture

    least, most = losses.min(), losses.max()
    if not most > least or not math.isfinite(most - least):
        return np.ones_like(losses)
    scaled = (losses - least) / (most - least)
    options: dict[str, Any] = {"random_state": seed, "tol": 1e-2, "max_iter": 10}
    if start == "quartiles":
        centres, precision = np.quantile(scaled, [0.25, 0.75])[:, None], 1 / (scaled.var() + SPREAD)
        options = {"weights_init": [0.5, 0.5], "means_init": centres, "precisions_init": np.full((2, 1, 1), precision)}
        options |= {"tol": 1e-5, "max_iter": 100}
    mixture = GaussianMixture(2, reg_covar=SPREAD, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(scaled[:, None])
    posterior: np.ndarray = mixture.predict_proba(scaled[:, None])[:, mixture.means_[:, 0].argmin()]
    return posterior
