"""Pretrained networks of `transformers`: locate their weights, hash them, and load the networks.

The folder of the weights is given by the user, or else taken from the Hugging Face cache or downloaded from the hub.
`transformers` is imported only here, on first use.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import UserError, check_fetched, in_short, parsed_json, regular_bytes, sha256_of
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.store.files import read_json

Places = Mapping[str, Path]
"""Folders of weights, by name."""

OWN_POOLERS = ("beit", "data2vec-vision")
"""Model types whose pooler belongs to the published embedding: by default, the layer norm of the mean patch."""
_PROJECTIONS = {"vision_model": "visual_projection", "text_model": "text_projection"}
"""For each tower of CLIP, the name of the projection to the joint space."""
ENCODERS = ("t5", "mt5", "umt5")
"""Encoder-decoder model types whose encoder is used alone."""
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_OF_SENTENCEPIECE = ("SiglipTokenizer",)
"""Tokenizers that need the package sentencepiece to read spiece.model, even if there is a tokenizer.json."""
_SLOW = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "merges.txt", "vocab.txt")
_AGAIN = "Download these files again, or write them with save_pretrained()."
_NOT_RUN = {
    "trust_remote_code": "they need custom code, which is not run. Use a network that is part of transformers.",
    "Weights only load failed": f"a file contains code in addition to weights, which is not run. {_AGAIN}",
}
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


def locate(settings: Pretrained, places: Places) -> Path | None:
    """Return the folder or file of these weights, None for random weights; raises UserError if they are not found."""
    name = settings.weights
    if name == RANDOM:
        return None
    if name not in places:
        return _not_at_hand(name) if settings.of_file else _from_hub(name)
    folder = places[name].expanduser()
    if settings.of_file:
        return folder if folder.is_file() else _not_at_hand(name, folder)
    if folder.is_file():
        raise UserError(
            f"weights {name!r}: {folder} is a file, but transformers reads a folder with a config.json. To convert "
            f"BUTD's ResNet-101 to such a folder: goalgrid data backbone {folder} DIR."
        )
    if not (folder / "config.json").exists():
        raise UserError(f"no config.json in {folder}, the folder of weights {name!r}; save_pretrained() writes one.")
    return folder


def folder_of(settings: Pretrained, places: Places) -> Path:
    """Return the folder of weights that are not random; raises UserError if they are not found."""
    folder = locate(settings, places)
    assert folder is not None, "random weights have no folder"
    return folder


def config_of(settings: Pretrained, places: Places) -> Mapping[str, Any]:
    """Return the config.json of these weights, or the architecture of a randomly initialised network."""
    folder = locate(settings, places)
    return settings.architecture if folder is None else read_json(folder / "config.json")


def fingerprint(settings: Pretrained, places: Places) -> str:
    """Return the hash of the files a network is loaded from, or of the architecture if it is randomly initialised."""
    folder = locate(settings, places)
    return digest(settings.architecture)[:16] if folder is None else _content(folder)


def network(settings: Pretrained, places: Places, *, part: str, projected: bool = False, **sizes: int) -> nn.Module:
    """Load a network with its weights; of a two-tower model, only the tower called `part`.

    Args:
        projected: keep the tower's projection to the joint space, as module `projection`.
        sizes: sizes of a randomly initialised network that override its architecture, e.g. `vocab_size`.

    Raises:
        UserError: the weights cannot be found or read, or the architecture is unknown to `transformers`.
    """
    if not settings.built_here:
        optional_dependencies.require(f"weights {settings.weights!r}", "transformers")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    folder = locate(settings, places)
    try:
        whole = _random(settings, sizes) if folder is None else _loaded(folder, part)
    except Exception as error:  # readers of damaged files raise many kinds of errors
        if folder is None:
            raise UserError(f"architecture {settings.architecture} cannot be loaded: {in_short(error)}") from error
        why = next((why for words, why in _NOT_RUN.items() if words in str(error)), f"{in_short(error)}. {_AGAIN}")
        raise UserError(f"weights {settings.weights!r} cannot be loaded from {folder}: {why}") from error
    tower: nn.Module = getattr(whole, part, whole)
    if projected and hasattr(whole, _PROJECTIONS[part]):
        tower.add_module("projection", getattr(whole, _PROJECTIONS[part]))
    _without_unused(tower)
    if getattr(getattr(tower, "config", None), "pools_without_margin", False):  # BUTD's ResNet, converted
        tower.embedder.pooler = nn.MaxPool2d(3, 2, ceil_mode=True)  # type: ignore[union-attr]
    if part == "text_model":
        _with_masks(tower)
    return tower.float()


def head(kind: str, width: int, dim: int) -> nn.Module:
    """Build a linear map from `width` to `dim`; for kind "none" the identity, or a UserError if the widths differ."""
    if kind != "none":
        return nn.Linear(width, dim)
    if width != dim:
        raise UserError(
            f"head = none uses the vectors of width {width} as embeddings, but model.dim is {dim}: set it to {width}."
        )
    return nn.Identity()


def tokenizer(settings: Pretrained, places: Places) -> Any:
    optional_dependencies.require(f"the tokenizer of weights {settings.weights!r}", "transformers")
    import transformers

    folder = folder_of(settings, places)
    if not any((folder / name).exists() for name in _TOKENIZERS):
        raise UserError(
            f"weights {settings.weights!r} have no tokenizer: {folder} has none of {', '.join(_TOKENIZERS)}."
        )
    if read_json(folder / "tokenizer_config.json").get("tokenizer_class") in _OF_SENTENCEPIECE:
        optional_dependencies.require(f"the tokenizer of weights {settings.weights!r}", "sentencepiece")
    try:
        _check_fetched(folder)
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # readers of damaged files raise many kinds of errors
        raise UserError(
            f"the tokenizer of weights {settings.weights!r} cannot be loaded from {folder}: {in_short(error)}. {_AGAIN}"
        ) from error


def _loaded(folder: Path, part: str) -> nn.Module:
    """Load the network in this folder, without running code from the folder."""
    import transformers

    _check_fetched(folder)
    kind = str(read_json(folder / "config.json").get("model_type", ""))
    loader = transformers.AutoModelForTextEncoding if _reads_alone(kind, part) else transformers.AutoModel
    options = {"add_pooling_layer": True} if kind == "data2vec-vision" else {}  # which AutoModel leaves out
    whole, info = loader.from_pretrained(folder, **options, trust_remote_code=False, output_loading_info=True)
    prefix = (f"{part}.", f"{_PROJECTIONS[part]}.") if hasattr(whole, part) else ""
    if options and any("pooler." in name for name in info["missing_keys"]):
        whole.pooler = None
    lacking = sorted(name for name in info["missing_keys"] if name.startswith(prefix) and "pooler." not in name)
    if lacking:
        raise ValueError(f"{len(lacking)} tensors described by config.json are not in the weights, e.g. {lacking[0]}.")
    return whole


def _reads_alone(kind: str, part: str) -> bool:
    """Return whether only the encoder of an encoder-decoder network is to be loaded."""
    return part == "text_model" and kind in ENCODERS


def _check_fetched(folder: Path) -> None:
    """Raise an OSError if a file of this folder is a git-lfs pointer."""
    for file in filter(Path.is_file, folder.iterdir()):
        check_fetched(file)


def _random(settings: Pretrained, sizes: Mapping[str, int]) -> nn.Module:
    """Build a randomly initialised network, with a seed that depends only on the architecture."""
    with torch.random.fork_rng(devices=[]):
        seed = int(digest(settings.architecture)[:8], 16)
        torch.default_generator.manual_seed(seed)  # a GPU's generator, from which dropout draws, stays as it is
        if settings.built_here:
            return RandomResnet(settings.architecture)
        return _of_transformers({**settings.architecture, **sizes})


def _of_transformers(fields: dict[str, Any]) -> nn.Module:
    import transformers

    config = transformers.AutoConfig.for_model(str(fields.pop("model_type")), **fields)
    if isinstance(config, transformers.SiglipTextConfig):  # AutoModel knows it within the whole SigLIP alone
        transformers.AutoModel.register(transformers.SiglipTextConfig, transformers.SiglipTextModel, exist_ok=True)
    return transformers.AutoModel.from_config(config)


def _without_unused(tower: Any) -> None:
    """Remove a learnt pooler whose output is not used."""
    pooler = getattr(tower, "pooler", None)
    if getattr(getattr(tower, "config", None), "model_type", "") in OWN_POOLERS:
        return
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        setattr(tower, "pooler", None)  # noqa: B010


def _with_masks(tower: Any) -> None:
    """Make attention use a mask even without padding, because checking for padding would wait for the device."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(*arguments: Any, **options: Any) -> Any:
        never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        return sdpa_mask(*arguments, **{**options, **never})

    AttentionInterface.register("sdpa-masked", sdpa_attention_forward)
    AttentionMaskInterface.register("sdpa-masked", mask)
    if tower.config._attn_implementation == "sdpa":
        tower.set_attn_implementation("sdpa-masked")


def _not_at_hand(name: str, path: Path | None = None) -> Path:
    """Raise a UserError that tells that the file of these weights is missing."""
    place = f"there is no file {path}" if path else "their authors publish them as a file, which is not on the hub"
    raise UserError(
        f"weights {name!r}: {place}. Download it, and give its path: --weights {name}=FILE, or in the grid file: "
        f'[weights] "{name}" = "FILE".'
    )


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Path:
    optional_dependencies.require(f"weights {name!r}, which are not on this machine,", "transformers")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_FILES)))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, "*.bin"]))
    except Exception as error:  # of the hub, the network, or the cache: the hub's client has no one base class
        raise UserError(
            f"weights {name!r} cannot be downloaded from the model hub: {in_short(error)}. If you have them on this "
            f'machine, give their folder: --weights {name}=DIR, or in the grid file: [weights] "{name}" = "DIR".'
        ) from error
    return folder


@lru_cache(maxsize=16)
def _content(folder: Path) -> str:
    """Return the SHA-256 of configuration and weights, or of a file of weights, as 16 hexadecimal digits."""
    summed = hashlib.sha256()
    files = [folder] if folder.is_file() else sorted(folder.iterdir())
    for file in (path for path in files if path == folder or path.suffix in (".json", ".safetensors", ".bin")):
        summed.update(file.name.encode())
        summed.update(bytes.fromhex(sha256_of(file)))
    for file in () if folder.is_file() else _further(folder):
        summed.update(str(file.relative_to(folder)).encode())
        summed.update(bytes.fromhex(sha256_of(file)))
    return summed.hexdigest()[:16]


def _further(folder: Path) -> list[Path]:
    """List the files a tokenizer reads instead of a tokenizer.json, and those of dense layers after the network."""
    slow = [] if (folder / "tokenizer.json").exists() else [folder / name for name in _SLOW]
    dense = [folder / str(entry.get("path")) for entry in _modules(folder) if str(entry.get("type")).endswith("Dense")]
    return [path for path in [*slow, *(file for part in dense for file in sorted(part.glob("*")))] if path.is_file()]


def _modules(folder: Path) -> list[dict[str, Any]]:
    with suppress(OSError, ValueError):
        content = parsed_json(regular_bytes(folder / "modules.json"))
        return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
    return []


class States(NamedTuple):
    """A feature map (b, k, h, w), and its mean (b, k, 1, 1)."""

    last_hidden_state: Tensor
    pooler_output: Tensor


class RandomResnet(nn.Module):
    """Randomly initialised ResNetModel with basic blocks: same names, initial weights and outputs as `transformers` 5.

    It lets the demo run without that package.
    """

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__()
        width, stages = architecture["embedding_size"], nn.Sequential()
        convolution, pool = _convolution(3, width, kernel=7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)
        self.embedder = nn.Sequential(OrderedDict(embedder=convolution, activation=nn.ReLU(), pooler=pool))
        for outputs, depth in zip(architecture["hidden_sizes"], architecture["depths"], strict=True):
            further = (ResidualLayer(outputs, outputs) for _ in range(depth - 1))
            layers = nn.Sequential(ResidualLayer(width, outputs, stride=2 if len(stages) else 1), *further)
            stages.append(nn.Sequential(OrderedDict(layers=layers)))
            width = outputs
        self.encoder = nn.Sequential(OrderedDict(stages=stages))
        self.pooler = nn.AdaptiveAvgPool2d(1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.02)  # drawn and replaced, as there
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pixels: Tensor) -> States:
        cells = self.encoder(self.embedder(pixels))
        return States(cells, self.pooler(cells))


class ResidualLayer(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, kernel=1, stride=stride)
        self.layer = nn.Sequential(_convolution(inputs, outputs, stride=stride), _convolution(outputs, outputs))

    def forward(self, values: Tensor) -> Tensor:
        first, second = self.layer
        changed: Tensor = second(first(values).relu()) + self.shortcut(values)
        return changed.relu()


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(OrderedDict(convolution=convolution, normalization=nn.BatchNorm2d(outputs)))
