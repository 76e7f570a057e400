"""Partial fine-tuning of a pretrained network: only its last blocks, or only the projection to the joint space.

Blocks are the members of the outermost module list, with modules of one class, that has most parameters: layers of a
transformer, or stages of Swin or ConvNeXt. Modules after the blocks (final norms, projections) are trained with them;
embeddings are not. `last k` counts blocks only, whereas open_clip counts the projection first.
"""

from torch import nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.pretrained_networks import LAST

PROJECTIONS = ("projection", "sentence", "head")
"""Names of modules that map a network's hidden states to its embedding."""


def hold(network: nn.Module, trains: str | None, setting: str) -> None:
    """Freeze a network except for a part; None leaves it unchanged.

    Args:
        trains: the part to train, a value of `model.text.trains`.
        setting: name of the setting, for messages.

    Raises:
        UserError: the network has no such part, or too few blocks.
    """
    if trains is None:
        return
    names = _projection(network) if trains == "projection" else _last(network, int(trains.removeprefix(LAST)), setting)
    learning = [weight for name, weight in network.named_parameters() if name.startswith(tuple(names))]
    if not learning:
        raise UserError(
            f"{setting} = {trains!r}: this network has no layer that maps its hidden states to an embedding. Set "
            f"output = projected, or {setting} to 'last 1'."
        )
    network.requires_grad_(False)
    for weight in learning:
        weight.requires_grad_(True)


def calm(network: nn.Module) -> None:
    """Switch modules whose weights are all frozen to evaluation mode, so that they apply no dropout."""
    weights = list(network.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        network.eval()
        return
    for module in network.children():
        calm(module)


def blocks(network: nn.Module) -> tuple[str, nn.ModuleList] | None:
    """Return the name of a network's list of blocks, and the list; None if it has none."""
    lists = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 1 and len({type(one) for one in module}) == 1
    }
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    if not outer:
        return None
    largest = max(outer, key=lambda name: sum(weight.numel() for weight in lists[name].parameters()))
    return largest, lists[largest]


def _projection(network: nn.Module) -> list[str]:
    return [f"{name}." for name in PROJECTIONS if hasattr(network, name)]


def _last(network: nn.Module, count: int, setting: str) -> list[str]:
    """Return the name prefixes of the weights of the last blocks and of the modules after them."""
    listed = blocks(network)
    if listed is None or len(listed[1]) < count:
        has = "no list of blocks" if listed is None else f"only {len(listed[1])} blocks"
        raise UserError(f"{setting} = 'last {count}': this network has {has}. Lower it, or set {setting} = all.")
    path, modules = listed
    names = [name for name, _ in network.named_parameters()]
    end = max(place for place, name in enumerate(names) if name.startswith(f"{path}."))
    tables = tuple(f"{name}." for name, module in network.named_modules() if isinstance(module, nn.Embedding))
    after = [name for name in names[end + 1 :] if not name.startswith(tables)]
    return [*(f"{path}.{place}." for place in range(len(modules) - count, len(modules))), *after]
