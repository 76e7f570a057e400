"""Pairwise losses: the original losses of metric learning from which GOAL took its pair weights."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from goalgrid.grid.objectives.parameters import ALPHA, BETA, LAM, Parameter
from goalgrid.grid.registration import objective
from goalgrid.objectives.contrastive import log_one_plus
from goalgrid.objectives.triplets import Triplets


@objective(
    "binomial", source="GOAL Eq. (11), integrated", known_as="Binomial deviance", alpha=ALPHA, beta=BETA, lam=LAM
)
def binomial(t: Triplets, *, alpha: float, beta: float, lam: float) -> Float[Tensor, "*a 1"]:
    """1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta mean of log(1 + exp(beta (s_neg - lam))).

    Binomial deviance. On the hardest negative, its gradient equals that of sig_con without a margin. GOAL Eq. (11).
    """
    pull = softplus(-alpha * (t.s_pos - lam)) / alpha
    push = softplus(beta * (t.s_neg - lam)).sum(-1, keepdim=True) / beta
    return pull + push / t.exists.sum(-1, keepdim=True).clamp(min=1)


@objective(
    "multi-similarity",
    on="all",
    source="Multi-Similarity loss, with its miner",
    known_as="Multi-Similarity loss",
    reductions=("mean", "mean"),
    alpha=Parameter(2.0, "steepness over s_pos"),
    beta=Parameter(50.0, "steepness over s_neg", released=40.0),
    lam=Parameter(1.0, "similarity at which the pair weights are centred", released=0.5),
    eps=Parameter(0.1, "slack of the miner, in similarity"),
)
def multi_similarity(t: Triplets, *, alpha: float, beta: float, lam: float, eps: float) -> Float[Tensor, "*a 1"]:
    """1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta log(1 + sum of exp(beta (s_neg - lam))).

    The sum is over mined pairs. The miner treats each anchor separately: it selects negatives above s_pos - eps, and
    the positive if it is below the hardest negative + eps. With one positive, both sets are empty or neither is.
    (GOAL's -ms weights derive from this loss, with sets over the batch and means instead of sums:
    `objectives.relative`.)
    """
    s_neg, s_pos = t.s_neg.detach(), t.s_pos.detach()
    mined = s_neg + eps > s_pos
    push = log_one_plus((beta * (t.s_neg - lam)).masked_fill(~mined, -torch.inf)) / beta
    pull = softplus(-alpha * (t.s_pos - lam)) / alpha
    return (pull + push).where(mined.any(-1, keepdim=True), 0.0)


@objective(
    "circle",
    on="all",
    remines=True,
    source="Circle loss",
    known_as="Circle loss",
    reductions=("mean", "average"),
    gamma=Parameter(80.0, "scale"),
    margin=Parameter(0.4, "relaxation margin: optimum at s_pos = 1 + margin, s_neg = -margin"),
)
def circle(t: Triplets, *, gamma: float, margin: float) -> Float[Tensor, "*a 1"]:
    """log(1 + sum of exp(gamma (a_neg (s_neg - margin) - a_pos (s_pos - 1 + margin)))).

    a is constant. a_neg = [s_neg + margin]+ and a_pos = [1 + margin - s_pos]+ are Circle loss's self-paced weights. At
    margin 0, on the hardest negative, its gradient is gamma times that of lin_cir with tau = gamma and offset 1.
    """
    triplet = t.finite()
    s_pos, s_neg = triplet.s_pos, triplet.s_neg
    a_pos, a_neg = torch.relu(1 + margin - s_pos.detach()), torch.relu(s_neg.detach() + margin)
    exponents = gamma * (a_neg * (s_neg - margin) - a_pos * (s_pos - 1 + margin))
    return log_one_plus(exponents.where(t.exists, -torch.inf))


@objective(
    "siglip",
    on="all",
    source="SigLIP Eq. (1)",
    known_as="SigLIP, pairwise sigmoid",
    reductions=("average", "average"),
    tau=Parameter(10.0, "initial value of the learnt inverse temperature"),
    bias=Parameter(-10.0, "initial value of the learnt bias on the scaled similarities"),
)
class PairwiseSigmoid(nn.Module):
    """log(1 + exp(-tau s_pos - bias)) + sum of log(1 + exp(tau s_neg + bias)), with learnt tau and bias.

    SigLIP's loss (Zhai et al. 2023, Eq. 1): each pair of the batch is classified independently. Both directions contain
    every pair, so the mean over both is the published loss. As published, the logarithm of tau is the parameter.
    """

    def __init__(self, *, tau: float, bias: float) -> None:
        super().__init__()
        self.first_tau = tau
        self.log_growth = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.tensor(bias))

    def forward(self, t: Triplets) -> Float[Tensor, "*a 1"]:
        tau, triplet = self.first_tau * self.log_growth.exp(), t.finite()
        t.notes.update(tau=tau, bias=self.bias)
        push = softplus(tau * triplet.s_neg + self.bias).where(t.exists, 0.0)
        return softplus(-tau * triplet.s_pos - self.bias) + push.sum(-1, keepdim=True)
