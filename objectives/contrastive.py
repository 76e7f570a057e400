"""Log-sum-exp losses: from InfoNCE to the Unified loss, whose limits are InfoNCE and Triplet-HN."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from goalgrid.grid.objectives.parameters import BASE, MARGIN, MIXTURE, Parameter
from goalgrid.grid.registration import objective
from goalgrid.objectives.assisted import own_margin
from goalgrid.objectives.pair_weights import as_published
from goalgrid.objectives.triplets import Triplets

GAMMA = Parameter(60.0, "mining hardness: as it grows, only the hardest negative counts", released=50.0)
SCALED = Parameter(True, "multiply the loss by 1/gamma", released=False)


def log_one_plus(exponents: Float[Tensor, "*a k"]) -> Float[Tensor, "*a 1"]:
    """log(1 + sum of exp(x)), without overflow; 0 for a row of -inf."""
    return torch.logsumexp(pad(exponents, (1, 0)), dim=-1, keepdim=True)


@objective(
    "nt-xent-hn",
    source="GOAL Eq. (6)",
    known_as="NT-Xent (HN), on the hardest negative",
    tau=Parameter(10.0, "inverse temperature"),
)
def nt_xent(t: Triplets, *, tau: float) -> Float[Tensor, "*a k"]:
    """log(1 + exp(tau (max s_neg - s_pos))).

    -log(exp(tau s_pos) / (exp(tau s_pos) + exp(tau s_neg))): NT-Xent on the hardest negative.
    """
    return softplus(tau * (t.s_neg - t.s_pos))


@objective(
    "infonce",
    on="all",
    source="Unified Eq. (3), (4); released: open_clip",
    known_as="InfoNCE, VLC, CLIP's loss",
    reductions=("sum", "average"),
    gamma=Parameter(50.0, "inverse temperature", released=1 / 0.07),
)
def infonce(t: Triplets, *, gamma: float) -> Float[Tensor, "*a 1"]:
    """log(1 + sum of exp(gamma (s_neg - s_pos))).

    -log(exp(gamma s_pos) / sum of exp(gamma s)): the contrastive loss VLC of CLIP.
    """
    return log_one_plus(gamma * (t.s_neg - t.s_pos))


@objective(
    "unified",
    on="all",
    source="Unified Eq. (5)",
    known_as="Unified loss, of pair similarity",
    reductions=("sum", "mean"),
    gamma=GAMMA,
    margin=MARGIN,
    scaled=SCALED,
)
def unified(t: Triplets, *, gamma: float, margin: float, scaled: bool) -> Float[Tensor, "*a 1"]:
    """1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + margin))).

    Approaches Triplet-HN as gamma grows (Eq. 6); equals VLC / gamma at margin 0 (Eq. 7). The closest public code
    omits the factor 1/gamma (`scaled` = False).
    """
    return log_one_plus(gamma * (t.s_neg - t.s_pos + margin)) / _unit(gamma, scaled)


@objective(
    "unified-weighted",
    on="all",
    source="Unified Eq. (24)",
    reductions=("sum", "mean"),
    gamma=GAMMA,
    margin=MARGIN,
    scaled=SCALED,
    weights=Parameter("lin", "which of GOAL's pair weights is w", choices=("con", "lin", "sig")),
)
def unified_weighted(t: Triplets, *, gamma: float, margin: float, scaled: bool, weights: str) -> Float[Tensor, "*a 1"]:
    """1/gamma log(1 + sum of exp(gamma (w_neg s_neg - w_pos s_pos + margin))).

    The weights get no gradient. The paper does not specify them; here they are GOAL's pair weights. con gives Eq. (5).
    """
    triplet = t.finite()
    w_pos, w_neg = as_published(weights)(triplet.detach())
    exponents = gamma * (w_neg * triplet.s_neg - w_pos * triplet.s_pos + margin)
    return log_one_plus(exponents.where(t.exists, -torch.inf)) / _unit(gamma, scaled)


@objective(
    "unified-adaptive",
    on="all",
    source="Unified Eq. (26)",
    reductions=("sum", "mean"),
    needs=("clean-probabilities",),
    gamma=GAMMA,
    margin=MARGIN,
    scaled=SCALED,
    base=BASE,
    mixture=MIXTURE,
)
def unified_adaptive(t: Triplets, *, gamma: float, margin: float, scaled: bool, base: float) -> Float[Tensor, "*a 1"]:
    """1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + m_i))), with m_i from the pair's clean probability."""
    return log_one_plus(gamma * (t.s_neg - t.s_pos + own_margin(t, margin, base))) / _unit(gamma, scaled)


def _unit(gamma: float, scaled: bool) -> float:
    return gamma if scaled else 1.0


@objective(
    "adopt",
    on="all",
    source="VSE+2AD Eq. (6) and after",
    known_as="ADOPT",
    reductions=("mean", "average"),
    temperature=Parameter(0.05, "temperature, which divides the similarities"),
    margin=Parameter(0.0, "added to the similarity of the negatives", released=0.2),
    positive=Parameter(False, "include the positive in the sum", released=True),
    count=Parameter("paper", "formula for K", released="released", choices=("paper", "released")),
    scale=Parameter(1.25, "exponent in the released K", only_with=("count", "released")),
)
def adopt(
    t: Triplets, *, temperature: float, margin: float, positive: bool, count: str, scale: float
) -> Float[Tensor, "*a 1"]:
    """log(sum over the K hardest of exp((s_neg + margin) / temperature)) - s_pos / temperature, with adaptive K.

    K decreases as the model matures. It is computed from alignment and uniformity of the batch, by Eq. (6) or as in the
    released code. The released loss has a margin and includes the positive in the sum. (It also masks the positive by
    setting its similarity to 0, so a large K may select it as a negative; here it never is one.)
    """
    k = COUNTS[count](t.detach(), scale)
    t.notes["k"] = k
    hardest = t.s_neg.sort(dim=-1, descending=True).values
    chosen = torch.arange(hardest.shape[-1], device=hardest.device) < k
    leads = ((hardest + margin - t.s_pos) / temperature).masked_fill(~chosen, -torch.inf)
    if positive:
        return log_one_plus(leads)
    alone = ~t.exists.any(-1, keepdim=True)
    return torch.logsumexp(leads.masked_fill(alone, 0.0), dim=-1, keepdim=True).masked_fill(alone, 0.0)


def count_of_paper(t: Triplets, scale: float) -> Float[Tensor, ""]:
    """K = floor(B cos((align + uniform) pi / 4)), in [1, B - 1]; uniform = log E[exp(s)]. VSE+2AD Eq. (6)."""
    batch = t.s_neg.shape[-1]
    pairs = t.exists.sum() + t.s_pos.numel()
    uniform = torch.log((t.s_neg.exp().sum() + t.s_pos.exp().sum()) / pairs)
    maturity = (t.s_pos.mean() + uniform) * math.pi / 4
    return torch.floor(batch * torch.cos(maturity)).clamp(1, max(1, batch - 1))


def count_as_released(t: Triplets, scale: float) -> Float[Tensor, ""]:
    """K = int(B cos((align + uniform)^scale)) + 1, in [1, B - 1]; uniform = E[exp(-s)], 1 at the positives."""
    batch = t.s_neg.shape[-1]
    uniform = torch.exp(-t.s_neg).where(t.exists, 1.0).mean()
    maturity = (t.s_pos.mean() + uniform).clamp(min=0) ** scale
    return (torch.trunc(batch * torch.cos(maturity)) + 1).clamp(1, max(1, batch - 1))


COUNTS: dict[str, Callable[[Triplets, float], Tensor]] = {"paper": count_of_paper, "released": count_as_released}


@objective(
    "itc",
    on="all",
    source="X-VLM §3.3, released code",
    known_as="ITC",
    reductions=("average", "average"),
    temperature=Parameter(0.07, "initial value of the learnt temperature, which divides the similarities"),
)
class ImageTextContrast(nn.Module):
    """log(sum of exp(s / temperature)) - mean over texts of the same image of s / temperature.

    X-VLM's ITC loss: the mean over an anchor's positives of -log(exp(s / temperature) / sum of exp(s / temperature)).
    If the batch has several texts of an image, all are positives and share the label. The temperature is learnt.
    """

    def __init__(self, *, temperature: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(temperature))

    def forward(self, t: Triplets) -> Float[Tensor, "*a 1"]:
        t.notes["temperature"] = self.temperature
        triplet = t.finite()
        others = (triplet.s_neg / self.temperature).where(t.exists, -torch.inf)
        logits = torch.cat([(triplet.s_pos / self.temperature).expand(*others.shape[:-1], 1), others], dim=-1)
        alike = torch.zeros_like(t.exists) if t.false_negative is None else t.false_negative & t.exists
        positive = pad(alike, (1, 0), value=True)
        mean = logits.where(positive, 0.0).sum(-1, keepdim=True) / positive.sum(-1, keepdim=True)
        return torch.logsumexp(logits, dim=-1, keepdim=True) - mean
