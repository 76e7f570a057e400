"""The probability of each training pair to be clean, estimated from its loss: mismatches are learnt later. NCR."""

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
"""Added to the variances of the mixture, of losses between 0 and 1: NCR's `reg_covar`."""


class CleanProbabilities(TrainingMethod):
    """Collects the losses of all pairs in an epoch, and estimates from them what the next epoch reads.

    A single network reads its own estimate; of twins, each reads the other's (NCR's co-teaching).
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
        """Probability of each pair to be clean, as each network reads it; in host memory."""
        self.known = False
        """Whether an epoch has been estimated."""
        self.epoch = 0
        """The epoch of the losses."""
        self._losses: list[list[Tensor]] = [[] for _ in self.values]
        self._texts = torch.arange(self.values.shape[1])
        """The captions of this epoch, in the order of the data."""
        self._read: Float[Tensor, "networks t"] | None = None
        """What the batches of this epoch read; None while the training warms up: all pairs are taken for clean."""

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
        """Return the mean over the epoch's pairs; if mismatches are known, also the AUC of the probabilities."""
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
    """Return for each loss the posterior of the component with the smaller mean, of a mixture of two Gaussians.

    Losses are scaled to [0, 1] first, as in NCR. Losses that are all alike are of clean pairs. It starts by
    "quartiles", the same whatever the seed, and is fitted until the mean log-likelihood is still; or by "k-means" from
    seeded centres, stopped early, as in NCR's code.
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
