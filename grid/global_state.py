"""Restore torch's global settings after plug-in code, and record which file changed them.

One process trains many trials, so a flag set by the loss of one trial would change the results of the next.
"""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from operator import attrgetter
from typing import Any

from goalgrid.grid.settings.user_modules import file_of

Switch = tuple[Callable[[], Any], Callable[[Any], object]]
"""The reader and the writer of a setting."""

ATTRIBUTES = (
    "utils.deterministic.fill_uninitialized_memory",
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.benchmark_limit",
    "backends.cudnn.deterministic",
    "backends.cudnn.depthwise_kernel",
    "backends.miopen.immediate",
    "backends.mkldnn.allow_tf32",
    "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic",
    "backends.opt_einsum.enabled",
    "backends.opt_einsum.strategy",
    "backends.quantized.engine",
    "backends.fp32_precision",
    "backends.cuda.matmul.fp32_precision",
    "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
    "backends.mkldnn.fp32_precision",
    "backends.mkldnn.matmul.fp32_precision",
    "backends.mkldnn.conv.fp32_precision",
    "backends.mkldnn.rnn.fp32_precision",
)
"""Settings that are attributes of torch. Writing `allow_tf32` changes `fp32_precision`, so the latter come last."""

FUNCTIONS = {
    "set_default_dtype": "get_default_dtype",
    "set_grad_enabled": "is_grad_enabled",
    "set_num_threads": "get_num_threads",
    "set_float32_matmul_precision": "get_float32_matmul_precision",
    "backends.cuda.enable_flash_sdp": "backends.cuda.flash_sdp_enabled",
    "backends.cuda.enable_mem_efficient_sdp": "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.enable_math_sdp": "backends.cuda.math_sdp_enabled",
    "backends.cuda.enable_cudnn_sdp": "backends.cuda.cudnn_sdp_enabled",
    "backends.cuda.allow_fp16_bf16_reduction_math_sdp": "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
    "backends.cuda.preferred_linalg_library": "backends.cuda.preferred_linalg_library",
    "backends.cuda.preferred_blas_library": "backends.cuda.preferred_blas_library",
    "backends.cuda.preferred_rocm_fa_library": "backends.cuda.preferred_rocm_fa_library",
    "backends.mha.set_fastpath_enabled": "backends.mha.get_fastpath_enabled",
    "backends.nnpack.set_flags": "_C._get_nnpack_enabled",  # private; without it, nobody can read the flag
}
"""Settings with a setter function, and its getter."""

SMALLEST = 5e-324
UNREADABLE = "unreadable"
"""Value of a setting that cannot be read: torch refuses to read a precision by its old name after a new one was set."""

Changes = dict[str, dict[str, str]]
"""The settings changed by each plug-in file, each as `before -> after`."""

at_import = Changes()
in_calls = Changes()
"""Changes since the last `clear()`, which each trial calls at its start."""


def _torch() -> Any:
    """Torch if this process has imported it, else None; otherwise there are no settings to restore."""
    return sys.modules.get("torch")


@cache
def _switches() -> dict[str, Switch]:
    """All settings that the installed version of torch has, by name."""
    torch = _torch()
    switches: dict[str, Switch] = {}
    for writer, reader in FUNCTIONS.items():
        with suppress(AttributeError):
            switches[f"torch.{writer}"] = attrgetter(reader)(torch), attrgetter(writer)(torch)
    switches["torch.use_deterministic_algorithms"] = torch.get_deterministic_debug_mode, _set_determinism
    switches["torch.set_default_device"] = torch.get_default_device, _set_device
    switches["torch.set_flush_denormal"] = lambda: SMALLEST * 1.0 == 0.0, torch.set_flush_denormal
    switches["torch.autograd.set_detect_anomaly"] = torch.is_anomaly_enabled, torch.set_anomaly_enabled
    for kind in ("cpu", "cuda"):
        for what, reader in (("enabled", torch.is_autocast_enabled), ("dtype", torch.get_autocast_dtype)):
            write = getattr(torch, f"set_autocast_{what}")
            switches[f"torch.set_autocast_{what}({kind!r})"] = _of(reader, kind), _of(write, kind)
    for path in ATTRIBUTES:
        owner, _, name = path.rpartition(".")
        with suppress(AttributeError):
            holder = attrgetter(owner)(torch)
            getattr(holder, name)
            switches[f"torch.{path}"] = _attribute(holder, name)
    return switches


def _of(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    return lambda *value: function(kind, *value)


def _attribute(holder: Any, name: str) -> Switch:
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


def _set_determinism(mode: int) -> None:
    """Set determinism (0: off, 1: warnings, 2: on), including compiled code if the compiler is loaded."""
    if "torch._inductor" in sys.modules:  # which the second function would load, for seconds
        _torch().use_deterministic_algorithms(mode > 0, warn_only=mode == 1)
    else:
        _torch().set_deterministic_debug_mode(mode)


def _set_device(device: Any) -> None:
    _torch().set_default_device(None if device.type == "cpu" else device)  # a device that was set costs time


def _read(switch: Switch) -> Any:
    try:
        return switch[0]()
    except RuntimeError:
        return UNREADABLE


def _present() -> dict[str, Any]:
    return {name: _read(switch) for name, switch in _switches().items()}


def _restore(before: dict[str, Any]) -> dict[str, str]:
    """Restore changed settings, repeatedly because they affect one another; returns `before -> after` by setting."""
    changed: dict[str, str] = {}
    for _ in range(3):
        differing = {name: now for name, now in _present().items() if now != before[name]}
        for name, now in differing.items():
            changed.setdefault(name, f"{before[name]} -> {now}")
            if (switch := _switches()[name]) and _read(switch) != before[name]:
                switch[1](before[name])
        if not differing:
            break
    return changed


class Contained:
    """Context manager around plug-in code: restores torch's settings afterwards, and records the changed ones.

    It does nothing inside a compiled network, because the compiler cannot trace it.
    """

    def __init__(self, file: str, notes: Changes = in_calls) -> None:
        self._file, self._notes = file, notes
        self._before: dict[str, Any] | None = None

    def __enter__(self) -> None:
        torch = _torch()
        self._before = None if torch is None or torch.compiler.is_compiling() else _present()

    def __exit__(self, *_: object) -> None:
        if self._before is not None and (changed := _restore(self._before)):
            self._notes.setdefault(self._file, {}).update(changed)


def contained(defined: Any) -> Contained:
    """Return a context manager that restores torch's settings after code of this user-defined function or class."""
    return Contained(file_of(defined))


def contain_calls(network: Any, defined: Any) -> None:
    """Restore torch's settings after each call of a user-defined module."""
    running = list[Contained]()

    def enter(*_: object) -> None:
        running.append(contained(defined))
        running[-1].__enter__()

    network.register_forward_pre_hook(enter)
    network.register_forward_hook(lambda *_: running.pop().__exit__(), always_call=True)


@contextmanager
def restored() -> Iterator[None]:
    """Restore torch's settings, and the random states of torch, NumPy and Python, after the block."""
    settings, states = _present() if _torch() else None, _random_states()
    try:
        yield
    finally:
        if settings is not None:
            _restore(settings)
        for write, state in states:
            write(state)


def _random_states() -> list[tuple[Callable[[Any], object], Any]]:
    """The state of each random generator of this process, with the function that restores it."""
    states: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    if numpy := sys.modules.get("numpy"):
        states.append((numpy.random.set_state, numpy.random.get_state()))
    if torch := _torch():
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return states
