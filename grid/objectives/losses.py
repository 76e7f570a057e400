"""The losses that are no cells of GOAL's matrix, with their parameters, equations and sources."""

from grid.objectives.matrix import ALPHA, BETA, LAM
from grid.objectives.parameters import COMMON, MINING, Entry, Parameter, reduction, same

MARGIN = same("by how much the positive is to lead, in similarity", 0.2)
_ALL = same("which negatives of an anchor make triplets", "all", ("hardest", "all"))
_GAMMA = Parameter("how hard the mining is: the hardest alone as it grows", 60.0, 50.0)
_UNIFIED = {
    "gamma": _GAMMA,
    "margin": MARGIN,
    "scaled": Parameter("the factor 1/gamma", True, False),
}
_BASE = same("base of the exponential from clean probability to margin", 10.0)

LOSSES: dict[str, Entry] = {
    "triplet": Entry(
        "hinge",
        "SelHN Eq. (2)",
        "sum over all negatives of [s_neg - s_pos + margin]+",
        {"margin": MARGIN, **COMMON, **MINING, "mining": _ALL},
        "sum of hinges",
    ),
    "triplet-hn": Entry(
        "hinge",
        "SelHN Eq. (3), Unified Eq. (1)",
        "[max s_neg - s_pos + margin]+",
        {"margin": MARGIN, **COMMON, **MINING},
        "Triplet-HN, VSE++",
    ),
    "shn": Entry(
        "hinge",
        "SelHN Eq. (13), (14)",
        "[s - s_pos + margin]+ with s the hardest negative below s_pos",
        {"margin": MARGIN, **COMMON},
        "semi-hard negatives",
    ),
    "sct": Entry(
        "hinge",
        "SelHN Eq. (15), (16)",
        "lam s_neg where s_neg >= s_pos, else [s_neg - s_pos + margin]+",
        {
            "margin": MARGIN,
            "tau": same("steepness on the easy triplets under easy = softmax", 10.0),
            "lam": same("weight of a hard negative", 1.0),
            "ceiling": Parameter("a negative above it is hard whatever its positive", None, 0.8, optional=True),
            "easy": Parameter("what an easy triplet costs", "hinge", "softmax", choices=("hinge", "softmax")),
            **COMMON,
            **reduction("sum", "average"),
        },
        "Selectively Contrastive Triplet",
    ),
    "selhn": Entry(
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
            **COMMON,
            **reduction("sum", "average"),
        },
        "RVSE++",
    ),
    "nt-xent-hn": Entry(
        "contrastive",
        "GOAL Eq. (6)",
        "log(1 + exp(tau (max s_neg - s_pos)))",
        {"tau": same("inverse temperature", 10.0), **COMMON, **MINING},
        "NT-Xent on the hardest negative",
    ),
    "infonce": Entry(
        "contrastive",
        "Unified Eq. (3), (4); released: open_clip",
        "log(1 + sum of exp(gamma (s_neg - s_pos)))",
        {
            "gamma": Parameter("inverse temperature", 50.0, 1 / 0.07),
            **COMMON,
            **reduction("sum", "average"),
        },
        "VLC, CLIP's loss",
    ),
    "unified": Entry(
        "contrastive",
        "Unified Eq. (5)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + margin)))",
        {**_UNIFIED, **COMMON, **reduction("sum", "mean")},
        "Unified loss of pair similarity",
    ),
    "unified-weighted": Entry(
        "contrastive",
        "Unified Eq. (24)",
        "1/gamma log(1 + sum of exp(gamma (w_neg s_neg - w_pos s_pos + margin)))",
        {
            **_UNIFIED,
            "weights": same("GOAL's pair weights as w, constant", "lin", ("con", "lin", "sig")),
            **COMMON,
            **reduction("sum", "mean"),
        },
    ),
    "unified-adaptive": Entry(
        "contrastive",
        "Unified Eq. (26)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + m_i))), m_i from the pair's clean probability",
        {**_UNIFIED, "base": _BASE, **COMMON, **reduction("sum", "mean")},
    ),
    "adopt": Entry(
        "contrastive",
        "VSE+2AD Eq. (6) and after",
        "log(sum over the K hardest of exp((s_neg + margin) / temperature)) - s_pos / temperature, K by maturity",
        {
            "temperature": same("divides the similarities", 0.05),
            "margin": Parameter("added to the negatives, in similarity", 0.0, 0.2),
            "positive": Parameter("whether the positive is in the sum", False, True),
            "count": Parameter("which formula gives K", "paper", "released", choices=("paper", "released")),
            "scale": same("exponent in the released K", 1.25),
            **COMMON,
            **reduction("mean", "average"),
        },
        "ADOPT",
    ),
    "binomial": Entry(
        "pairwise",
        "GOAL Eq. (11), integrated",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta mean of log(1 + exp(beta (s_neg - lam)))",
        {"alpha": ALPHA, "beta": BETA, "lam": LAM, **COMMON, **MINING},
        "Binomial deviance",
    ),
    "multi-similarity": Entry(
        "pairwise",
        "Multi-Similarity loss, with its miner",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta log(1 + sum of exp(beta (s_neg - lam)))",
        {
            "alpha": same("steepness over s_pos", 2.0),
            "beta": Parameter("steepness over s_neg", 50.0, 40.0),
            "lam": Parameter("similarity around which pairs are weighed", 1.0, 0.5),
            "eps": same("slack of the miner, in similarity", 0.1),
            **COMMON,
            **reduction("mean", "mean"),
        },
        "Multi-Similarity loss",
    ),
    "circle": Entry(
        "pairwise",
        "Circle loss",
        "log(1 + sum of exp(gamma (a_neg (s_neg - margin) - a_pos (s_pos - 1 + margin))))",
        {
            "gamma": same("scale", 80.0),
            "margin": same("relaxation: optimum at s_pos = 1 + margin, s_neg = -margin", 0.4),
            **COMMON,
            **MINING,
            "mining": _ALL,
            **reduction("mean", "average"),
        },
        "Circle loss",
    ),
    "ssp": Entry(
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
            "margin": same("under hinges = two, only triplets with s_neg + margin > s_pos count", 0.2),
            "hinges": Parameter("one on the sum, or two on its parts", "one", "two", choices=("one", "two")),
            **COMMON,
            **MINING,
            **reduction("mean", "mean"),
        },
        "Self-Similarity Polynomial",
    ),
    "rsp": Entry(
        "polynomial",
        "Unified Eq. (25)",
        "[(c0 + c1 r + c2 r^2) r + margin]+ with r = s_neg - s_pos and the polynomial constant",
        {
            "c0": same("constant coefficient of the weight", 1.0),
            "c1": same("linear coefficient of the weight", 1.0),
            "c2": same("quadratic coefficient of the weight", 0.0),
            "margin": MARGIN,
            **COMMON,
            **MINING,
        },
        "Relative-Similarity Polynomial",
    ),
    "ncr": Entry(
        "noisy",
        "Unified Eq. (27)",
        "[max s_neg - s_pos + m_i]+ with m_i = margin (base^y - 1) / (base - 1), y the pair's clean probability",
        {"margin": MARGIN, "base": _BASE, **COMMON, **MINING},
        "Noisy Correspondence Rectifier",
    ),
}
"""The losses that are no cells of GOAL's matrix."""

MINES_ALL: frozenset[str] = frozenset(
    (
        "shn",
        "selhn",
        "infonce",
        "unified",
        "unified-weighted",
        "unified-adaptive",
        "adopt",
        "multi-similarity",
    )
)
"""Losses that choose among all negatives of an anchor themselves."""
