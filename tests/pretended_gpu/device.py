"""A GPU that is not there: tensors that say cuda:0 and compute real values on the CPU.

Every operation is checked for mixed devices as CUDA would, and whatever makes the host wait for the device, or copies
from pageable memory, is counted by the line of the program that does it. Kernels, their number formats, streams, NCCL,
speed and real memory cannot be shown so. `loading.load` comes first, then torch.
"""

import traceback
import types
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

ROOT = Path(__file__).parents[2]
CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
MEMORY = 80 * 2**30
aten = torch.ops.aten

waits = Counter[str]()
"""What made the host wait for the device, with the line. After it the device has done all that it was given before."""
pageable = Counter[str]()
"""Copies from memory that is not pinned, with the line."""

GENERATOR = torch.Generator()
"""The GPU's own random numbers."""
RANDOM = ("rand", "bernoulli", "dropout", "normal", "uniform", "random")

COPIES = {aten.copy_.default, aten._to_copy.default}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
WAITING = {
    aten._local_scalar_dense.default, aten.nonzero.default, aten._unique2.default, aten.unique_consecutive.default,
    aten.masked_select.default, aten.equal.default, aten.unique_dim.default, aten.bincount.default,
}  # fmt: skip
"""Operations whose result, or its size, the host has to know."""


def here() -> str:
    """The line of the program, and the line that called it."""
    frames = [
        frame
        for frame in traceback.extract_stack()
        if frame.filename.startswith(f"{ROOT}/") and not frame.filename.startswith((f"{ROOT}/tests", f"{ROOT}/.venv"))
    ]
    return " < ".join(f"{frame.filename.removeprefix(f'{ROOT}/')}:{frame.lineno}" for frame in frames[:-3:-1])


class Memory:
    """Bytes of the storages that live, in blocks of 512 as CUDA's allocator gives them."""

    live = peak = 0
    _seen = set[int]()

    @classmethod
    def take(cls, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        if key not in cls._seen:
            cls._seen.add(key)
            cls.live += size
            cls.peak = max(cls.peak, cls.live)
            weakref.finalize(storage, cls._free, key, size)

    @classmethod
    def _free(cls, key: int, size: int) -> None:
        cls._seen.discard(key)
        cls.live -= size

    @classmethod
    def forget_peak(cls) -> None:
        cls.peak = cls.live


class Cuda(Tensor):
    """A tensor on the pretended GPU."""

    __slots__ = ["on_cpu"]
    __torch_function__ = torch._C._disabled_torch_function_impl
    on_cpu: Tensor

    @staticmethod
    def __new__(cls: type, on_cpu: Tensor) -> "Cuda":
        assert type(on_cpu) is Tensor, type(on_cpu)
        Memory.take(on_cpu)
        made = Tensor._make_wrapper_subclass(
            cls, on_cpu.size(), strides=on_cpu.stride(), storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype, layout=on_cpu.layout, device=CUDA, requires_grad=False,
        )  # fmt: skip
        made.on_cpu = on_cpu.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def __repr__(self) -> str:
        return f"Cuda({self.on_cpu})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copy: Tensor = Cuda(self.on_cpu.clone(memory_format=torch.preserve_format))
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(copy) if is_parameter else copy
            memo[id(self)].requires_grad_(self.requires_grad)
        return memo[id(self)]

    def tolist(self) -> Any:
        waits[f"tolist {here()}"] += 1
        return self.on_cpu.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    __array__ = numpy

    def pin_memory(self, *_: Any) -> Tensor:
        raise RuntimeError("cannot pin a tensor of the GPU")


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation of the pretended GPU, computed on the CPU."""
    name, flat = func._schema.name, tree_flatten((args, kwargs))[0]
    there = [value for value in flat if isinstance(value, Cuda)]
    in_host = [value for value in flat if isinstance(value, Tensor) and not isinstance(value, Cuda)]
    device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
    to_gpu = device is not None and device.type == "cuda"
    _count(func, args, kwargs, there, in_host, device)
    plain = lambda value: value.on_cpu if isinstance(value, Cuda) else value  # noqa: E731
    cpu_args, cpu_kwargs = tree_map(plain, args), tree_map(plain, kwargs)
    if to_gpu:
        cpu_kwargs = {**cpu_kwargs, "device": CPU}
    if cpu_kwargs.get("pin_memory"):
        cpu_kwargs.pop("pin_memory")
    if func is aten._to_copy.default:
        cpu_kwargs["non_blocking"] = False
    result_there = to_gpu if func is aten._to_copy.default and device is not None else bool(there) or to_gpu
    with drawing(result_there and any(word in name for word in RANDOM)):
        result = _GRU.get(func, func)(*cpu_args, **cpu_kwargs)
    if func is aten._local_scalar_dense.default or not result_there:
        return result
    if func is aten.copy_.default and not isinstance(args[0], Cuda):
        return args[0]
    in_place = (func._schema.is_mutable and name.endswith("_")) or name.startswith("aten::_fused_adam")
    if in_place and args and isinstance(args[0], Cuda):
        return None if result is None else args[0]
    result = tree_map(lambda value: Cuda(value) if type(value) is Tensor else value, result)
    if to_gpu or func is aten._to_copy.default:
        return result
    return return_and_correct_aliasing(func, args, kwargs, result)


def _count(
    func: Any, args: Any, kwargs: Any, there: list[Cuda], in_host: list[Tensor], device: torch.device | None
) -> None:
    """Raise where CUDA would for tensors of both devices; count waits and pageable copies."""
    name = func._schema.name
    large = [value for value in in_host if value.ndim]
    mixed = there and (large or (in_host and func in (aten.stack.default, aten.cat.default)))
    if mixed and func not in COPIES | INDEXING:
        shapes = [tuple(value.shape) for value in in_host]
        raise RuntimeError(f"tensors on cuda:0 and on the CPU, {shapes}, in {name} at {here()}")
    if mixed and func in INDEXING:
        waits[f"{name} by an index in host memory {here()}"] += 1
    if there and func in WAITING:
        waits[f"{name} {here()}"] += 1
    if there and func in INDEXING and any(isinstance(of, Tensor) and of.dtype == torch.bool for of in args[1]):
        waits[f"{name} by a mask {here()}"] += 1
    to_host = func is aten._to_copy.default and device is not None and device.type == "cpu"
    if there and (to_host or (func is aten.copy_.default and not isinstance(args[0], Cuda) and not _pinned(args[0]))):
        waits[f"copy to the host {here()}"] += 1
    to_gpu = func is aten._to_copy.default and device is not None and device.type == "cuda"
    into_gpu = func is aten.copy_.default and isinstance(args[0], Cuda)
    if in_host and (to_gpu or into_gpu):
        if not (kwargs.get("non_blocking") or (into_gpu and args[2:3] == (True,))):
            waits[f"copy to the device {here()}"] += 1
        if not _pinned(in_host[0]):
            pageable[f"{tuple(in_host[0].shape)} {here()}"] += 1


def _pinned(tensor: Tensor) -> bool:
    return getattr(tensor, "pinned", False)


@contextmanager
def drawing(random: bool) -> Iterator[None]:
    """While active, random numbers come from the GPU's generator."""
    if not random:
        yield
        return
    held = torch.default_generator.get_state()
    torch.default_generator.set_state(GENERATOR.get_state())
    yield
    GENERATOR.set_state(torch.default_generator.get_state())
    torch.default_generator.set_state(held)


def _cell(of_input: Tensor, of_hidden: Tensor, hidden: Tensor, b: Tensor | None = None, c: Tensor | None = None) -> Any:
    """A GRU's cell, which a CPU has fused only as a whole layer."""
    of_input, of_hidden = (of_input if b is None else of_input + b), (of_hidden if c is None else of_hidden + c)
    (ir, iz, i_new), (hr, hz, h_new) = of_input.chunk(3, 1), of_hidden.chunk(3, 1)
    reset, update = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    new = torch.tanh(i_new + reset * h_new)
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden, h_new], 1)


def _cell_backward(gradient: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    reset, update, new, hidden, h_new = workspace.chunk(5, 1)
    of_new = gradient * (1 - update) * (1 - new * new)
    of_update = gradient * (hidden - new) * update * (1 - update)
    of_reset = of_new * h_new * reset * (1 - reset)
    to_input = torch.cat([of_reset, of_update, of_new], 1)
    to_hidden = torch.cat([of_reset, of_update, of_new * reset], 1)
    biases = (to_input.sum(0), to_hidden.sum(0)) if has_bias else (None, None)
    return to_input, to_hidden, gradient * update, *biases


_GRU = {aten._thnn_fused_gru_cell.default: _cell, aten._thnn_fused_gru_cell_backward.default: _cell_backward}


class Present(TorchDispatchMode):
    """While active, what is made on "cuda" is made on the pretended GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        flat, _ = tree_flatten((args, kwargs))
        if (device is not None and torch.device(device).type == "cuda") or any(isinstance(t, Cuda) for t in flat):
            return run(func, args, kwargs)
        return func(*args, **kwargs)


class Event:
    """Waiting for what was recorded is waiting for the device, unless the host has waited since."""

    def record(self, *_: Any) -> None:
        self._waits = waits.total()

    def synchronize(self) -> None:
        if waits.total() == self._waits:
            waits[f"event {here()}"] += 1


def install() -> None:
    """Have torch say that there is a GPU."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    made, empty, save, load = torch.tensor, torch.empty, torch.save, torch.load

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        found = made(data, **options)
        return found.to(device) if device is not None and torch.device(device).type == "cuda" else found

    def empty_pinned(*shape: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        found = empty(*shape, **options)
        found.pinned = pin_memory  # type: ignore[attr-defined]
        return found

    def pinned(self: Tensor, *_: Any) -> Tensor:
        copy = self.clone()
        copy.pinned = True  # type: ignore[attr-defined]
        return copy

    def loaded(file: Any, map_location: Any = None, **options: Any) -> Any:
        found = load(file, map_location="cpu", **options)
        on_gpu = torch.device(map_location or "cpu").type == "cuda"
        return _each(found, lambda value: value.to(CUDA)) if on_gpu else found

    torch.tensor, torch.empty, torch.load = tensor, empty_pinned, loaded
    torch.save = lambda content, file: save(_each(content, _in_host), file)
    torch.inference_mode = lambda mode=True: torch.no_grad()  # a subclass made in it has no version counter
    Tensor.pin_memory = pinned
    torch.cuda.Event = Event
    for name, value in _CUDA.items():
        setattr(torch.cuda, name, value)


def _each(content: Any, change: Any) -> Any:
    if isinstance(content, Tensor):
        return change(content)
    if hasattr(content, "items"):
        return {key: _each(value, change) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(_each(value, change) for value in content)
    return content


def _in_host(value: Tensor) -> Tensor:
    return value.on_cpu.clone() if isinstance(value, Cuda) else value


_CUDA: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "is_initialized": lambda: True,
    "_lazy_init": lambda: None,
    "is_bf16_supported": lambda *_, **__: True,
    "manual_seed": GENERATOR.manual_seed,
    "manual_seed_all": GENERATOR.manual_seed,
    "get_rng_state": lambda *_: GENERATOR.get_state(),
    "set_rng_state": lambda state, *_: GENERATOR.set_state(state),
    "empty_cache": lambda: None,
    "synchronize": lambda *_: None,
    "mem_get_info": lambda *_: (MEMORY - Memory.live - 2**30, MEMORY),
    "memory_reserved": lambda *_: Memory.live,
    "max_memory_reserved": lambda *_: Memory.peak,
    "reset_peak_memory_stats": lambda *_: Memory.forget_peak(),
    "set_per_process_memory_fraction": lambda *_: None,
    "set_device": lambda *_: None,
    "get_device_name": lambda *_: "Pretended",
    "get_device_properties": lambda *_: types.SimpleNamespace(total_memory=MEMORY, name="Pretended", major=9, minor=0),
}
