"""Private names of torch needed for GPU estimates; if one is missing, only the estimates fail, not training.

If torch lacks `_has_foreach_support` or `_group_tensors_by_device_and_dtype`, which `replaced` then sets without
effect, gradient clipping is counted tensor by tensor.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils import clip_grad

from goalgrid.grid.errors import UserError

try:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils.flop_counter import flop_registry as flop_registry

    dispatch_modes = _get_current_dispatch_mode_stack
    disabled_torch_function = torch._C._disabled_torch_function_impl
    DisableTorchDispatch = torch._C._DisableTorchDispatch
    wrapper_subclass = torch.Tensor._make_wrapper_subclass
    tensor_subclass = torch.Tensor._make_subclass
    gru = torch._VF.gru
except (AttributeError, ImportError) as error:
    raise UserError(
        f"GPU estimates are not possible with torch {torch.__version__}: {error}. "
        "Leave out --device, or install an earlier torch. Training is not affected."
    ) from error


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes of a module inside the block, and restore the previous ones."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            delattr(owner, name)
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def replaced_kernels(gru: Callable[..., Any], grouped: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, run GRUs by `gru`, and clip gradients jointly in the groups returned by `grouped`."""
    with (
        replaced(torch._VF, gru=gru),
        replaced(clip_grad, _has_foreach_support=lambda *_: True),
        replaced(torch._C, _group_tensors_by_device_and_dtype=grouped),
    ):
        yield
