"""Parts of torch that no version of it promises. Without one there are no estimates for a GPU; trials train as ever."""

import torch

from goalgrid.grid.errors import UserError

try:
    from torch._C import _DisableTorchDispatch as DisableTorchDispatch
    from torch._subclasses.fake_tensor import (
        FakeTensor,
        FakeTensorMode,
        in_kernel_invocation_manager,
        unset_fake_temporarily,
    )
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes
    from torch.utils._pytree import tree_leaves, tree_map
except ImportError as error:
    raise UserError(
        f"sizes of models, and estimates for a GPU, are not possible with torch {torch.__version__}: {error}. "
        "Leave them out, or install an earlier torch. Training needs none of it."
    ) from error

__all__ = [
    "DisableTorchDispatch", "FakeTensor", "FakeTensorMode", "TorchDispatchMode", "dispatch_modes",
    "in_kernel_invocation_manager", "tree_leaves", "tree_map", "unset_fake_temporarily",
]  # fmt: skip
