"""What an estimate takes for the size of captions."""

import pytest

from grid.expansion import expand
from grid.gridfile import load
from runners.gpu.fake_inputs import Shapes
from runners.gpu.shapes_of_data import shapes_of


def shapes(recipe: str, data: str, *overrides: str) -> Shapes:
    changes = [f'recipes=["{recipe}"]', f'datasets=["{data}"]', 'objectives=["triplet-hn"]', "seeds=[0]", *overrides]
    shared = expand(load("flickr8k", changes))[0].trials[0].shared
    found, _ = shapes_of(shared, None, (500, 2500), lambda network: (), lambda network, length: 0)
    return found


@pytest.mark.parametrize(("recipe", "data"), [("fc-bow", "flickr30k"), ("mmt", "msr-vtt-1k-a")])
def test_captions_are_cut_by_the_recipe_as_by_the_data_set(recipe: str, data: str) -> None:
    by_recipe = shapes(recipe, data, "model.text.max_words=4", "dataset.max_words=9")
    assert by_recipe == shapes(recipe, data, "model.text.max_words=9", "dataset.max_words=4")
    assert by_recipe.longest <= 6 < shapes(recipe, data, "model.text.max_words=30").longest
