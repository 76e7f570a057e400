"""The traced grid as figures see it."""

import pytest

from grid.expansion import expand
from grid.gridfile import load
from grid.store.home import Home
from results.figures import Study
from results.records.scores import Scores

from ...conftest import SMALL


@pytest.fixture(scope="module")
def study(traced: Home) -> Study:
    cells = expand(load("demo", ["seeds=[0,1]", *(word for word in SMALL if word != "--set")]))
    (found,) = Study.read(cells, Scores.read(cells, traced), traced)
    return found
