"""Outcomes of operations on tensors without data, beside what torch's own rules give."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from goalgrid.runners.gpu.outcomes import DIRECT, Outcome, computed, key_of
from goalgrid.runners.gpu.torch_private import FakeTensor, FakeTensorMode
from goalgrid.runners.gpu.trace import OUTCOMES, Trace, without_data

aten = torch.ops.aten
MORE: dict[Any, tuple[Any, ...]] = {
    aten.view.default: ([6, 4],),
    aten._unsafe_view.default: ([6, 4],),
    aten.transpose.int: (0, 1),
    aten.permute.default: ([2, 0, 1],),
    aten.expand.default: ([5, 2, 3, 4],),
    aten.slice.Tensor: (1, 1, 3),
    aten.select.int: (1, 2),
    aten.unsqueeze.default: (1,),
    aten.sum.dim_IntList: ([-1],),
    aten.mean.dim: ([0, 1], True),
    aten.threshold_backward.default: (torch.ones(2, 3, 4), 0),
    aten.slice_backward.default: ([2, 5, 4], 1, 1, 4, 1),
    aten.select_backward.default: ([2, 3, 5, 4], 2, 1),
    aten.new_empty_strided.default: ([4, 3], [1, 4]),
}
"""Arguments after the first; of operations that are not here, a second tensor as often as they ask for one."""


def arguments(func: Any) -> tuple[Any, ...]:
    matrices = {aten.mm.default: 2, aten.addmm.default: 3, aten.bmm.default: 2, aten.t.default: 1}
    if func in matrices:
        shape = (2, 4, 4) if func is aten.bmm.default else (4, 4)
        return tuple(torch.ones(shape) for _ in range(matrices[func]))
    asked = sum(str(one.type) == "Tensor" for one in func._schema.arguments)
    return (torch.ones(2, 3, 4), *MORE.get(func, [torch.ones(1, 4)] * (asked - 1)))


def layouts(result: Any, inputs: list[Tensor]) -> list[tuple[Any, ...]]:
    """Of each tensor of a result its layout, and of which inputs it has the storage."""
    values = result if isinstance(result, list | tuple) else [result]
    return [
        (type(v), v.shape, v.stride(), v.dtype, v.storage_offset(), v.device, v.requires_grad,
         [v.untyped_storage()._cdata == one.untyped_storage()._cdata for one in inputs])
        for v in values
    ]  # fmt: skip


@pytest.mark.parametrize("func", sorted(DIRECT, key=str), ids=str)
def test_an_operation_gives_what_torch_s_own_rules_give(func: Any) -> None:
    mode = FakeTensorMode()
    args = [mode.from_tensor(value) if isinstance(value, Tensor) else value for value in arguments(func)]
    inputs = list[Tensor]()
    assert key_of(args, inputs)
    with mode:
        ruled = func(*args)
        assert layouts(computed(func, args, {}, inputs), inputs) == layouts(ruled, inputs)
        assert layouts(Outcome.of(ruled, inputs, None).again(inputs), inputs) == layouts(ruled, inputs)


def test_arguments_that_differ_have_different_keys() -> None:
    mode = FakeTensorMode()
    one, other = (mode.from_tensor(torch.ones(shape)) for shape in ((2, 3), (3, 2)))
    given: list[list[Any]] = [[one], [other], [one.t()], [one, 1], [one, 1.0], [one, True], [one, [1]], [[one], 1]]
    given += [[one, torch.ones(2)], [one, mode.from_tensor(torch.ones(2))]]
    keys = [key_of(values, []) for values in given]
    assert len(set(keys)) == len(keys)


def test_a_shape_that_changes_in_place_is_seen() -> None:
    with without_data() as mode, mode, Trace():
        value = torch.zeros(2, 3) + 1
        before = key_of([value], [])
        value.unsqueeze_(0)
        assert key_of([value], []) != before
        assert (value + 1).shape == (1, 2, 3)


def test_a_number_that_the_host_knows_stays_known() -> None:
    with without_data() as mode, mode, Trace():
        _unknown = torch.zeros(2, 3).sum() * 3
        assert float(torch.tensor(2.0) * 3) == 6


def step(weight: Tensor, batch: Tensor) -> None:
    """Views, products, chunks, operations in place and beside tensors with values, and a backward pass."""
    for part in (batch @ weight).relu().masked_fill(torch.ones(300, 1, dtype=torch.bool), 2.0).chunk(2, dim=1):
        weight.grad = None
        taken = part.transpose(0, 1).contiguous().add_(1)[torch.arange(8) % 3]
        taken.index_add_(0, torch.arange(3), torch.zeros(3, 300))
        (taken.softmax(-1).std() + weight.norm()).backward(retain_graph=True)
    torch.optim.Adam([weight]).step()


def traced(count: Callable[[Tensor, Tensor], None]) -> Trace:
    with without_data() as mode:
        trace = Trace()
        with mode:
            weight, batch = torch.zeros(64, 32, requires_grad=True), torch.zeros(300, 64)
        trace.hold(weight)
        trace.hold(batch)
        with mode, trace:
            count(weight, batch)
    return trace


def test_steps_that_were_seen_are_counted_as_at_first() -> None:
    OUTCOMES.clear()
    first = traced(step)
    seen = len(OUTCOMES)
    again = traced(step)
    assert seen == len(OUTCOMES) > 20
    assert again.work == first.work
    assert again.allocator.most_allocated == first.allocator.most_allocated
    assert again.allocator.allocated == first.allocator.allocated


def test_an_outcome_is_without_data_and_in_the_mode_of_its_inputs() -> None:
    first, second = FakeTensorMode(), FakeTensorMode()
    outcome = Outcome.of(first.from_tensor(torch.ones(2, 3)), [], None)
    result = outcome.again([second.from_tensor(torch.ones(4))])
    assert isinstance(result, FakeTensor)
    assert result.fake_mode is second
