"""How the towers of a model are called, in words, and where that differs from the call of their authors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import isclose
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import DatasetSettings
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.pretrained_networks import PUBLISHED
from goalgrid.grid.settings.text_encoders import UNCUT, TransformerSettings
from goalgrid.grid.store.files import read_json
from goalgrid.retrieval.encoders.calls.at_hand import at_hand
from goalgrid.retrieval.encoders.calls.kinds import check_kind
from goalgrid.retrieval.encoders.calls.sentence_modules import sentence_modules


@dataclass(frozen=True)
class TowerCall:
    """How a tower is called.

    Args:
        side: "image" or "text".
        line: the call in words.
        differences: how it differs from the published call, each with both values.
        remedies: lines of a grid file that make it the published call.
    """

    side: str
    weights: str
    line: str
    differences: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        return [f"{self.weights}, {'pictures' if self.side == 'image' else 'captions'}: {self.line}", *self.notes()]

    def notes(self) -> list[str]:
        """Say what differs, with the line that makes it the published call."""
        if not self.differences:
            return []
        return [
            f"{self.weights} is not called as published: {'; '.join(self.differences)}. To call it as published, write "
            f"below [set]: {', '.join(self.remedies)} (changes trial ids)"
        ]


def _compared(side: str, weights: str, line: str, differences: Mapping[str, str]) -> TowerCall:
    """A call, with its differences by field."""
    remedies = dict.fromkeys(f'"model.{side}.call" = "{PUBLISHED}"' for name in differences if name != "size")
    sizes = [f'"model.{side}.size" = {differences[name].rpartition(" ")[2]}' for name in differences if name == "size"]
    return TowerCall(side, weights, line, tuple(differences.values()), (*remedies, *sizes))


def tower_calls(dataset: DatasetSettings, model: ModelSettings, places: Mapping[str, Path]) -> list[TowerCall]:
    """Return how the towers are called whose weights are on this machine.

    Raises:
        UserError: a network cannot be called, or its files do not decide what the settings leave to them.
    """
    calls = []
    image, text = model.image, model.text
    if isinstance(image, BackboneSettings) and (folder := at_hand(image, places)):
        check_kind("image", folder, image.weights)
        calls.append(_of_pictures(image, {**places, image.weights: folder}))
    if isinstance(text, TransformerSettings) and (folder := at_hand(text, places)):
        check_kind("text", folder, text.weights)
        calls.append(_of_captions(dataset, text, folder, {**places, text.weights: folder}))
    return calls


def _of_pictures(image: BackboneSettings, places: Mapping[str, Path]) -> TowerCall:
    from goalgrid.retrieval.encoders.calls.called import as_called, pictures_of
    from goalgrid.retrieval.encoders.calls.pictures import PictureCall

    called: Any = as_called(image, places)
    cut = called.framing == "centre-crop"
    ours = PictureCall(
        called.size, called.framing, (called.margin or VSEPP) if cut else None, called.filter or called.usual_filter,
        called.statistics,
    )  # fmt: skip
    try:
        published = pictures_of(image, places)
    except UserError:  # the files do not say it, and the settings ask for nothing of them
        return TowerCall("image", image.weights, ours.text())
    differences = dict(_differing(ours, published))
    if image.call == PUBLISHED:  # other fields differ because the settings say so
        differences = {name: text for name, text in differences.items() if name == "size"}
    return _compared("image", image.weights, ours.text(), differences)


def _differing(ours: Any, published: Any) -> Iterator[tuple[str, str]]:
    for field in fields(ours):
        mine, theirs = getattr(ours, field.name), getattr(published, field.name)
        numbers = isinstance(mine, float) and isinstance(theirs, float)
        if field.name == "margin" and not (mine and theirs):  # framing differs
            continue
        if not (isclose(mine, theirs, rel_tol=1e-6) if numbers else mine == theirs):
            yield field.name, f"{field.name} {_text(mine)}, published {_text(theirs)}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def _of_captions(
    dataset: DatasetSettings, text: TransformerSettings, folder: Path, places: Mapping[str, Path]
) -> TowerCall:
    from goalgrid.retrieval.encoders.calls import caption_call
    from goalgrid.retrieval.encoders.calls.called import as_called

    called, length = as_called(text, places), caption_call.places_of(text, places)
    caption_call.check_places(text, length)
    most = min(called.longest(dataset.max_words), length or UNCUT)
    filled = caption_call.kind_of(text, places) in caption_call.FILLED
    if filled and not read_json(folder / "tokenizer_config.json").get("pad_token"):
        caption_call.fill_of(text, places)  # raises a UserError where the tokenizer has none
    modules = sentence_modules(folder, text.weights) if text.output == "projected" else None
    vector = "projected" if modules is None else modules.text()
    if text.output == "states":
        hint = ' (the vector of its modules.json: model.text.output = "projected")'
        vector = f"states, pooled by {text.pooling}{hint if (folder / 'modules.json').is_file() else ''}"
    parts = [
        "not cut" if most == UNCUT else f"cut at {most} tokens",
        f"filled to {length} places, no mask" if filled else "mask",
        *([f"after {called.prompted('')!r}"] if called.prompt else []),
        vector,
    ]
    if text.call == PUBLISHED:
        return TowerCall("text", text.weights, ", ".join(parts))
    differences, default = dict[str, str](), caption_call.prompt_of(folder)
    if length and most < length:
        differences["max_words"] = f"captions cut at {most} tokens, published {length}"
    if called.prompted("") != default:
        differences["prompt"] = f"prompt {called.prompted('')!r}, published {default!r}"
    return _compared("text", text.weights, ", ".join(parts), differences)


VSEPP = 256 / 224
"""The margin of `centre-crop` without a margin."""
