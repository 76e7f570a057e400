"""What a piece of work would take of a GPU, counted operation by operation on tensors that have a shape and no data."""

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.nn.modules import rnn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from goalgrid.objectives import mining
from goalgrid.retrieval.scorers import cross_attention, similarity
from goalgrid.runners.gpu.allocator import Block, CachingAllocator

aten = torch.ops.aten
HOST = 2**16
"""Most whole numbers of a tensor that is computed: lengths and places, by which the host decides what comes next."""
KERNELS_A_STEP = 2
"""Of a GRU, forward: the product with the state, and the gates. Twice as many backward."""
WHOLE = (torch.int64, torch.int32, torch.bool, torch.uint8)


@dataclass
class Work:
    """Operations on a GPU.

    Args:
        products: by number format, floating-point operations and bytes of each operation that multiplies matrices.
        bytes: read and written by the other operations.
        launches: operations.
    """

    products: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bytes: float = 0.0
    launches: float = 0.0

    def __mul__(self, factor: float) -> "Work":
        parts = {kind: [(a * factor, b * factor) for a, b in group] for kind, group in self.products.items()}
        return Work(parts, self.bytes * factor, self.launches * factor)

    def __add__(self, other: "Work") -> "Work":
        parts = {kind: list(group) for kind, group in self.products.items()}
        for kind, group in other.products.items():
            parts.setdefault(kind, []).extend(group)
        return Work(parts, self.bytes + other.bytes, self.launches + other.launches)

    @property
    def flops(self) -> float:
        return sum(flops for group in self.products.values() for flops, _ in group)


class Trace(TorchDispatchMode):
    """Follows storages from their making to their end through the allocator, and counts work.

    Tensors of the host that hold lengths and places are real, so that what depends on them happens as in training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.allocator = CachingAllocator()
        self.work = Work()
        self._known = WeakIdKeyDictionary()

    def hold(self, tensor: Tensor) -> None:
        """Count the storage of a tensor until it is gone."""
        storage = tensor.untyped_storage()
        if storage not in self._known and storage.nbytes():
            block = self.allocator.allocate(storage.nbytes())
            self._known[storage] = True
            weakref.finalize(storage, _release, weakref.ref(self), block).atexit = False

    def begin(self) -> None:
        """Count the work from here on; memory is counted from the first tensor on."""
        self.work = Work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        empty = any(isinstance(tensor, FakeTensor) for tensor in given)
        result = STAND_INS[func](*args, **kwargs) if empty and func in STAND_INS else NotImplemented
        if result is not NotImplemented:
            pass
        elif _of_host(func, given, args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        made = [value for value in tree_leaves(result) if isinstance(value, Tensor)]
        if not func.is_view:
            self._count(func, args, kwargs, given, made, result)
        for tensor in made:
            self.hold(tensor)
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, given: list[Tensor], made: list[Tensor], result: Any) -> None:
        moved = float(sum(tensor.numel() * tensor.element_size() for tensor in [*given, *made]))
        self.work.launches += 1
        packet = func.overloadpacket
        counter = flop_registry.get(ATTENTION.get(packet, packet))
        if counter is None:
            self.work.bytes += moved
            return
        kind = str(given[0].dtype).removeprefix("torch.")
        flops = float(counter(*args, **kwargs, out_val=result))
        self.work.products.setdefault(kind, []).append((flops, moved))


def _release(trace: "weakref.ref[Trace]", block: Block) -> None:
    if found := trace():
        found.allocator.release(block)


def _of_host(func: Any, given: list[Tensor], args: Any, kwargs: Any) -> bool:
    """Whether the operation is on tensors of the host, or makes a small tensor of whole numbers there."""
    if given:
        return not any(isinstance(tensor, FakeTensor) for tensor in given)
    kind = kwargs.get("dtype")
    if func.overloadpacket is aten.arange:
        whole = kind in WHOLE or (kind is None and all(isinstance(value, int) for value in args))
        return whole and max(args) <= HOST
    value = args[1] if func is aten.full.default else None
    whole = kind in WHOLE or (kind is None and isinstance(value, int))
    return whole and isinstance(args[0], list | tuple) and math.prod(args[0]) <= HOST


def _packed(values: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """What packing gives: as many rows as the lengths add up to, or all rows where nobody knows the lengths."""
    rows, longest = values.shape[:2] if batch_first else (values.shape[1], values.shape[0])
    with unset_fake_temporarily():
        known = torch.full((rows,), longest) if isinstance(lengths, FakeTensor) else lengths
        sizes, total = (known > torch.arange(int(known.max()))[:, None]).sum(1), int(known.sum())
    return values.new_empty((total, *values.shape[2:])), sizes


def _looked_up(values: Tensor, places: list[Tensor | None]) -> Any:
    """Lengths of mined captions: nobody knows which are mined, so it takes them in turn."""
    if isinstance(values, FakeTensor) or len(places) > 1 or places[0] is None or places[0].ndim > 1:
        return NotImplemented
    with unset_fake_temporarily():
        return values[torch.arange(len(places[0])) % len(values)]


def _gru(
    values: Tensor,
    sizes: Tensor,
    state: Tensor,
    weights: list[Tensor],
    bias: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
) -> tuple[Tensor, Tensor]:
    """What a GRU of one layer gives for packed sequences, by the products of all their members at once.

    The state before each member is taken to be known. cuDNN computes so within a kernel or two a step; op by op on a
    CPU, a step is some twenty operations.
    """
    if not isinstance(weights[0], FakeTensor):
        real = torch._C._VariableFunctions.gru
        return real(values, sizes, state, weights, bias, layers, dropout, train, both)
    hidden, found = state.shape[-1], list[Tensor]()
    for place in range(0, len(weights), 4):
        of_input = nn.functional.linear(values, weights[place], weights[place + 2])
        before = of_input[:, :hidden].clone()
        of_state = nn.functional.linear(before, weights[place + 1], weights[place + 3])
        gates = (of_input[:, : 2 * hidden] + of_state[:, : 2 * hidden]).sigmoid()
        reset, update = gates.chunk(2, dim=-1)
        new = (of_input[:, 2 * hidden :] + reset * of_state[:, 2 * hidden :]).tanh()
        found.append(new + update * (before - new))
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Trace):
            mode.work.launches += KERNELS_A_STEP * len(sizes) * len(found) * (3 if train else 1)
    last = torch.stack([direction[: int(sizes[0])] for direction in found])
    return torch.cat(found, dim=-1), last


STAND_INS: dict[Any, Callable[..., Any]] = {
    aten._pack_padded_sequence.default: _packed,
    aten.index.Tensor: _looked_up,
}
"""Operations whose result has a shape that depends on values, for tensors that have none."""

ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}
"""Kernels of a CPU, with the kernels of a GPU that compute the same."""


@contextmanager
def without_data() -> Iterator[FakeTensorMode]:
    """Tensors without data, tiles as large as on a GPU, and GRUs as cuDNN has them: all members at once.

    Nothing looks for cycles meanwhile: that would take half of the time, and no tensor waits for it.
    """
    collects = gc.isenabled()
    gc.disable()
    tiles = [(table, table["cpu"]) for table in (cross_attention.BLOCK, similarity.VALUES, mining.WHOLE, mining.TILE)]
    for table, _ in tiles:
        table["cpu"] = table["cuda"]
    rnn._VF.gru = _gru  # type: ignore[attr-defined]
    try:
        yield FakeTensorMode(allow_non_fake_inputs=True)
    finally:
        if collects:
            gc.enable()
        del rnn._VF.gru  # type: ignore[attr-defined]
        for table, size in tiles:
            table["cpu"] = size


def emptied(module: nn.Module, mode: FakeTensorMode, trace: Trace) -> None:
    """Put weights and buffers without data in place of those of the module, and count them."""
    for part in module.modules():
        for name, weight in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(mode.from_tensor(weight.data), requires_grad=weight.requires_grad))
            trace.hold(getattr(part, name))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, mode.from_tensor(buffer))
            trace.hold(getattr(part, name))


class Unfilled(TorchDispatchMode):
    """Leaves large tensors as they are where an operation would change them in place: nobody reads first weights.

    Whether a large tensor has any value that is true is denied: `trunc_normal_` would draw anew until none has.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        large = args and isinstance(args[0], Tensor) and args[0].numel() > HOST
        if large and func.overloadpacket.__name__.endswith("_"):
            return args[0]
        if large and func is aten.any.default:
            return torch.tensor(False)
        return func(*args, **(kwargs or {}))
