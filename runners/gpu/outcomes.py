"""Outcomes of operations on tensors without data: a step repeats few operations on the same shapes very often.

torch looks up what it saw before, too, but takes five times as long: it allows for sizes that are no numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from goalgrid.runners.gpu.torch_private import (
    DisableTorchDispatch,
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

aten = torch.ops.aten
META = torch.device("meta")
DIRECT = frozenset(
    [aten.add.Tensor, aten.add_.Tensor, aten.mul.Tensor, aten.mul_.Tensor, aten.sub.Tensor, aten.div.Tensor,
     aten.neg.default, aten.exp.default, aten.sqrt.default, aten.relu.default, aten.tanh.default, aten.sigmoid.default,
     aten.threshold_backward.default, aten.tanh_backward.default, aten.sigmoid_backward.default,
     aten.view.default, aten._unsafe_view.default, aten.transpose.int, aten.t.default, aten.permute.default,
     aten.expand.default, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default, aten.detach.default,
     aten.mm.default, aten.addmm.default, aten.bmm.default, aten.sum.dim_IntList, aten.mean.dim,
     aten.copy_.default, aten.clone.default, aten.zeros_like.default, aten.slice_backward.default,
     aten.select_backward.default, aten.new_empty_strided.default]
)  # fmt: skip
"""Operations whose own kernels for tensors without data give what torch's Python rules for them give, far faster."""
MODE = FakeTensorMode(allow_non_fake_inputs=True)
"""The mode of all traces of this process, which share models and outcomes."""
MODE.cache_enabled = False  # `OUTCOMES` are faster
EXAMPLE = MODE.from_tensor(torch.empty(0))
ATTRIBUTES = dict(vars(EXAMPLE))
"""What torch gives to each tensor without data."""


@dataclass(frozen=True, slots=True)
class Output:
    """A value that an operation returns: an input, a view of an input, a new tensor, or no tensor."""

    of_input: int = -1
    """The place of the input that it is, or whose storage it shares; -1: of none."""
    layout: tuple[Any, ...] = ()
    """Shape, strides, number format, and offset in the storage; empty: it is the input itself, or no tensor."""
    value: Any = None
    """What is no tensor."""

    @classmethod
    def like(cls, value: Tensor) -> Tensor:
        """A tensor without data in place of a tensor with data."""
        empty: Tensor = cls(-1, _layout(value)).again([])
        return empty

    def again(self, inputs: Sequence[Tensor]) -> Any:
        """It for other inputs of the same shapes."""
        if not self.layout:
            return inputs[self.of_input] if self.of_input >= 0 else self.value
        shape, stride, kind, offset = self.layout
        first: Any = inputs[0] if inputs else EXAMPLE
        if type(first) is not FakeTensor:
            first = next(value for value in inputs if type(value) is FakeTensor)
        with DisableTorchDispatch():
            if self.of_input >= 0:
                storage = inputs[self.of_input].untyped_storage()
                empty = torch.empty(0, dtype=kind, device=META).set_(storage, offset, shape, stride)
            else:
                empty = torch.empty_strided(shape, stride, dtype=kind, device=META)
            device = first.fake_device
            # as FakeTensor's constructor, which takes five times as long
            tensor = Tensor._make_subclass(FakeTensor, empty, dispatch_device=True, device_for_backend_keys=device)
        tensor.__dict__.update(ATTRIBUTES, fake_mode=first.fake_mode, known_layout=self.layout)
        return tensor


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation returns, and its work."""

    outputs: tuple[Output, ...]
    kind: Any
    """The type of the sequence that it returns; None: it returns a single value."""
    work: Any

    @classmethod
    def of(cls, result: Any, inputs: Sequence[Tensor], work: Any) -> "Outcome":
        values = result if isinstance(result, list | tuple) else [result]
        kind = type(result) if isinstance(result, list | tuple) else None
        return cls(tuple(_output(value, inputs) for value in values), kind, work)

    def again(self, inputs: Sequence[Tensor]) -> Any:
        """The result for other inputs of the same shapes."""
        values = [output.again(inputs) for output in self.outputs]
        return self.kind(values) if self.kind else values[0]


def _output(value: Any, inputs: Sequence[Tensor]) -> Output:
    if not isinstance(value, Tensor):
        return Output(value=value)
    layout, storage = _layout(value), value.untyped_storage()
    for place, given in enumerate(inputs):
        if given is value:
            return Output(place)
        if given.untyped_storage() is storage:
            return Output(place, layout)
    return Output(-1, layout)


def _layout(value: Any) -> tuple[Any, ...]:
    """Shape, strides, number format, and offset in the storage; without data, it is asked for more than it changes."""
    layout = value.shape, value.stride(), value.dtype, value.storage_offset()
    if type(value) is FakeTensor:
        value.__dict__["known_layout"] = layout
    return layout


def forget_layout(values: Sequence[Tensor]) -> None:
    """Before the next look at tensors whose shape or strides an operation may have changed in place."""
    for value in values:
        value.__dict__.pop("known_layout", None)


def computed(func: Any, args: Any, kwargs: Any, inputs: Sequence[Tensor]) -> Any:
    """The result of an operation, some of whose inputs have no values."""
    if func not in DIRECT or kwargs.get("device") or any(map(has_values, inputs)):
        return func(*args, **kwargs)
    first: Any = inputs[0]
    with in_kernel_invocation_manager(first.fake_mode):
        result = func(*args, **kwargs)
    return Outcome.of(result, inputs, None).again(inputs)


def key_of(values: Sequence[Any], inputs: list[Tensor]) -> tuple[Any, ...]:
    """An operation's arguments with shapes in place of tensors, which join `inputs`; and which of them have values."""
    key = list[Any]()
    for value in values:
        if isinstance(value, Tensor):
            inputs.append(value)
            key += (value.__dict__.get("known_layout") or _layout(value), has_values(value))
        elif isinstance(value, list | tuple):
            key.append(key_of(value, inputs))
        else:
            key += (type(value), value)
    return tuple(key)


def has_values(tensor: Any) -> bool:
    """Whether it is a tensor of the host, or a number that the host knows."""
    return type(tensor) is not FakeTensor or tensor.constant is not None
