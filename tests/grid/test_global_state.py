"""Every setting of torch that code of a plug-in may change: at its import or when it is called, it comes back."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from goalgrid import objectives
from goalgrid.grid import global_state, plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError

SETTERS = {
    "torch.set_default_dtype({})": ("torch.get_default_dtype()", "torch.float64"),
    "torch.set_default_device({})": ("torch.get_default_device()", "'meta'"),
    "torch.set_grad_enabled({})": ("torch.is_grad_enabled()", "False"),
    "torch.set_num_threads({})": ("torch.get_num_threads()", "torch.get_num_threads() + 1"),
    "torch.set_flush_denormal({})": ("(torch.tensor([1e-320], dtype=torch.float64) * 1 == 0).item()", "True"),
    "torch.set_deterministic_debug_mode({})": ("torch.get_deterministic_debug_mode()", "'warn'"),
    "torch.utils.deterministic.fill_uninitialized_memory = {}": (
        "torch.utils.deterministic.fill_uninitialized_memory", "False"
    ),
    "torch.set_float32_matmul_precision({})": ("torch.get_float32_matmul_precision()", "'medium'"),
    "torch.autograd.set_detect_anomaly({})": ("torch.is_anomaly_enabled()", "True"),
    "torch.set_autocast_enabled('cpu', {})": ("torch.is_autocast_enabled('cpu')", "True"),
    "torch.set_autocast_dtype('cpu', {})": ("torch.get_autocast_dtype('cpu')", "torch.float16"),
    "torch.backends.cuda.enable_flash_sdp({})": ("torch.backends.cuda.flash_sdp_enabled()", "False"),
    "torch.backends.cuda.enable_mem_efficient_sdp({})": ("torch.backends.cuda.mem_efficient_sdp_enabled()", "False"),
    "torch.backends.cuda.enable_math_sdp({})": ("torch.backends.cuda.math_sdp_enabled()", "False"),
    "torch.backends.cuda.enable_cudnn_sdp({})": ("torch.backends.cuda.cudnn_sdp_enabled()", "False"),
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp({})": (
        "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()", "True"
    ),
    "torch.backends.cuda.preferred_linalg_library({})": (
        "torch.backends.cuda.preferred_linalg_library()", "'cusolver'"
    ),
    "torch.backends.cuda.preferred_blas_library({})": ("torch.backends.cuda.preferred_blas_library()", "'cublaslt'"),
    "torch.backends.cuda.preferred_rocm_fa_library({})": (
        "torch.backends.cuda.preferred_rocm_fa_library()", "'aotriton'"
    ),
    "torch.backends.mha.set_fastpath_enabled({})": ("torch.backends.mha.get_fastpath_enabled()", "False"),
    "torch.backends.nnpack.set_flags({})": ("torch._C._get_nnpack_enabled()", "False"),
}  # fmt: skip
"""By a statement that writes: what reads, and another value than the usual one."""

WORDS = ("ieee", "tf32", "bf16", "none", "qnnpack", "fbgemm", "cudnn", "native", "greedy", "auto")
OF_MATMUL = (
    "allow_tf32", "fp32_precision", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)  # fmt: skip
"""Of `torch.backends.cuda.matmul`, which lists no attributes."""


def modules(of: ModuleType = torch.backends, path: str = "torch.backends") -> Iterator[tuple[str, ModuleType]]:
    """`torch.backends` and every public module in it, by path."""
    yield path, of
    for name in dir(of):
        inner = getattr(of, name, None)
        if isinstance(inner, ModuleType) and inner.__name__ == f"{path}.{name}" and not name.startswith("_"):
            yield from modules(inner, f"{path}.{name}")


def attributes() -> Iterator[str]:
    """Every public attribute of such a module that looks as if one could set it."""
    yield from (f"torch.backends.cuda.matmul.{name}" for name in OF_MATMUL)
    for path, module in modules():
        for name, value in vars(type(module)).items():
            if type(value).__name__ == "_FP32Precision":
                yield f"{path}.{name}.fp32_precision"
            elif hasattr(type(value), "__set__") and not name.startswith("_"):
                yield f"{path}.{name}"


def value_of(expression: str) -> Any:
    try:
        return eval(expression, {"torch": torch})
    except RuntimeError:
        return "refused: read by its old name, set by its new one"


def allowed(setter: str, value: str) -> bool:
    """Whether this build has what the setter chooses."""
    before = value_of(SETTERS[setter][0])
    try:
        exec(setter.format(value), {"torch": torch})
    except RuntimeError:
        return False
    exec(setter.format("before"), {"torch": torch, "before": None if "device" in setter else before})
    return True


def changed_by(statement: str, reads: str) -> bool:
    """Whether this build lets the statement change anything; it is undone."""
    before = value_of(reads)
    with suppress(Exception):
        exec(statement, {"torch": torch})
    after = value_of(reads)
    if after != before:
        undone = statement.rpartition("=")[0] + f"= {before!r}"
        exec(undone, {"torch": torch})
    return bool(after != before)


def settable() -> list[tuple[str, str]]:
    """(statement, what reads it) of every switch that this build lets one set."""
    switches = [(setter.format(value), reads) for setter, (reads, value) in SETTERS.items() if allowed(setter, value)]
    for name in dict.fromkeys(attributes()):
        before = value_of(name)
        values = [not before] if isinstance(before, bool) else [True, 1, *WORDS]
        statements = (f"{name} = {value!r}" for value in values)
        if statement := next((statement for statement in statements if changed_by(statement, name)), None):
            switches.append((statement, name))
    return switches


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    global_state.in_calls.clear()
    global_state.at_import.clear()


def plugin(folder: Path, name: str, at_import: str = "pass", in_call: str = "pass") -> Catalog:
    path = folder / f"{name}.py"
    source = (
        f"import torch, goalgrid, random\nimport numpy as np\n{at_import}\n\n\n@goalgrid.objective('{name}')\n"
        f"def {name}(t):\n    value = torch.relu(t.s_neg - t.s_pos + 0.2)\n    {in_call}\n    return value\n"
    )
    return Catalog.of([plugins.Use(path=str(path), source=source)])


def call(name: str, known: Catalog) -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = (torch.randn(4, 8, generator=generator, requires_grad=True) for _ in range(2))
    objectives.build(name, known.objectives)(image, text).backward()
    assert image.grad is not None


def test_each_switch_that_a_loss_sets_at_its_import_or_its_call_is_as_before_and_named(tmp_path: Path) -> None:
    switches = settable()
    names = [reads for _, reads in switches]
    assert {"torch.backends.mkldnn.enabled", "torch.backends.cudnn.benchmark", "torch.is_grad_enabled()"} <= {*names}
    assert len(switches) >= 35
    before = [value_of(name) for name in names]
    for number, (statement, reads) in enumerate(switches):
        known = plugin(tmp_path, f"loss_{number}", at_import=statement, in_call=statement)
        assert [value_of(name) for name in names] == before, statement
        call(f"loss_{number}", known)
        assert [value_of(name) for name in names] == before, statement
        setting = reads if statement.startswith(reads) else statement.partition("(")[0]
        setting = setting.replace("set_deterministic_debug_mode", "use_deterministic_algorithms")
        for notes in (global_state.at_import, global_state.in_calls):
            noted = notes[known.uses[0].path]
            assert [name for name in noted if name.startswith(setting)], f"{statement}: {noted}"


OTHERS = {"torch.backends.python_native.enable_operations", "torch.backends.python_native.enable_dispatch_keys"}
"""Setters of single operations, where libraries of kernels are installed that this build lacks."""


def test_no_module_of_torch_has_a_setter_that_is_not_tried_here() -> None:
    tried = {statement.partition("(")[0] for statement in SETTERS}
    begins = ("set_", "enable_", "allow_", "preferred_")
    setters = {f"{path}.{name}" for path, module in modules() for name in dir(module) if name.startswith(begins)}
    of_attributes = {f"{path}.set_flags" for path, _ in modules()}  # several attributes at once
    assert {name for name in setters - tried - of_attributes - OTHERS if callable(value_of(name))} == set()


def test_a_loss_that_raises_leaves_torch_as_it_was(tmp_path: Path) -> None:
    known = plugin(tmp_path, "raising", in_call="torch.set_grad_enabled(False); raise ValueError('mine')")
    with pytest.raises(ValueError, match="mine"):
        call("raising", known)
    assert torch.is_grad_enabled()
    plugin(tmp_path, "first", at_import="torch.set_default_dtype(torch.float64)")
    assert torch.get_default_dtype() is torch.float32
    with pytest.raises(UserError, match="does not import"):
        plugin(tmp_path, "failing", at_import="torch.set_default_dtype(torch.float64); 1 / 0")
    assert torch.get_default_dtype() is torch.float32


def test_random_numbers_go_on_after_a_file_that_seeds_them_at_import(tmp_path: Path) -> None:
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(7)
    expected = torch.rand(1).item(), np.random.rand(), random.random()
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(7)
    plugin(tmp_path, "seeding", at_import="torch.manual_seed(0); np.random.seed(0); random.seed(0)")
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected
