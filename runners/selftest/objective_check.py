"""Checks of a user-defined objective: gradient, order of pairs, half precision, empty sets, state and speed."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import normalize

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.objectives import resolve
from goalgrid.grid.objectives.parameters import MEAN_LOSS
from goalgrid.grid.settings import DatasetSettings, ObjectiveSettings, TrialSettings
from goalgrid.objectives import build
from goalgrid.objectives.objective import Objective
from goalgrid.runners.training.checkpoints import random_states, restore_random_states
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine

SEED = 20230107
CPU = torch.device("cpu")

PAIRS, DIMENSIONS = 7, 12
"""Number of pairs and dimensions of the test batches."""
RECIPE, PEERS = "cnn-bow", ("con_con", "triplet-hn", "infonce")
"""Recipe and built-in losses with which the initial gradient norm is compared."""
FEW = 4
"""Factor below built-in (summed) losses at which a gradient norm gets a remark, as it is then rarely clipped."""
SURROGATE = "@goalgrid.objective(..., surrogate=True)"
MASK = "t.s_neg is -inf for missing negatives: use t.finite(), and mask with t.exists"
TIMED_PAIRS, TIMED_DIMENSIONS, TIMES = 128, 512, 15


class Broken(Exception):
    """A check failed; the message says why."""


class Remark(Exception):
    """A check passed, with a remark for the user."""


def gradient(name: str, known: Catalog) -> str:
    """Check that gradients with respect to scores and learnt parameters equal central differences, in float64.

    For a declared surrogate, the gradient only has to be finite.
    """
    for way, objective in _ways(name, known):
        _gradient(way, objective, _scores())
        if known.objectives[name].surrogate:
            continue
        # gradcheck also perturbs learnt parameters in place; fast_mode, since there may be thousands
        inputs = (_scores().requires_grad_(), *_learnt(objective).values())
        if not gradcheck(partial(_value, objective), inputs, raise_exception=False, fast_mode=len(inputs) > 1):
            raise Broken(
                f"{way}: it differs from the derivative of the returned value. Usual causes: a detach, a step, a "
                f"random draw, a state, a value computed outside torch. If this is intended: {SURROGATE}"
            )
    return "finite; declared with surrogate=True" if known.objectives[name].surrogate else "equals finite differences"


def permutation(name: str, known: Catalog) -> str:
    """Check that the order of the pairs changes neither the loss nor the gradient of a pair."""
    for way, objective in _ways(name, known):
        scores, order = _scores(), torch.randperm(PAIRS, generator=torch.Generator().manual_seed(SEED))
        moved = scores[order][:, order]
        gradients = [_gradient(way, objective, matrix) for matrix in (scores, moved)]
        values = [objective.from_similarity(matrix).detach() for matrix in (scores, scores, moved)]
        if not torch.equal(values[0], values[1]):
            raise Broken(
                f"{way}: the same batch gives {values[0]:.6g}, then {values[1]:.6g}. Usual causes: a random draw, such "
                "as dropout, or a state that changes in evaluation"
            )
        if not torch.allclose(values[0], values[2], rtol=1e-9, atol=1e-12):
            raise Broken(f"{way}: the loss changes with the order of the pairs: {values[0]:.6g}, then {values[2]:.6g}")
        if not torch.allclose(gradients[0][order][:, order], gradients[1], rtol=1e-7):
            raise Broken(f"{way}: the gradient of a pair changes with the order of the pairs")
    return "independent of the order of the pairs"


def half_precision(name: str, known: Catalog) -> str:
    """Check for a finite loss and gradient with 16-bit embeddings: random, all identical, or identical in each pair."""
    for way, objective in _ways(name, known, torch.float32):
        for dtype in (torch.bfloat16, torch.float16):
            for what, (image, text) in _embeddings().items():
                image, text = (x.to(dtype).requires_grad_() for x in (image, text))
                loss = objective(image, text)
                loss.backward()
                _finite(f"{way}, {dtype} embeddings, {what}", loss, image.grad, text.grad)
    return "finite for bfloat16 and float16"


def empty_sets(name: str, known: Catalog) -> str:
    """Check for a finite loss and gradient without negatives, with two pairs, and with all triplets correct."""
    for way, objective in _ways(name, known):
        cases = {"two pairs": _scores()[:2, :2], "all in order": 2 * torch.eye(PAIRS, dtype=torch.float64) - 1}
        for what, scores in cases.items():
            _gradient(f"{way}, {what}", objective, scores)
    if "ignore_same_image" in known.objectives[name].parameters:
        for way, objective in _ways(name, known, ignore_same_image=True):
            where = f"{way}, no text is a negative (s_neg is -inf: see `Triplets.finite`)"
            _gradient(where, objective, _scores(), torch.zeros(PAIRS, dtype=torch.long))
    return "finite without negatives, with two pairs, and with all triplets correct"


def weights(name: str, known: Catalog) -> str:
    """Check that a new loss with the state and random states of a checkpoint returns the same value."""
    for (way, first), (_, resumed) in zip(_ways(name, known), _ways(name, known), strict=True):
        _gradient(way, first.train(), _scores())
        resumed.train().load_state_dict(first.state_dict())
        states = random_states(CPU)
        expected = first.from_similarity(_scores())
        restore_random_states(states, CPU)
        if not torch.equal(expected, resumed.from_similarity(_scores())):
            raise Broken(
                f"{way}: a new loss with the state of a checkpoint returns another value. Cause: state outside "
                "state_dict; register it as a buffer of a torch.nn.Module"
            )
    return "all state is in state_dict"


def speed(name: str, known: Catalog) -> str:
    """Time forward and backward relative to the hinge of Triplet-HN; always passes."""
    image, text = (x.requires_grad_() for x in _embeddings(TIMED_PAIRS, TIMED_DIMENSIONS)["random"])
    objectives, times = [build(name, known.objectives), build("triplet-hn")], list[list[float]]([[], []])
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(TIMES):  # in turn, so that other load slows both alike
            for objective, laps in zip(objectives, times, strict=True):
                start = time.perf_counter()
                objective(image, text).backward()
                laps.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    ours, hinge = map(min, times)
    return f"{ours / hinge:.1f} times the hinge of triplet-hn ({1e3 * ours:.2f} ms for {TIMED_PAIRS} pairs, on one CPU)"


def scale(name: str, known: Catalog) -> str:
    """Compare the gradient norm at the start of training with those of built-in losses.

    A finite norm passes. A `Remark` tells how to compare a loss that averages over a batch with ours, which sum.
    """
    if extra := known.objectives[name].needs + known.objectives[name].columns:
        return f"not measured: it needs {' and '.join(extra)}"
    norms = {other: _first_norm(other, known) for other in dict.fromkeys([name, *PEERS])}
    norm, others = norms.pop(name), ", ".join(f"{other} {n:,.4g}" for other, n in norms.items())
    if not math.isfinite(norm):
        raise Broken(f"the gradient norm is {norm} at the start of {RECIPE}")
    clip = catalog.recipe(RECIPE).train.clip_norm
    text = (
        f"gradient norm {norm:,.4g} at the start of {RECIPE}; {others} on the same batch; train.clip_norm is {clip:g}"
    )
    if build(name, known.objectives).reduction != "sum" and norm * FEW < min(norms.values()):
        raise Remark(
            f"{text}. A loss that averages over a batch is clipped less often than these, which sum. To divide sums by "
            f"the number of pairs, write below [set]: {MEAN_LOSS}"
        )
    return text


def _first_norm(name: str, known: Catalog) -> float:
    """Return the gradient norm of all weights, before clipping, on the first batch of a trial."""
    recipe = catalog.recipe(RECIPE)
    data = DatasetSettings.model_validate({"name": "shapes", "protocol": catalog.protocols("shapes")[0]})
    goal = known.validated(ObjectiveSettings, {"name": name, "parameters": resolve(name, known.objectives)})
    sections = {"dataset": data, "model": recipe.model, "train": recipe.train, "objective": goal}
    settings = TrialSettings.model_validate({**sections, "recipe": RECIPE, "seed": 0})
    learner = Learner(settings, prepare(settings, Machine()))
    _, batch = next(learner.begin(0).since(0))
    return float(learner.gradient(batch, 0.0)["grad_norm"])


CHECKS = (gradient, permutation, half_precision, empty_sets, weights, scale, speed)
OF_OBJECTIVES: dict[str, Callable[[str, Catalog], str]] = {check.__name__.replace("_", " "): check for check in CHECKS}


def _ways(
    name: str, known: Catalog, dtype: torch.dtype = torch.float64, **parameters: bool
) -> Iterator[tuple[str, Objective]]:
    """Yield the objective in evaluation mode, for both variants and each mining that a grid may use."""
    declared = known.objectives[name].parameters
    differ = any(parameter.default != parameter.released for parameter in declared.values())
    for variant in ("paper", "released") if differ else ("paper",):
        for mining in declared["mining"].choices if "mining" in declared else ("",):
            chosen = {"mining": mining} if mining else {}
            words = [f"variant {variant}"] * differ + [f"mining = {mining}"] * bool(mining)
            torch.manual_seed(SEED)
            objective = build(name, known.objectives, variant=variant, **chosen, **parameters).to(dtype).eval()
            yield ", ".join(words) or "as declared", objective


def _scores() -> Float[Tensor, "b b"]:
    """Return scores like those in the middle of training: no ties, positives among negatives."""
    random = torch.Generator().manual_seed(SEED)
    scores = 0.3 * torch.randn(PAIRS, PAIRS, generator=random, dtype=torch.float64)
    return (scores + 0.2 * torch.eye(PAIRS, dtype=torch.float64)).clamp(-0.95, 0.95)


def _embeddings(pairs: int = PAIRS, dimensions: int = DIMENSIONS) -> dict[str, tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(SEED)
    image, text = (normalize(torch.randn(pairs, dimensions, generator=random)) for _ in range(2))
    apart = torch.eye(pairs, dimensions)  # 0 and 1 alone, so that scores of 16 bits are exactly -1, 0 or 1
    one = apart[:1].expand(pairs, -1)
    return {
        "random": (image, text),
        "all in one point": (one.clone(), one.clone()),
        "each on its pair": (apart, apart.clone()),
        "each opposite its pair": (apart, -apart),
    }


def _gradient(where: str, objective: Objective, scores: Tensor, image_of_text: Tensor | None = None) -> Tensor:
    """Return the gradient with respect to the scores; raise Broken if the loss or a gradient is not finite."""
    scores, learnt = scores.clone().requires_grad_(), _learnt(objective)
    loss = objective.from_similarity(scores, image_of_text)
    grad, *of_learnt = torch.autograd.grad(loss, (scores, *learnt.values()), materialize_grads=True)
    _finite(where, loss, grad)
    spoilt = [name for name, gradient in zip(learnt, of_learnt, strict=True) if not gradient.isfinite().all()]
    if spoilt:
        raise Broken(f"{where}: the gradient of its parameter {spoilt[0]} is not finite. {MASK} before you multiply")
    return grad


def _value(objective: Objective, scores: Tensor, *_: Tensor) -> Tensor:
    return objective.from_similarity(scores)


def _learnt(objective: Objective) -> dict[str, Tensor]:
    """Return the learnt parameters of a loss, by name."""
    named = objective.named_parameters()
    return {name.partition(".")[2]: parameter for name, parameter in named if parameter.requires_grad}


def _finite(where: str, loss: Tensor, *gradients: Tensor | None) -> None:
    if loss.item() == -math.inf:
        raise Broken(f"{where}: the loss is -inf. {MASK}")
    if not loss.isfinite():
        raise Broken(f"{where}: the loss is {loss.item()}")
    if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients):
        raise Broken(f"{where}: the gradient is not finite")
