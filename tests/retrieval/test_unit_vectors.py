"""Unit vectors and their gradient, against torch's own composition."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from goalgrid.retrieval.unit_vectors import unit


@given(
    st.sampled_from([(3,), (5, 4), (2, 3, 7), (0, 4)]),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_normalize(
    shape: tuple[int, ...], scale: float, kind: torch.dtype, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    vectors = (scale * torch.randn(shape, generator=random, dtype=kind)).requires_grad_()
    pull = torch.randn(shape, generator=random, dtype=kind)
    torch.testing.assert_close(unit(vectors), normalize(vectors, dim=-1), rtol=1e-6, atol=0)
    (ours,), (theirs,) = (torch.autograd.grad(function(vectors), vectors, pull) for function in (unit, _composed))
    torch.testing.assert_close(scale * ours, scale * theirs, rtol=1e-5, atol=1e-5)


def _composed(vectors: torch.Tensor) -> torch.Tensor:
    return normalize(vectors, dim=-1)


def test_a_vector_of_zeros_stays_and_has_the_gradient_of_normalize() -> None:
    vectors = torch.zeros(2, 3, requires_grad=True)
    pull = torch.tensor([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0]])
    assert unit(vectors).count_nonzero() == 0
    (ours,), (theirs,) = (torch.autograd.grad(function(vectors), vectors, pull) for function in (unit, _composed))
    assert torch.equal(ours, theirs)


def test_the_gradient_is_that_of_finite_differences() -> None:
    vectors = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(unit, vectors)
