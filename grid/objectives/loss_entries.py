"""The losses that are no cells of GOAL's matrix, with their parameters, equations and sources."""

from dataclasses import replace

from grid.objectives.goal_matrix import SIGMOIDS
from grid.objectives.parameters import Mining, ObjectiveEntry, Parameter, same

MARGIN = same("by how much the positive is to lead, in similarity", 0.2)
_UNIFIED = {
    "gamma": Parameter("how hard the mining is: the hardest alone as it grows", 60.0, 50.0),
    "margin": MARGIN,
    "scaled": Parameter("the factor 1/gamma", True, False),
}
_BASE = same("base of the exponential from clean probability to margin", 10.0)

LOSSES: dict[str, ObjectiveEntry] = {
    "triplet": ObjectiveEntry(
        "hinge",
        "SelHN Eq. (2)",
        "sum over all negatives of [s_neg - s_pos + margin]+",
        {"margin": MARGIN},
        mining=Mining("all", fixed=False),
        known_as="sum of hinges",
    ),
    "triplet-hn": ObjectiveEntry(
        "hinge",
        "SelHN Eq. (3), Unified Eq. (1)",
        "[max s_neg - s_pos + margin]+",
        {"margin": MARGIN},
        mining=Mining("hardest", fixed=False),
        known_as="Triplet-HN, VSE++",
    ),
    "shn": ObjectiveEntry(
        "hinge",
        "SelHN Eq. (13), (14)",
        "[s - s_pos + margin]+ with s the hardest negative below s_pos",
        {"margin": MARGIN},
        mining=Mining("all", fixed=True),
        known_as="semi-hard negatives",
    ),
    "sct": ObjectiveEntry(
        "hinge",
        "SelHN Eq. (15), (16)",
        "lam s_neg where s_neg >= s_pos, else [s_neg - s_pos + margin]+",
        {
            "margin": replace(MARGIN, only_with=("easy", "hinge")),
            "tau": same("steepness on the easy triplets", 10.0, only_with=("easy", "softmax")),
            "lam": same("weight of a hard negative", 1.0),
            "ceiling": Parameter("a negative above it is hard whatever its positive", None, 0.8, optional=True),
            "easy": Parameter("what an easy triplet costs", "hinge", "softmax", choices=("hinge", "softmax")),
        },
        mining=Mining("hardest", fixed=True),
        known_as="Selectively Contrastive Triplet",
        reduction=("sum", "average"),
    ),
    "selhn": ObjectiveEntry(
        "hinge",
        "SelHN Eq. (9)-(12)",
        "[max s_neg - s_pos + margin]+ where |max s_neg - s_pos| > epsilon, else 1/B sum of [s_neg - s_pos + margin]+",
        {
            "margin": MARGIN,
            "epsilon": same("|s_neg - s_pos| up to which all negatives are used", 0.01),
            "divisor": Parameter(
                "what the sum over negatives is divided by: B or B - 1",
                "batch",
                "negatives",
                choices=("batch", "negatives"),
            ),
        },
        mining=Mining("all", fixed=True),
        known_as="RVSE++",
        reduction=("sum", "average"),
    ),
    "nt-xent-hn": ObjectiveEntry(
        "contrastive",
        "GOAL Eq. (6)",
        "log(1 + exp(tau (max s_neg - s_pos)))",
        {"tau": same("inverse temperature", 10.0)},
        mining=Mining("hardest", fixed=False),
        known_as="NT-Xent on the hardest negative",
    ),
    "infonce": ObjectiveEntry(
        "contrastive",
        "Unified Eq. (3), (4); released: open_clip",
        "log(1 + sum of exp(gamma (s_neg - s_pos)))",
        {"gamma": Parameter("inverse temperature", 50.0, 1 / 0.07)},
        mining=Mining("all", fixed=True),
        known_as="VLC, CLIP's loss",
        reduction=("sum", "average"),
    ),
    "unified": ObjectiveEntry(
        "contrastive",
        "Unified Eq. (5)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + margin)))",
        _UNIFIED,
        mining=Mining("all", fixed=True),
        known_as="Unified loss of pair similarity",
        reduction=("sum", "mean"),
    ),
    "unified-weighted": ObjectiveEntry(
        "contrastive",
        "Unified Eq. (24)",
        "1/gamma log(1 + sum of exp(gamma (w_neg s_neg - w_pos s_pos + margin)))",
        {
            **_UNIFIED,
            "weights": same("GOAL's pair weights as w, constant", "lin", ("con", "lin", "sig")),
        },
        mining=Mining("all", fixed=True),
        reduction=("sum", "mean"),
    ),
    "unified-adaptive": ObjectiveEntry(
        "contrastive",
        "Unified Eq. (26)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + m_i))), m_i from the pair's clean probability",
        {**_UNIFIED, "base": _BASE},
        mining=Mining("all", fixed=True),
        reduction=("sum", "mean"),
        reads_clean=True,
    ),
    "adopt": ObjectiveEntry(
        "contrastive",
        "VSE+2AD Eq. (6) and after",
        "log(sum over the K hardest of exp((s_neg + margin) / temperature)) - s_pos / temperature, K by maturity",
        {
            "temperature": same("divides the similarities", 0.05),
            "margin": Parameter("added to the negatives, in similarity", 0.0, 0.2),
            "positive": Parameter("whether the positive is in the sum", False, True),
            "count": Parameter("which formula gives K", "paper", "released", choices=("paper", "released")),
            "scale": same("exponent in the released K", 1.25, only_with=("count", "released")),
        },
        mining=Mining("all", fixed=True),
        known_as="ADOPT",
        reduction=("mean", "average"),
    ),
    "binomial": ObjectiveEntry(
        "pairwise",
        "GOAL Eq. (11), integrated",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta mean of log(1 + exp(beta (s_neg - lam)))",
        SIGMOIDS,
        mining=Mining("hardest", fixed=False),
        known_as="Binomial deviance",
    ),
    "multi-similarity": ObjectiveEntry(
        "pairwise",
        "Multi-Similarity loss, with its miner",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta log(1 + sum of exp(beta (s_neg - lam)))",
        {
            "alpha": same("steepness over s_pos", 2.0),
            "beta": Parameter("steepness over s_neg", 50.0, 40.0),
            "lam": Parameter("similarity around which pairs are weighed", 1.0, 0.5),
            "eps": same("slack of the miner, in similarity", 0.1),
        },
        mining=Mining("all", fixed=True),
        known_as="Multi-Similarity loss",
        reduction=("mean", "mean"),
    ),
    "circle": ObjectiveEntry(
        "pairwise",
        "Circle loss",
        "log(1 + sum of exp(gamma (a_neg (s_neg - margin) - a_pos (s_pos - 1 + margin))))",
        {
            "gamma": same("scale", 80.0),
            "margin": same("relaxation: optimum at s_pos = 1 + margin, s_neg = -margin", 0.4),
        },
        mining=Mining("all", fixed=False),
        known_as="Circle loss",
        reduction=("mean", "average"),
    ),
    "ssp": ObjectiveEntry(
        "polynomial",
        "Universal Weighting, as in Unified §4",
        "[a0 + a1 s_pos + a2 s_pos^2 + b0 + b1 s_neg + b2 s_neg^2]+",
        {
            "a0": same("constant coefficient for s_pos", 0.5),
            "a1": same("linear coefficient for s_pos", -0.7),
            "a2": same("quadratic coefficient for s_pos", 0.2),
            "b0": same("constant coefficient for s_neg", 0.03),
            "b1": same("linear coefficient for s_neg", -0.4),
            "b2": same("quadratic coefficient for s_neg", 0.9),
            "margin": same("only triplets with s_neg + margin > s_pos count", 0.2, only_with=("hinges", "two")),
            "hinges": Parameter("one on the sum, or two on its parts", "one", "two", choices=("one", "two")),
        },
        mining=Mining("hardest", fixed=False),
        known_as="Self-Similarity Polynomial",
        reduction=("mean", "mean"),
    ),
    "rsp": ObjectiveEntry(
        "polynomial",
        "Unified Eq. (25)",
        "[(c0 + c1 r + c2 r^2) r + margin]+ with r = s_neg - s_pos and the polynomial constant",
        {
            "c0": same("constant coefficient of the weight", 1.0),
            "c1": same("linear coefficient of the weight", 1.0),
            "c2": same("quadratic coefficient of the weight", 0.0),
            "margin": MARGIN,
        },
        mining=Mining("hardest", fixed=False),
        known_as="Relative-Similarity Polynomial",
    ),
    "ncr": ObjectiveEntry(
        "hinge",
        "Unified Eq. (27)",
        "[max s_neg - s_pos + m_i]+ with m_i = margin (base^y - 1) / (base - 1), y the pair's clean probability",
        {
            "margin": MARGIN,
            "base": _BASE,
            "threshold": Parameter("a pair that is less likely to be clean teaches nothing", 0.0, 0.5),
        },
        mining=Mining("hardest", fixed=False),
        known_as="Noisy Correspondence Rectifier",
        reads_clean=True,
    ),
}
"""The losses that are no cells of GOAL's matrix."""
