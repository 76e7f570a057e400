"""Parts of torch that no version of it promises. Without one there are no estimates for a GPU; trials train as ever."""

import torch

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
except (AttributeError, ImportError) as error:
    raise UserError(
        f"sizes of models, and estimates for a GPU, are not possible with torch {torch.__version__}: {error}. "
        "Leave them out, or install an earlier torch. Training needs none of it."
    ) from error
