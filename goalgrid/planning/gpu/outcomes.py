"""Tensors without data, and cached outcomes of operations on them, since a step repeats few operations many times.

torch's own fake tensors are several times slower: they support symbolic sizes, and a backward pass asks Python for the
device of each.
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
    """Shape, strides, number format and storage offset of a tensor; equal layouts are the same object."""

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
    """A tensor with a shape and a storage but no data; it claims to be on the CPU, so that models take that path."""

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    laid_out: Layout | None = None
    """Its cached layout."""

    @classmethod
    def of(cls, layout: Layout, size: int | None = None) -> "Hollow":
        """Return a tensor with a new storage, of `size` bytes if given."""
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
        """Return the result of an operation outside any trace."""
        key_of([*args, *(kwargs or {}).items()], inputs := list[Tensor]())
        return outcome_of(func, args, kwargs or {}, inputs).again(inputs)[0]

    def numpy(self, *, force: bool = False) -> Any:
        """Raise a TypeError, as there are no values."""
        raise TypeError("a tensor of a GPU has no values for NumPy: move it to the host first")


@dataclass(frozen=True, slots=True)
class Output:
    """A value that an operation returns: an input, a view of an input, a new tensor, or not a tensor."""

    of_input: int = -1
    """Index of the input that it is, or whose storage it shares; -1: none."""
    layout: Layout | None = None
    """Layout of a view or new tensor; None: it is the input itself, or not a tensor."""
    value: Any = None
    """The value, if it is not a tensor."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outputs and the work of an operation."""

    outputs: tuple[Output, ...]
    kind: Any
    """Type of the sequence that it returns; None: it returns a single value."""
    work: Any = None

    @classmethod
    def of(cls, result: Any, inputs: Sequence[Tensor]) -> "Outcome":
        values = result if isinstance(result, list | tuple) else [result]
        kind = type(result) if isinstance(result, list | tuple) else None
        return cls(tuple(_output(value, inputs) for value in values), kind)

    def again(self, inputs: Sequence[Tensor]) -> tuple[Any, list[Hollow]]:
        """Return the result for other inputs of the same shapes, and those of its tensors with new storages."""
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
    """Return the outcome of an operation on tensors without data, by torch's own shape rules (device `meta`).

    Args:
        inputs: the tensors among its arguments, from `key_of`.
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
    """Return a tensor of the same layout with a new storage on the `meta` device."""
    storage = torch.UntypedStorage(value.untyped_storage().nbytes(), device=META)
    shape = torch.empty(0, dtype=value.dtype, device=META)
    return shape.set_(storage, value.storage_offset(), value.shape, value.stride())


def key_of(values: Sequence[Any], inputs: list[Tensor]) -> tuple[Any, ...]:
    """Return a cache key of an operation's arguments: layouts replace tensors, which are appended to `inputs`."""
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
