"""What of a pretrained network learns: its last blocks, or the map to the joint space of two towers alone.

A block is a member of the outermost list of modules of one class that holds most weights: a layer of a transformer, a
stage of Swin or ConvNeXt. What follows the blocks, final norms and projections, learns with them; embeddings do not.
`last k` counts blocks, while open_clip counts the projection first.
"""

from torch import nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.pretrained_networks import LAST

PROJECTIONS = ("projection", "sentence", "head")
"""Members of a network that map its states to the vector that it compares."""


def hold(network: nn.Module, trains: str | None, setting: str) -> None:
    """Have only a part of a network learn; None: all of it, as it is.

    Args:
        trains: as `model.text.trains` says.
        setting: its name, for messages.

    Raises:
        UserError: the network has no such part, or fewer blocks.
    """
    if trains is None:
        return
    names = _projection(network) if trains == "projection" else _last(network, int(trains.removeprefix(LAST)), setting)
    learning = [weight for name, weight in network.named_parameters() if name.startswith(tuple(names))]
    if not learning:
        raise UserError(
            f"{setting} = {trains!r}: this network has no layer that maps its states to a vector of its own. Set "
            f"output = projected, or {setting} to 'last 1'."
        )
    network.requires_grad_(False)
    for weight in learning:
        weight.requires_grad_(True)


def calm(network: nn.Module) -> None:
    """Set the modules to evaluation that hold weights of which none learns: a frozen block draws no dropout."""
    weights = list(network.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        network.eval()
        return
    for module in network.children():
        calm(module)


def blocks(network: nn.Module) -> tuple[str, nn.ModuleList] | None:
    """Return the list of a network's blocks and its name; None: it has none."""
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
    """Prefixes of the weights of the last blocks and of what follows them."""
    listed = blocks(network)
    if listed is None or len(listed[1]) < count:
        has = "no list of blocks" if listed is None else f"{len(listed[1])} blocks"
        raise UserError(f"{setting} = 'last {count}': this network has {has}. Lower it, or set {setting} = all.")
    path, modules = listed
    names = [name for name, _ in network.named_parameters()]
    end = max(place for place, name in enumerate(names) if name.startswith(f"{path}."))
    tables = tuple(f"{name}." for name, module in network.named_modules() if isinstance(module, nn.Embedding))
    after = [name for name in names[end + 1 :] if not name.startswith(tables)]
    return [*(f"{path}.{place}." for place in range(len(modules) - count, len(modules))), *after]
