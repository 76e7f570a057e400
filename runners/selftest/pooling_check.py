"""The check of a user's own pooling: gradient, the order of the sets, half precision, empty sets and speed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.retrieval.encoders.pooling import pooling
from goalgrid.runners.selftest.encoder_check import SEED, Broken
from goalgrid.runners.selftest.objective_check import TIMED_DIMENSIONS, TIMED_PAIRS, seconds


def gradient(name: str) -> str:
    """The gradient with respect to the vectors equals finite differences, in float64."""
    pool, (values, present) = _pooling(name), _sets()
    if not torch.autograd.gradcheck(lambda v: pool(v, present), values.requires_grad_(), raise_exception=False):
        raise Broken("it is no derivative of the value. A detached part is the usual cause")
    return "equals finite differences"


def permutation(name: str) -> str:
    """A set's vector does not depend on the other sets of the batch, nor on the call."""
    pool, (values, present) = _pooling(name), _sets()
    vectors = pool(values, present)
    if not torch.equal(vectors, pool(values, present)):
        raise Broken("the same sets give other vectors at the second call")
    if not torch.allclose(vectors.flip(0), pool(values.flip(0), present.flip(0)), rtol=1e-9, atol=1e-12):
        raise Broken("a set's vector depends on its place in the batch")
    return "the order of the sets changes nothing"


def half_precision(name: str) -> str:
    """Vectors of bfloat16, as encoders give under `train.precision`, give finite vectors and gradients."""
    pool, (values, present) = _pooling(name), _sets()
    values = values.to(torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = pool.float()(values, present) if isinstance(pool, torch.nn.Module) else pool(values, present)
    vectors.sum().backward()
    if not vectors.isfinite().all() or (values.grad is not None and not values.grad.isfinite().all()):
        raise Broken("bfloat16 vectors: the value or the gradient is not finite")
    return "finite for bfloat16"


def empty_sets(name: str) -> str:
    """Absent members count for nothing, also in a set with a single member."""
    pool, (values, present) = _pooling(name), _sets()
    vectors = pool(values, present)
    for what, others in (("another value", values + 7 * ~present[..., None]), ("0", values * present[..., None])):
        if not torch.allclose(vectors, pool(others, present), rtol=1e-9, atol=1e-12):
            raise Broken(f"it depends on a member that is not present: with {what} there, the vector is another")
    return "a member that is not present counts for nothing"


def speed(name: str) -> str:
    """Forward and backward beside mean pooling; no ratio is wrong."""
    random = torch.Generator().manual_seed(SEED)
    values = torch.randn(TIMED_PAIRS, 36, TIMED_DIMENSIONS, generator=random).requires_grad_()
    present = torch.ones(values.shape[:2], dtype=torch.bool)

    def learn(pool: Callable[..., Tensor]) -> None:
        pool(values, present).sum().backward()

    pools = (pooling(PoolingSettings.model_validate({"pooling": kind}), TIMED_DIMENSIONS) for kind in (name, "mean"))
    ours, mean = seconds(*(partial(learn, pool) for pool in pools))
    return f"{ours / mean:.1f} times mean pooling ({1e3 * ours:.2f} ms for {TIMED_PAIRS} sets of 36, on one CPU)"


OF_POOLINGS: dict[str, Callable[[str], str]] = {
    "gradient": gradient,
    "permutation": permutation,
    "half precision": half_precision,
    "empty sets": empty_sets,
    "speed": speed,
}


def _pooling(name: str) -> Any:
    """The pooling for vectors of 6 values, in float64 and in evaluation where it has weights."""
    torch.manual_seed(SEED)
    pool = pooling(PoolingSettings.model_validate({"pooling": name}), 6)
    return pool.double().eval() if isinstance(pool, torch.nn.Module) else pool


def _sets() -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Four sets of 5, 3, 2 and 1 vectors of 6 values, padded with random values."""
    values = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    return values, torch.arange(5) < torch.tensor([5, 3, 2, 1])[:, None]
