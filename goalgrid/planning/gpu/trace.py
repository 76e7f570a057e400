"""Count memory and work of a computation on a GPU, operation by operation, on tensors with a shape and no data."""

import gc
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from goalgrid.objectives import mining
from goalgrid.planning.gpu.allocator import CachingAllocator
from goalgrid.planning.gpu.outcomes import META, Hollow, Layout, Outcome, key_of, outcome_of
from goalgrid.planning.gpu.torch_private import (
    TorchDispatchMode,
    dispatch_modes,
    flop_registry,
    gru,
    replaced_kernels,
    tree_leaves,
    tree_map,
)
from goalgrid.retrieval.scorers import cross_attention, similarity
from goalgrid.runners.gpu.cards import Card

aten = torch.ops.aten
OUTCOMES = dict[Any, Outcome]()
"""Cached outcomes of operations on tensors without data, by operation and shapes."""
HOST = 2**16
"""Integer tensors with up to this many values are really computed, since the host branches on them."""
KERNELS_A_STEP = 2
"""Kernels per forward GRU step: the product with the state, and the gates; twice as many backward."""
KERNELS = {aten.convolution: 3, aten.convolution_backward: 6}
"""Kernels per cuDNN operation: a ResNet-152's 155 convolutions had 1,050 to 1,600 more kernels on an H100."""
OF_A_GROUP = {aten.convolution: 1, aten.convolution_backward: 5}
"""Kernels per group of a float32 convolution on an H100."""
CHANNELS = 64
"""Output channels that cuDNN computes together; a group with fewer takes as long."""
DETACH = aten.detach.default
"""Autograd's own detach, a quarter of all operations."""
WHOLE = (torch.int64, torch.int32, torch.bool, torch.uint8)
LAUNCH = 35e-6
"""Seconds for Python and PyTorch to launch a kernel of a training step (22 to 37 microseconds with an H100)."""
SHORTEST = 2.5e-6
"""Minimum seconds of a kernel on the GPU: 340 kernels of a small step kept an H100 busy for 1.7 ms."""


@dataclass
class Work:
    """Operations on a GPU.

    Args:
        products: floating-point operations (including padding) and bytes of each matrix product, by number format.
        bytes: bytes read and written by the other operations.
        launches: number of kernels.
    """

    products: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bytes: float = 0.0
    launches: float = 0.0

    def __mul__(self, factor: float) -> "Work":
        parts = {kind: [(a * factor, b * factor) for a, b in group] for kind, group in self.products.items()}
        return Work(parts, self.bytes * factor, self.launches * factor)

    def __add__(self, other: "Work") -> "Work":
        kinds = dict.fromkeys([*self.products, *other.products])
        parts = {kind: self.products.get(kind, []) + other.products.get(kind, []) for kind in kinds}
        return Work(parts, self.bytes + other.bytes, self.launches + other.launches)

    def seconds(self, card: Card, *, tf32: bool = False) -> tuple[float, float]:
        """Return bounds on the seconds: all rooflines plus minimum kernel times, and all rooflines plus launches.

        The lower bound assumes that other trials keep the GPU busy while one launches its kernels.
        """
        bandwidth = 1e9 * card.copies * card.bandwidth
        computing = sum(
            max(flops / card.rate(kind, tf32=tf32), moved / bandwidth)
            for kind, group in self.products.items()
            for flops, moved in group
        )
        roofline = computing + self.bytes / bandwidth
        return roofline + SHORTEST * self.launches, roofline + LAUNCH * self.launches


class Unguarded(TorchDispatchMode):
    """A mode that sees every operation, without torch's guard against being compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled, and the guard would take a third of a cached operation's time."""
        return False


class Trace(Unguarded):
    """Follows storages through the allocator from creation to release, and counts work.

    Small integer tensors of the host (lengths, indices) are real, so that control flow is that of training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.allocator = CachingAllocator()
        self.work = Work()
        self._held = dict[int, weakref.ref[Any]]()

    def hold(self, tensor: Tensor) -> None:
        """Count the storage of a tensor until it is released."""
        storage = tensor.untyped_storage()
        reference = self._held.get(storage._cdata)
        if reference is None or reference() is not storage:
            self._hold(storage)

    def _hold(self, storage: torch.UntypedStorage) -> None:
        if size := storage.nbytes():
            allocator = self.allocator
            block = allocator.allocate(size)
            # with the trace go its references, and then nothing is counted
            self._held[storage._cdata] = weakref.ref(storage, lambda _: allocator.release(block))

    def zeros(self, shape: Sequence[int], kind: torch.dtype) -> Tensor:
        """Return a tensor on the device."""
        empty = Hollow.of(Layout.of(torch.empty(shape, dtype=kind, device=META)))
        self.hold(empty)
        return empty

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DETACH and type(args[0]) is Hollow:
            return args[0].again()
        inputs = list[Tensor]()
        key = id(func), key_of([*args, *kwargs.items()] if kwargs else args, inputs)
        outcome = OUTCOMES.get(key)
        if outcome is None:
            kwargs = kwargs or {}
            if _of_host(func, inputs, args, kwargs):
                return func(*args, **kwargs)  # neither memory nor work of the GPU
            if func is aten.index.Tensor and (lengths := _looked_up(*args)) is not None:
                return lengths
            outcome = outcome_of(func, args, kwargs, inputs)
            outcome = replace(outcome, work=_work(func, args, kwargs, inputs, outcome.again(inputs)[0]))
            if torch.Tag.inplace_view not in func.tags:
                OUTCOMES[key] = outcome
        result, new = outcome.again(inputs)
        for tensor in new:
            self._hold(tensor.untyped_storage())
        if outcome.work:
            kind, flops, moved, kernels = outcome.work
            self.work.launches += kernels
            if kind:
                self.work.products.setdefault(kind, []).append((flops, moved))
            else:
                self.work.bytes += moved
        return result


def _work(func: Any, args: Any, kwargs: Any, inputs: list[Tensor], result: Any) -> tuple[str, float, float, int] | None:
    """Return number format, floating-point operations, bytes and kernels of an operation.

    The format is empty for operations other than products, which are bound by bandwidth. None: a view, which launches
    no kernel.
    """
    if func.is_view:
        return None
    outputs = [value for value in tree_leaves(result) if isinstance(value, Tensor)]
    written = outputs or [value for value in tree_leaves(_written(func, args)) if isinstance(value, Tensor)]
    moved = float(sum(tensor.nbytes for tensor in [*inputs, *written]))
    kernel = ATTENTION.get(func.overloadpacket, func.overloadpacket)
    counter = FLOPS.get(kernel, flop_registry.get(kernel))
    kernels = _kernels(func.overloadpacket, args, inputs)
    if counter is None:
        return "", 0.0, moved, kernels
    kind = str(inputs[0].dtype).removeprefix("torch.")
    return kind, float(counter(*args, **kwargs, out_val=result)), moved, kernels


def _kernels(operation: Any, args: Any, inputs: list[Tensor]) -> int:
    """Return the kernels of an operation; cuDNN computes the groups of a float32 convolution one after another."""
    groups = _groups(args) if operation in OF_A_GROUP and inputs[0].dtype == torch.float32 else 1
    return groups * OF_A_GROUP[operation] if groups > 1 else KERNELS.get(operation, 1)


def _written(func: Any, args: Any) -> list[Any]:
    """Return the arguments that an operation changes in place, e.g. lists of weights, gradients and moments."""
    given = zip(func._schema.arguments, args, strict=False)
    return [value for argument, value in given if argument.alias_info and argument.alias_info.is_write]


def _of_host(func: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> bool:
    """Return whether the operation acts on host tensors only, or creates a small integer tensor there."""
    if inputs:
        return not any(type(tensor) is Hollow for tensor in inputs)
    if not any("Tensor" in str(value.type) for value in func._schema.returns):
        return True  # marks of a profiler
    ranges = func.overloadpacket is aten.arange
    values = args if ranges else args[1:] if func is aten.full.default else [None]
    kind = kwargs.get("dtype")
    whole = kind in WHOLE or (kind is None and all(isinstance(value, int) for value in values))
    if ranges:
        return whole and max(args) <= HOST
    return whole and isinstance(args[0], list | tuple) and math.prod(args[0]) <= HOST


def _looked_up(values: Tensor, places: list[Tensor | None]) -> Tensor | None:
    """Return lengths of mined captions, taken in turn as the indices have no values; None for any other look-up."""
    if isinstance(values, Hollow) or len(places) > 1 or places[0] is None or places[0].ndim > 1:
        return None
    return values[torch.arange(len(places[0])) % len(values)]


def _gru(values: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    """Run a one-layer GRU on packed sequences, or on padded ones, which are treated as packed."""
    if isinstance(given[1], Tensor):
        return _packed_gru(values, *given)
    state, weights, *more, batch_first = given
    if not isinstance(weights[0], Hollow):
        return gru(values, *given)
    steps = values.transpose(0, 1) if batch_first else values
    sizes = torch.full(steps.shape[:1], steps.shape[1])
    read, last = _packed_gru(steps.flatten(0, 1), sizes, state, weights, *more)
    read = read.unflatten(0, steps.shape[:2])
    return read.transpose(0, 1) if batch_first else read, last


def _packed_gru(
    values: Tensor, sizes: Tensor, state: Tensor, weights: list[Tensor], *more: Any
) -> tuple[Tensor, Tensor]:
    """Run a one-layer GRU on packed sequences, by products over all elements at once.

    The previous state of each element is assumed to be known. cuDNN fuses a step into one or two kernels; a CPU needs
    about twenty operations per step, which would be counted as launches.
    """
    if not isinstance(weights[0], Hollow):
        return gru(values, sizes, state, weights, *more)
    _bias, _layers, _dropout, train, _both = more
    hidden, directions = state.shape[-1], list[Tensor]()
    for place in range(0, len(weights), 4):
        of_input = nn.functional.linear(values, weights[place], weights[place + 2])
        before = of_input[:, :hidden].clone()
        of_state = nn.functional.linear(before, weights[place + 1], weights[place + 3])
        gates = (of_input[:, : 2 * hidden] + of_state[:, : 2 * hidden]).sigmoid()
        reset, update = gates.chunk(2, dim=-1)
        new = (of_input[:, 2 * hidden :] + reset * of_state[:, 2 * hidden :]).tanh()
        directions.append(new + update * (before - new))
    for mode in dispatch_modes():  # the steps are sequential: each launches its own kernels
        if isinstance(mode, Trace):
            mode.work.launches += KERNELS_A_STEP * len(sizes) * len(directions) * (3 if train else 1)
    last = torch.stack([direction[: int(sizes[0])] for direction in directions])
    return torch.cat(directions, dim=-1), last


ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}
"""Maps CPU kernels to the GPU kernels that compute the same."""


def _groups(args: Sequence[Any]) -> int:
    """Return the number of groups of a convolution: its last argument before the mask of requested gradients."""
    return args[-1] if isinstance(args[-1], int) else args[-2]


def _convolution(values: Tensor, weight: Tensor, *more: Any, out_val: Tensor) -> float:
    """Count the operations of a convolution; groups are padded to CHANNELS and run at half rate at best (H100)."""
    slower = max(2.0, CHANNELS * _groups(more) / len(weight)) if _groups(more) > 1 else 1.0
    return 2 * slower * math.prod(out_val.shape) * math.prod(weight.shape[1:])


def _convolution_backward(gradient: Tensor, values: Tensor, weight: Tensor, *more: Any, out_val: Any) -> float:
    """Count the operations of a convolution's backward pass: as forward per requested gradient, groups at half rate."""
    of_one = _convolution(values, weight, *more, out_val=gradient)
    return sum(more[-1][:2]) * of_one * (2 if _groups(more) > 1 else 1)


FLOPS: dict[Any, Callable[..., float]] = {
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
}
"""Counters of floating-point operations that replace torch's, which ignore groups and their lower rate."""


def _grouped(lists: Any, with_indices: bool = False) -> dict[tuple[torch.device, torch.dtype], Any]:
    """Group tensors by number format, as torch does for clipping and optimisers; all are on one device."""
    groups = dict[Any, Any]()
    for index, tensor in enumerate(lists[0]):
        members, indices = groups.setdefault(tensor.dtype, ([list[Any]() for _ in lists], list[int]()))
        indices.append(index)
        for joined, group in zip(members, lists, strict=True):
            if group:
                joined.append(group[index])
    return {(members[0][0].device, kind): (members, indices) for kind, (members, indices) in groups.items()}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run the block in one thread, since others would only spin, and without garbage collection.

    Collections would take half of the time, and no tensor needs one to be released.
    """
    collects, threads = gc.isenabled(), torch.get_num_threads()
    gc.disable()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collects:
            gc.enable()


@contextmanager
def without_data() -> Iterator[None]:
    """Run the block `undisturbed`, with GPU tile sizes, cuDNN-like GRUs, and joint gradient clipping."""
    tables = cross_attention.BLOCK, similarity.VALUES, mining.WHOLE, mining.TILE
    before = [table["cpu"] for table in tables]
    with undisturbed(), replaced_kernels(_gru, _grouped):
        for table in tables:
            table["cpu"] = table["cuda"]
        try:
            yield
        finally:
            for table, size in zip(tables, before, strict=True):
                table["cpu"] = size


def remove_data(module: nn.Module, trace: Trace | None = None) -> bool:
    """Replace a module's weights and buffers by tensors without data, counted by the trace; return if any had data."""
    empties = dict[int, Tensor]()  # tied weights share a storage
    for part in module.modules():
        for name, value in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if not isinstance(value, Hollow):
                storage = value.untyped_storage()
                empty = empties.setdefault(storage._cdata, Hollow.of(Layout.of(value), storage.nbytes()))
                is_weight = isinstance(value, nn.Parameter)
                setattr(part, name, nn.Parameter(empty, requires_grad=value.requires_grad) if is_weight else empty)
            if trace:
                trace.hold(getattr(part, name))
    return bool(empties)


@contextmanager
def unfilled() -> Iterator[None]:
    """Skip weight initialisation of models built inside the block; it runs `undisturbed`."""
    with undisturbed(), _Unfilled():
        yield


class _Unfilled(Unguarded):
    """Mode that skips operations on large tensors, as neither initial weights nor outputs are ever read.

    `any()` of a large tensor returns False, so that `trunc_normal_` does not loop.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        large = any(map(_is_large, tree_leaves([args, kwargs])))
        if not large or func.is_view or torch.Tag.dynamic_output_shape in func.tags:
            return func(*args, **kwargs)
        if func.overloadpacket.__name__.endswith("_"):
            return args[0] if _is_large(args[0]) else func(*args, **kwargs)
        if func is aten.any.default:
            return torch.tensor(False)
        kwargs.pop("device", None)
        return tree_map(_unfilled, func(*tree_map(_shape, args), **tree_map(_shape, kwargs)))


def _is_large(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() > HOST


def _shape(value: Any) -> Any:
    return value.to("meta") if isinstance(value, Tensor) else value


def _unfilled(value: Any) -> Any:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if isinstance(value, Tensor) else value
