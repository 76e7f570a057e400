"""The slow literal versions: every equation as loops over anchors, from the papers' text. Float64, Python numbers.

Nothing here is shared with the room `objectives`: no broadcasting, no sorting tricks, no mask but an `if`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Matrix = list[list[float]]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


# --- GOAL: gradients with respect to the similarities, Eq. (3)


def t_con(pos: float, neg: float, v: dict) -> float:
    if v["margin"] is None:
        return 1.0
    return 1.0 if v["margin"] + neg - pos > 0 else 0.0


def t_nca(pos: float, neg: float, v: dict) -> float:
    return 1 / (1 + math.exp(v["tau"] * (pos - neg)))


def t_cir(pos: float, neg: float, v: dict) -> float:
    return 1 / (1 + math.exp(v["tau"] * (pos * (2 - pos) - neg**2 - v["offset"])))


def p_con(pos: float, neg: float, sets: tuple[list, list], v: dict) -> tuple[float, float]:
    return 1.0, 1.0


def p_lin(pos: float, neg: float, sets: tuple[list, list], v: dict) -> tuple[float, float]:
    return 1 - pos, neg


def p_sig(pos: float, neg: float, sets: tuple[list, list], v: dict) -> tuple[float, float]:
    return 1 / (1 + math.exp(v["alpha"] * (pos - v["lam"]))), 1 / (1 + math.exp(-v["beta"] * (neg - v["lam"])))


def mean(values: list[float], empty: float) -> float:
    return sum(values) / len(values) if values else empty


def p_lin_ms(pos: float, neg: float, sets: tuple[list, list], v: dict) -> tuple[float, float]:
    leads_pos, leads_neg = [pos - r for r in sets[0]], [neg - r for r in sets[1]]
    if v["sets"] == "released":
        leads_pos, leads_neg = [x for x in leads_pos if x != 0], [x for x in leads_neg if x > 0]
    return (1 - mean(leads_pos, v["empty"])) * (1 - pos), (1 + mean(leads_neg, v["empty"])) * neg


def p_sig_ms(pos: float, neg: float, sets: tuple[list, list], v: dict) -> tuple[float, float]:
    m_pos = mean([math.exp(v["alpha"] * (pos - r)) for r in sets[0]], v["empty"])
    m_neg = mean([math.exp(-v["beta"] * (neg - r)) for r in sets[1]], v["empty"])
    return 1 / (m_pos + math.exp(v["alpha"] * (pos - v["lam"]))), 1 / (m_neg + math.exp(-v["beta"] * (neg - v["lam"])))


T = {"con": t_con, "nca": t_nca, "cir": t_cir}
P = {"con": p_con, "lin": p_lin, "sig": p_sig, "lin-ms": p_lin_ms, "sig-ms": p_sig_ms}


def equal(row: int, column: int) -> bool:
    """Whether a place is that of a pair."""
    return row == column


def relative_sets(
    anchor: int, hardest: float, negatives: list[float], chosen: int, positives: list[float], v: dict
) -> tuple[list[float], list[float]]:
    """The sets P and N of one anchor; `chosen` is the place of its mined negative among its negatives."""
    floor = min(positives) - v["eps"]
    if v["sets"] == "released":
        others = [r for q, r in enumerate(positives) if q != anchor and r <= hardest + v["eps"]]
        return others, [r for q, r in enumerate(negatives) if q != chosen and r >= floor]
    others = [r for q, r in enumerate(positives) if q != anchor and r < hardest + v["eps"]]
    return others, [r for q, r in enumerate(negatives) if q != chosen and r > floor]


def anchors_of(
    sim: Matrix, same: Callable[[int, int], bool] = equal
) -> list[tuple[int, tuple[int, int], list[tuple[int, int]]]]:
    """For both directions: (pair, place of the positive, places of the negatives); a place is (row, column)."""
    pairs = range(len(sim))
    i2t = [(p, (p, p), [(p, c) for c in pairs if not same(p, c)]) for p in pairs]
    t2i = [(p, (p, p), [(r, p) for r in pairs if not same(r, p)]) for p in pairs]
    return i2t + t2i


def mined_of(sim: Matrix, negatives: list[tuple[int, int]], mining: str, k: int) -> list[int]:
    """Which of the negatives are mined: the first of a tie."""
    values = [sim[r][c] for r, c in negatives]
    order = sorted(range(len(values)), key=lambda q: -values[q])
    return order if mining == "all" else order[:k]


def goal_gradient(name: str, sim: Matrix, v: dict, same: Callable[[int, int], bool] = equal) -> Tensor:
    """dl/dS of a cell, summed over anchors of both directions."""
    pair, triplet = name.split("_")
    gradient = torch.zeros(len(sim), len(sim), dtype=torch.float64)
    positives = [sim[p][p] for p in range(len(sim))]
    for anchor, positive, negatives in anchors_of(sim, same):
        values = [sim[r][c] for r, c in negatives]
        for chosen in mined_of(sim, negatives, v["mining"], v["k"]):
            pos, neg = sim[positive[0]][positive[1]], values[chosen]
            sets: tuple[list, list] = ([], [])
            if pair.endswith("-ms"):
                sets = relative_sets(anchor, max(values), values, chosen, positives, v)
            t = T[triplet](pos, neg, v)
            p_pos, p_neg = P[pair](pos, neg, sets, v)
            gradient[positive] -= t * p_pos
            gradient[negatives[chosen]] += t * p_neg
    return gradient


# --- Losses, one anchor at a time: `pos` a scalar tensor, `negs` a list of them. Weights read .item().


def relu(x: Tensor) -> Tensor:
    return x if x.item() > 0 else x * 0


def hinge(pos: Tensor, neg: Tensor, margin: float) -> Tensor:
    return relu(margin + neg - pos)


def hardest(negs: list[Tensor]) -> Tensor:
    return max(negs, key=lambda x: x.item())


def triplet_sum(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    return sum((hinge(pos, neg, v["margin"]) for neg in negs), pos * 0)


def triplet_hn(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    return hinge(pos, hardest(negs), v["margin"])


def shn(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    below = [neg for neg in negs if neg.item() < pos.item()]
    return hinge(pos, hardest(below), v["margin"]) if below else pos * 0


def sct(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    neg = hardest(negs)
    if neg.item() >= pos.item() or (v["ceiling"] is not None and neg.item() > v["ceiling"]):
        return v["lam"] * neg
    if v["easy"] == "hinge":
        return hinge(pos, neg, v["margin"])
    e_pos, e_neg = torch.exp(v["tau"] * pos), torch.exp(v["tau"] * neg)
    return -torch.log(e_pos / (e_pos + e_neg))


def selhn(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    if abs(hardest(negs).item() - pos.item()) > v["epsilon"]:
        return triplet_hn(pos, negs, v)
    batch = len(negs) + 1
    return triplet_sum(pos, negs, v) / (batch if v["divisor"] == "batch" else batch - 1)


def nt_xent_hn(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    e_pos, e_neg = torch.exp(v["tau"] * pos), torch.exp(v["tau"] * hardest(negs))
    return -torch.log(e_pos / (e_pos + e_neg))


def infonce(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    e_pos = torch.exp(v["gamma"] * pos)
    return -torch.log(e_pos / (e_pos + sum(torch.exp(v["gamma"] * neg) for neg in negs)))


def unit(v: dict) -> float:
    return v["gamma"] if v["scaled"] else 1.0


def unified(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    return torch.log(1 + sum(torch.exp(v["gamma"] * (neg - pos + v["margin"])) for neg in negs)) / unit(v)


def unified_weighted(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    total = 1.0
    for neg in negs:
        parameters = {"alpha": 2.0, "beta": 10.0, "lam": 0.5}
        w_pos, w_neg = P[v["weights"]](pos.item(), neg.item(), ([], []), parameters)
        total = total + torch.exp(v["gamma"] * (w_neg * neg - w_pos * pos + v["margin"]))
    return torch.log(total) / unit(v)


def binomial(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    pull = torch.log(1 + torch.exp(-v["alpha"] * (pos - v["lam"]))) / v["alpha"]
    mined = [hardest(negs)] if v["mining"] == "hardest" else negs
    push = sum(torch.log(1 + torch.exp(v["beta"] * (neg - v["lam"]))) for neg in mined) / len(mined)
    return pull + push / v["beta"]


def multi_similarity(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    kept = [neg for neg in negs if neg.item() + v["eps"] > pos.item()]
    pulled = [pos] if pos.item() - v["eps"] < hardest(negs).item() else []
    if not kept or not pulled:
        return pos * 0
    pull = torch.log(1 + sum(torch.exp(-v["alpha"] * (p - v["lam"])) for p in pulled)) / v["alpha"]
    push = torch.log(1 + sum(torch.exp(v["beta"] * (neg - v["lam"])) for neg in kept)) / v["beta"]
    return pull + push


def circle(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    m, gamma = v["margin"], v["gamma"]
    mined = [hardest(negs)] if v["mining"] == "hardest" else negs
    a_pos = max(0.0, 1 + m - pos.item())
    pull = torch.exp(-gamma * a_pos * (pos - (1 - m)))
    push = sum(torch.exp(gamma * max(0.0, neg.item() + m) * (neg - m)) for neg in mined)
    return torch.log(1 + push * pull)


def itc(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    e_pos = torch.exp(pos / v["temperature"])
    return -torch.log(e_pos / (e_pos + sum(torch.exp(neg / v["temperature"]) for neg in negs)))


def siglip(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    labelled = [(pos, 1.0), *((neg, -1.0) for neg in negs)]
    return sum(-torch.log(1 / (1 + torch.exp(-label * (v["tau"] * s + v["bias"])))) for s, label in labelled)


def ssp(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    neg = hardest(negs)
    pull = v["a0"] + v["a1"] * pos + v["a2"] * pos**2
    push = v["b0"] + v["b1"] * neg + v["b2"] * neg**2
    if v["hinges"] == "one":
        return relu(pull + push)
    return relu(pull) + relu(push) if neg.item() + v["margin"] > pos.item() else pos * 0


def rsp(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    r = hardest(negs) - pos
    weight = v["c0"] + v["c1"] * r.item() + v["c2"] * r.item() ** 2
    return relu(weight * r + v["margin"])


def self_paced(pos: Tensor, negs: list[Tensor], v: dict) -> Tensor:
    neg = hardest(negs)
    return neg - pos if (neg - pos).item() + v["margin"] > 0 else pos * 0


LOSSES = {
    "triplet": triplet_sum,
    "triplet-hn": triplet_hn,
    "shn": shn,
    "sct": sct,
    "selhn": selhn,
    "nt-xent-hn": nt_xent_hn,
    "infonce": infonce,
    "unified": unified,
    "unified-weighted": unified_weighted,
    "binomial": binomial,
    "multi-similarity": multi_similarity,
    "circle": circle,
    "itc": itc,
    "siglip": siglip,
    "ssp": ssp,
    "rsp": rsp,
    "aoq": triplet_hn,
    "meta-spn": self_paced,
}
"""Without the losses that read more than one anchor: ADOPT, and the adaptive margins. Of AOQ and Meta-SPN, what is left
without offline negatives and learnt weights."""


def loss(
    equation: Callable[[Tensor, list[Tensor], dict], Tensor],
    sim: Tensor,
    v: dict,
    same: Callable[[int, int], bool] = equal,
) -> Tensor:
    """A loss over all anchors of both directions."""
    total = torch.zeros((), dtype=torch.float64)
    for _, positive, negatives in anchors_of(sim.tolist(), same):
        if negatives:
            total = total + equation(sim[positive], [sim[index] for index in negatives], v)
    pairs = len(sim)
    factors = {"sum": 1.0, "mean": 1 / pairs, "average": 0.5 / pairs, "negatives": 0.5 / pairs / max(pairs - 1, 1)}
    return total * factors[v["reduction"]]


def adopt(sim: Tensor, v: dict) -> tuple[Tensor, int]:
    """VSE+2AD's loss and K of a batch."""
    batch = len(sim)
    align = sum(sim[i, i].item() for i in range(batch)) / batch
    everything = [(i, j, sim[i, j].item()) for i in range(batch) for j in range(batch)]
    if v["count"] == "paper":
        uniform = math.log(sum(math.exp(s) for _, _, s in everything) / batch**2)
        k = math.floor(batch * math.cos((align + uniform) * math.pi / 4))
    else:
        uniform = sum(1.0 if i == j else math.exp(-s) for i, j, s in everything) / batch**2
        k = int(math.cos((align + uniform) ** v["scale"]) * batch) + 1
    k = max(1, min(k, batch - 1))
    total = torch.zeros((), dtype=torch.float64)
    for _, (r, c), negatives in anchors_of(sim.tolist()):
        negs = sorted((sim[index] for index in negatives), key=lambda x: -x.item())[:k]
        e_pos = torch.exp(sim[r, c] / v["temperature"])
        e_neg = sum(torch.exp((neg + v["margin"]) / v["temperature"]) for neg in negs)
        total = total - torch.log(e_pos / (e_neg + e_pos if v["positive"] else e_neg))
    return total * {"mean": 1 / batch, "average": 0.5 / batch}[v["reduction"]], k
