"""What an estimate takes for the size of captions, against the captions of data that are here one by one."""

import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings.image_views import View
from goalgrid.planning.gpu.shapes_of_data import Shapes, shapes_of
from goalgrid.retrieval.data.shapes import load as drawn


def shapes(recipe: str, data: str, *overrides: str) -> Shapes:
    changes = [f'recipes=["{recipe}"]', f'datasets=["{data}"]', 'objectives=["triplet-hn"]', "seeds=[0]", *overrides]
    shared = expand(load("flickr8k", changes))[0].trials[0].shared
    found, _ = shapes_of(shared, None, (500, 2500), lambda *network: ())
    return found


@pytest.mark.parametrize(("recipe", "data"), [("fc-bow", "flickr30k"), ("mmt", "msr-vtt-1k-a")])
def test_captions_are_cut_by_the_recipe_as_by_the_data_set(recipe: str, data: str) -> None:
    by_recipe = shapes(recipe, data, "model.text.max_words=4", "dataset.max_words=9")
    assert by_recipe == shapes(recipe, data, "model.text.max_words=9", "dataset.max_words=4")
    assert by_recipe.longest <= 6 < shapes(recipe, data, "model.text.max_words=30").longest


def test_captions_that_are_here_are_counted() -> None:
    shared = trials_of(expand(load("demo")))[0].shared
    sizes = (500, 2500)
    found, assumed = shapes_of(shared, None, sizes, lambda *network: (1,))
    lengths = sorted(len(caption.split()) for caption in drawn(View(8)).train.captions)
    batch = lengths[-shared.train.batch_size :]
    assert (found.typical, found.longest) == (round(sum(lengths) / len(lengths)), round(sum(batch) / len(batch)))
    assert (found.images, found.texts) == sizes
    assert assumed == {}
