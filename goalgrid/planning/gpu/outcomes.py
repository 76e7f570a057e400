"""Tensors without data, and the outcomes of operations on them: a step repeats few operations on the same shapes often.

torch has tensors without data, too. They take several times as long: they allow for sizes that are no numbers, and a
backward pass asks Python for the device of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from goalgrid.planning.gpu.torch_private import (
    DisableTorchDispatch,
    disabled_torch_function,
    tensor_subclass,
    wrapper_subclass,
)

META = torch.device("meta")
NORMS = torch.ops.aten._foreach_norm.Scalar


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Shape, strides, number format, and offset in the storage; there is one object for all that are equal."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    kind: torch.dtype
    offset: int

    @classmethod
    def of(cls, value: Tensor) -> "Layout":
        key: Any = value.shape, value.stride(), value.dtype, value.storage_offset()
        return LAYOUTS.get(key) or LAYOUTS.setdefault(key, cls(*key))


LAYOUTS = dict[Any, Layout]()


class Hollow(Tensor):
    """A tensor with a shape, a storage and no data. It says that it is on the CPU, so that models take its ways."""

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    laid_out: Layout | None = None
    """Its layout, which is asked for more than it changes."""

    @classmethod
    def of(cls, layout: Layout, size: int | None = None) -> "Hollow":
        """Return a tensor with a new storage, of `size` bytes if that is more than it needs."""
        hollow: Hollow = wrapper_subclass(
            cls, layout.shape, strides=layout.stride, storage_offset=layout.offset, dtype=layout.kind, storage_size=size
        )
        hollow.laid_out = layout
        return hollow

    def again(self) -> "Hollow":
        """Return a tensor of the same layout with the same storage."""
        with DisableTorchDispatch():
            hollow: Hollow = tensor_subclass(Hollow, self)
        hollow.laid_out = self.laid_out
        return hollow

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """The result of an operation that no trace counts."""
        key_of([*args, *(kwargs or {}).items()], inputs := list[Tensor]())
        return outcome_of(func, args, kwargs or {}, inputs).again(inputs)[0]

    def numpy(self, *, force: bool = False) -> Any:
        """There are no values."""
        raise TypeError("a tensor of a GPU has no values for NumPy: move it to the host first")


@dataclass(frozen=True, slots=True)
class Output:
    """A value that an operation returns: an input, a view of an input, a new tensor, or no tensor."""

    of_input: int = -1
    """The place of the input that it is, or whose storage it shares; -1: of none."""
    layout: Layout | None = None
    """None: it is the input itself, or no tensor."""
    value: Any = None
    """What is no tensor."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation returns, and its work."""

    outputs: tuple[Output, ...]
    kind: Any
    """The type of the sequence that it returns; None: it returns a single value."""
    work: Any = None

    @classmethod
    def of(cls, result: Any, inputs: Sequence[Tensor]) -> "Outcome":
        values = result if isinstance(result, list | tuple) else [result]
        kind = type(result) if isinstance(result, list | tuple) else None
        return cls(tuple(_output(value, inputs) for value in values), kind)

    def again(self, inputs: Sequence[Tensor]) -> tuple[Any, list[Hollow]]:
        """Return the result for other inputs of the same shapes, and the tensors in it that have new storages."""
        values, new = list[Any](), list[Hollow]()
        for output in self.outputs:
            place, layout = output.of_input, output.layout
            if layout is None:
                values.append(inputs[place] if place >= 0 else output.value)
            elif place < 0:
                new.append(Hollow.of(layout))
                values.append(new[-1])
            else:
                with DisableTorchDispatch():
                    shared = inputs[place].as_strided(layout.shape, layout.stride, layout.offset)
                    view: Hollow = tensor_subclass(Hollow, shared)
                view.laid_out = layout
                values.append(view)
        return self.kind(values) if self.kind else values[0], new


def _output(value: Any, inputs: Sequence[Tensor]) -> Output:
    if not isinstance(value, Tensor):
        return Output(value=value)
    storage = value.untyped_storage()
    for place, given in enumerate(inputs):
        if given is value:
            return Output(place)
        if given.untyped_storage() is storage:
            return Output(place, Layout.of(value))
    return Output(-1, Layout.of(value))


def outcome_of(func: Any, args: Any, kwargs: Any, inputs: Sequence[Tensor]) -> Outcome:
    """Return the outcome of an operation by torch's own rules for shapes; some inputs have no data, or there are none.

    Args:
        inputs: the tensors among its arguments, as `key_of` gives them.
    """
    if torch.Tag.inplace_view in func.tags:  # it changes nothing but the layout of its first input
        with DisableTorchDispatch():
            func(*args, **kwargs)
        if type(inputs[0]) is Hollow:
            inputs[0].laid_out = None
        return Outcome((Output(0),), None)
    if not func._schema.returns:  # it changes values: of all weights at once, say
        return Outcome((Output(),), None)
    shapes = {id(value): _on_meta(value) for value in inputs}

    def as_shape(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [as_shape(part) for part in value]
        return META if isinstance(value, torch.device) else shapes.get(id(value), value)

    kwargs = {name: as_shape(value) for name, value in kwargs.items()}
    if not inputs:
        kwargs["device"] = META
    if func is NORMS:  # of many weights, of few layouts
        alike = {Layout.of(value): shapes[id(value)] for value in inputs}
        of = dict(zip(alike, func(list(alike.values()), *args[1:], **kwargs), strict=True))
        return Outcome.of([of[Layout.of(value)] for value in inputs], [])
    return Outcome.of(func(*as_shape(args), **kwargs), [shapes[id(value)] for value in inputs])


def _on_meta(value: Tensor) -> Tensor:
    """Return a tensor of the same layout, in a new storage, on torch's device for shapes."""
    storage = torch.UntypedStorage(value.untyped_storage().nbytes(), device=META)
    shape = torch.empty(0, dtype=value.dtype, device=META)
    return shape.set_(storage, value.storage_offset(), value.shape, value.stride())


def key_of(values: Sequence[Any], inputs: list[Tensor]) -> tuple[Any, ...]:
    """An operation's arguments with shapes in place of tensors, which join `inputs`; and which of them have values."""
    key = list[Any]()
    for value in values:
        kind = type(value)
        if kind is Hollow:
            inputs.append(value)
            layout = value.laid_out
            if layout is None:
                layout = value.laid_out = Layout.of(value)
            key.append(layout)
        elif kind is list or kind is tuple:
            key.append(key_of(value, inputs))
        elif isinstance(value, Tensor):
            inputs.append(value)
            key += (Layout.of(value), True)
        else:
            key += (kind, value)
    return tuple(key)
