"""Networks of `transformers` by name: the folder of their weights, a hash of its content, and how they are built.

The user names the folder; else the hub's own cache is asked, then the hub. Only here is `transformers` imported, late.
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
"""Folder by name of weights."""

OWN_POOLERS = ("beit", "data2vec-vision")
"""Kinds whose pooler is part of the published vector: the layer norm of the mean of the patches, by default."""
_PROJECTIONS = {"vision_model": "visual_projection", "text_model": "text_projection"}
"""The last layer of a tower of CLIP, which brings its vectors to the space of both towers."""
ENCODERS = ("t5", "mt5", "umt5")
"""Kinds whose encoder reads captions without the decoder behind it."""
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_OF_SENTENCEPIECE = ("SiglipTokenizer",)
"""Tokenizers that read a spiece.model by its own package, even with a tokenizer.json in the folder."""
_SLOW = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "merges.txt", "vocab.txt")
_AGAIN = "Fetch these files again, or write them with save_pretrained()."
_NOT_RUN = {
    "trust_remote_code": "they need code of their own, which is not run. Use a network that transformers itself has.",
    "Weights only load failed": f"a file holds more than weights, and nothing else in it is run. {_AGAIN}",
}
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


def locate(settings: Pretrained, places: Places) -> Path | None:
    """The folder of these weights, or their file; None for random ones. UserError: they are found nowhere."""
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
            f"weights {name!r}: {folder} is a file, and transformers reads a folder with a config.json. Of BUTD's "
            f"ResNet-101, this makes one: goalgrid data backbone {folder} DIR."
        )
    if not (folder / "config.json").exists():
        raise UserError(f"no config.json in {folder}, the folder of weights {name!r}: save_pretrained() writes one.")
    return folder


def folder_of(settings: Pretrained, places: Places) -> Path:
    """The folder of weights that are not random; UserError: they are found nowhere."""
    folder = locate(settings, places)
    assert folder is not None, "random weights have no folder"
    return folder


def config_of(settings: Pretrained, places: Places) -> Mapping[str, Any]:
    """The config.json of these weights, or the architecture of random ones."""
    folder = locate(settings, places)
    return settings.architecture if folder is None else read_json(folder / "config.json")


def fingerprint(settings: Pretrained, places: Places) -> str:
    """Hash of the files that a network is loaded from, or of its architecture."""
    folder = locate(settings, places)
    return digest(settings.architecture)[:16] if folder is None else _content(folder)


def network(settings: Pretrained, places: Places, *, part: str, projected: bool = False, **sizes: int) -> nn.Module:
    """The network with its weights; of a two-tower model the tower called `part`.

    Args:
        projected: keep the layer that brings the tower's vectors to the space of both towers, as `projection`.
        sizes: of a network with random weights, over those of its architecture, e.g. `vocab_size`.

    Raises:
        UserError: the weights cannot be found or read, or the architecture is none that `transformers` knows.
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
    """A linear map; of kind "none" nothing, and a UserError where embeddings have another width."""
    if kind != "none":
        return nn.Linear(width, dim)
    if width != dim:
        raise UserError(
            f"head = none takes vectors of {width} values as embeddings, and model.dim is {dim}: set it to {width}."
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
    """The network in this folder, without running code that lies there."""
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
        raise ValueError(f"config.json describes {len(lacking)} tensors that the weights lack, e.g. {lacking[0]}.")
    return whole


def _reads_alone(kind: str, part: str) -> bool:
    """Whether the encoder of a network that also writes is loaded without its decoder."""
    return part == "text_model" and kind in ENCODERS


def _check_fetched(folder: Path) -> None:
    """Raise an OSError if git-lfs has yet to fetch a file of this folder."""
    for file in filter(Path.is_file, folder.iterdir()):
        check_fetched(file)


def _random(settings: Pretrained, sizes: Mapping[str, int]) -> nn.Module:
    """A network from its architecture, started from a seed that depends on the architecture alone."""
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
    """Drop a learnt pooler, where nothing reads what it gives."""
    pooler = getattr(tower, "pooler", None)
    if getattr(getattr(tower, "config", None), "model_type", "") in OWN_POOLERS:
        return
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        setattr(tower, "pooler", None)  # noqa: B010


def _with_masks(tower: Any) -> None:
    """Have attention read a mask even if nothing is padded: to find that out, the host would wait for the device."""
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
    """Raise the error that the file of these weights is not here."""
    place = f"there is no file {path}" if path else "they are a file of their authors', which no hub has"
    raise UserError(
        f"weights {name!r}: {place}. Download it, and say where it lies: --weights {name}=FILE, or in the grid file: "
        f'[weights] "{name}" = "FILE".'
    )


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Path:
    optional_dependencies.require(f"weights {name!r}, which lie nowhere here,", "transformers")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_FILES)))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, "*.bin"]))
    except Exception as error:  # of the hub, the network, or the cache: the hub's client has no one base class
        raise UserError(
            f"weights {name!r} cannot be fetched from the model hub: {in_short(error)}. If they lie here, name "
            f'their folder: --weights {name}=DIR, or in the grid file: [weights] "{name}" = "DIR".'
        ) from error
    return folder


@lru_cache(maxsize=16)
def _content(folder: Path) -> str:
    """SHA-256 over the configuration and the weights, or over a file of weights, 16 digits."""
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
    """Files that a tokenizer reads in place of a tokenizer.json, and those of dense layers behind the network."""
    slow = [] if (folder / "tokenizer.json").exists() else [folder / name for name in _SLOW]
    dense = [folder / str(entry.get("path")) for entry in _modules(folder) if str(entry.get("type")).endswith("Dense")]
    return [path for path in [*slow, *(file for part in dense for file in sorted(part.glob("*")))] if path.is_file()]


def _modules(folder: Path) -> list[dict[str, Any]]:
    with suppress(OSError, ValueError):
        content = parsed_json(regular_bytes(folder / "modules.json"))
        return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
    return []


class States(NamedTuple):
    """A map of cells (b, k, h, w), and its mean (b, k, 1, 1)."""

    last_hidden_state: Tensor
    pooler_output: Tensor


class RandomResnet(nn.Module):
    """ResNetModel of `transformers` 5 with layers of the type "basic": names, weights by a seed, and what it gives.

    With it, the demo needs nothing of that package.
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
    """A residual layer of two convolutions."""

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
