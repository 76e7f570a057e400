"""Parts of torch that no version of it promises. Without one there are no estimates for a GPU; trials train as ever."""

import torch

from goalgrid.grid.errors import UserError

try:
    from torch._C import _disabled_torch_function_impl as disabled_torch_function
    from torch._C import _DisableTorchDispatch as DisableTorchDispatch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes
    from torch.utils._pytree import tree_leaves, tree_map
    from torch.utils.flop_counter import flop_registry

    wrapper_subclass = torch.Tensor._make_wrapper_subclass
    tensor_subclass = torch.Tensor._make_subclass
except (AttributeError, ImportError) as error:
    raise UserError(
        f"sizes of models, and estimates for a GPU, are not possible with torch {torch.__version__}: {error}. "
        "Leave them out, or install an earlier torch. Training needs none of it."
    ) from error

__all__ = [
    "DisableTorchDispatch", "TorchDispatchMode", "disabled_torch_function", "dispatch_modes", "flop_registry",
    "tensor_subclass", "tree_leaves", "tree_map", "wrapper_subclass",
]  # fmt: skip
