"""Outcomes of operations on tensors without data, beside what torch's own rules give."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from goalgrid.planning.gpu.outcomes import Hollow, Layout, key_of, outcome_of
from goalgrid.planning.gpu.trace import OUTCOMES, Trace, without_data
from tests.cases import every
from tests.goalgrid.planning.gpu.counting import Counting

aten = torch.ops.aten
A, B, M = torch.ones(2, 3, 4), torch.ones(1, 4), torch.ones(4, 4)
OPERATIONS: dict[Any, tuple[Any, ...]] = {
    **dict.fromkeys([aten.add.Tensor, aten.add_.Tensor, aten.mul.Tensor, aten.mul_.Tensor, aten.sub.Tensor], (A, B)),
    **dict.fromkeys([aten.div.Tensor, aten.tanh_backward.default, aten.sigmoid_backward.default], (A, A)),
    **dict.fromkeys(
        [aten.neg.default, aten.exp.default, aten.sqrt.default, aten.relu.default, aten.tanh.default], (A,)
    ),
    **dict.fromkeys([aten.sigmoid.default, aten.detach.default, aten.clone.default, aten.zeros_like.default], (A,)),
    aten.threshold_backward.default: (A, A, 0),
    aten.view.default: (A, [6, 4]),
    aten._unsafe_view.default: (A, [6, 4]),
    aten.transpose.int: (A, 0, 1),
    aten.t.default: (M,),
    aten.permute.default: (A, [2, 0, 1]),
    aten.expand.default: (A, [5, 2, 3, 4]),
    aten.slice.Tensor: (A, 1, 1, 3),
    aten.select.int: (A, 1, 2),
    aten.split.Tensor: (A, 2, -1),
    aten.unsqueeze.default: (A, 1),
    aten.sum.dim_IntList: (A, [-1]),
    aten.mean.dim: (A, [0, 1], True),
    aten.mm.default: (M, M),
    aten.addmm.default: (M, M, M),
    aten.bmm.default: (A, A.transpose(1, 2)),
    aten.copy_.default: (A, B),
    aten.slice_backward.default: (A, [2, 5, 4], 1, 1, 4, 1),
    aten.select_backward.default: (A, [2, 3, 5, 4], 2, 1),
    aten.new_empty_strided.default: (A, [4, 3], [1, 4]),
    aten.max.dim: (A, 1),
    aten.cat.default: ([A, A], 1),
    aten.where.self: (A > 0, A, B),
    aten._softmax.default: (A, -1, False),
    aten._to_copy.default: (A,),
    aten.embedding.default: (M, torch.ones(2, 3, dtype=torch.int64)),
    aten.index.Tensor: (A, [torch.ones(5, dtype=torch.int64)]),
    aten.native_layer_norm.default: (A, [4], B[0], B[0], 1e-5),
    aten.convolution.default: (
        torch.ones(2, 4, 8, 8),
        torch.ones(6, 4, 3, 3),
        None,
        [2, 2],
        [1, 1],
        [1, 1],
        False,
        [0],
        1,
    ),
    aten.native_batch_norm.default: (torch.ones(2, 4, 8, 8), *[torch.ones(4)] * 4, True, 0.1, 1e-5),
}
"""Operations with their arguments."""


def layouts(result: Any, inputs: list[Tensor]) -> list[tuple[Any, ...]]:
    """Of each tensor of a result its layout, and of which inputs it has the storage."""
    values = result if isinstance(result, list | tuple) else [result]
    return [
        (v.shape, v.stride(), v.dtype, v.storage_offset(), v.device, v.requires_grad,
         [v.untyped_storage()._cdata == one.untyped_storage()._cdata for one in inputs])
        for v in values
    ]  # fmt: skip


def hollow(*shape: int) -> Hollow:
    return Hollow.of(Layout.of(torch.ones(shape)))


@every("func", OPERATIONS)
def test_an_operation_gives_what_torch_s_own_rules_give(func: Any) -> None:
    mode = FakeTensorMode()
    theirs = tree_map_only(Tensor, mode.from_tensor, OPERATIONS[func])
    with mode:
        ruled = func(*theirs)
    ours, inputs = tree_map_only(Tensor, lambda value: Hollow.of(Layout.of(value)), OPERATIONS[func]), list[Tensor]()
    key_of(ours, inputs)
    beside = [value for value in tree_leaves(theirs) if isinstance(value, Tensor)]
    outcome = outcome_of(func, ours, {}, inputs)
    for again in (inputs, [Hollow.of(Layout.of(value)) for value in inputs]):
        result, new = outcome.again(again)
        assert layouts(result, again) == layouts(ruled, beside)
        assert all(not any(shared) for *_, shared in layouts(new, again))
        assert type(result) is type(ruled) or isinstance(result, Hollow)


def test_arguments_that_differ_have_different_keys() -> None:
    one, other = hollow(2, 3), hollow(3, 2)
    given: list[list[Any]] = [[one], [other], [one.t()], [one, 1], [one, 1.0], [one, True], [one, [1]], [[one], 1]]
    given += [[one, torch.ones(2)], [one, hollow(2)]]
    keys = [key_of(values, []) for values in given]
    assert len(set(keys)) == len(keys)


def test_a_shape_that_changes_in_place_is_seen() -> None:
    with without_data(), Trace():
        value = torch.zeros(2, 3) + 1
        before = key_of([value], [])
        value.unsqueeze_(0)
        assert key_of([value], []) != before
        assert (value + 1).shape == (1, 2, 3)


def test_a_number_that_the_host_knows_stays_known() -> None:
    with without_data(), Trace():
        _unknown = torch.zeros(2, 3).sum() * 3
        assert float(torch.tensor(2.0) * 3) == 6


def test_values_that_are_asked_for_are_an_error() -> None:
    with without_data(), Trace():
        value = torch.zeros(2, 3) + 1
        with pytest.raises(TypeError, match="move it to the host first"):
            value.numpy()
        for ask in (value.tolist, value.sum().item, lambda: value[value > 0], lambda: bool(value.any())):
            with pytest.raises((RuntimeError, NotImplementedError)):
                ask()


def test_what_no_trace_counts_has_the_shape_of_its_result() -> None:
    learns = torch.nn.Parameter(hollow(2, 3))
    assert (learns @ hollow(3, 4)).sum(dim=0).shape == (4,)
    (learns * 2).sum().backward()
    assert learns.grad is not None
    assert learns.grad.shape == (2, 3)


def step(weight: Tensor, batch: Tensor) -> None:
    """Views, products, chunks, operations in place and beside tensors with values, and a backward pass."""
    for part in (batch @ weight).relu().masked_fill(torch.ones(300, 1, dtype=torch.bool), 2.0).chunk(2, dim=1):
        weight.grad = None
        taken = part.transpose(0, 1).contiguous().add_(1)[torch.arange(8) % 3]
        taken.index_add_(0, torch.arange(3), torch.zeros(3, 300))
        (taken.softmax(-1).std() + weight.norm()).backward(retain_graph=True)
    torch.optim.Adam([weight]).step()


def traced(count: Callable[[Tensor, Tensor], None]) -> Trace:
    trace = Trace()
    trace.allocator = Counting()
    with without_data():
        weight, batch = (trace.zeros(shape, torch.float32) for shape in ((64, 32), (300, 64)))
        with trace:
            count(weight.requires_grad_(), batch)
    return trace


def test_steps_that_were_seen_are_counted_as_at_first() -> None:
    OUTCOMES.clear()
    first = traced(step)
    seen = len(OUTCOMES)
    again = traced(step)
    assert seen == len(OUTCOMES) > 20
    assert again.work == first.work
    assert vars(again.allocator) == vars(first.allocator)
