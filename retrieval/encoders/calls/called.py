"""The settings of an encoder once the folder of its weights has been read: no field says "published" any more."""

from typing import TypeVar

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.base import Settings
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.pretrained_networks import PUBLISHED, RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.grid.store.files import read_json
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls import caption_call
from goalgrid.retrieval.encoders.calls.pictures import PictureCall, picture_call

P = TypeVar("P", bound=Settings)
FIELDS = ("framing", "margin", "filter", "statistics")
"""Fields of a call that pictures have."""
FILES = ("preprocessor_config.json", "processor_config.json")


def as_called(part: P, places: pretrained.Places) -> P:
    """Return an encoder's settings with the fields that the folder of its weights decides.

    Raises:
        UserError: the weights cannot be found, or their files do not decide.
    """
    if isinstance(part, TransformerSettings) and part.prompt == PUBLISHED and part.call == PUBLISHED:
        return part.model_copy(update={"prompt": caption_call.prompt_of(pretrained.folder_of(part, places))})
    if not isinstance(part, BackboneSettings):
        return part
    asked = [name for name in FIELDS if getattr(part, name) == PUBLISHED]
    if not asked:
        return part
    if part.weights == RANDOM:  # in place of weights that are not here, to estimate what they cost
        return part.model_copy(update={name: type(part).model_fields[name].default for name in asked})
    call = pictures_of(part, places)
    return part.model_copy(update={name: getattr(call, name) for name in asked})


def pictures_of(part: Pretrained, places: pretrained.Places) -> PictureCall:
    """Return how pictures are prepared for these weights, by their folder; UserError: it does not decide."""
    folder = pretrained.folder_of(part, places)
    content = next(filter(None, (read_json(folder / name) for name in FILES)), None)
    if content is None:
        raise UserError(
            f"weights {part.weights!r}: {folder} has no {FILES[0]}, which says how pictures are prepared. Fetch it, or "
            'set model.image.call = "plain", and framing, margin, filter and statistics as its authors name them.'
        )
    return picture_call(content, part.weights)
