"""The traced grid as figures see it."""

from dataclasses import replace

import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.figures import Study
from goalgrid.results.records.scores import Scores

from ...conftest import SMALL


@pytest.fixture(scope="module")
def study(traced: Home) -> Study:
    cells = expand(load("demo", ["seeds=[0,1]", *(word for word in SMALL if word != "--set")]))
    (found,) = Study.read(cells, Scores.read(cells, traced), traced)
    return found


@pytest.fixture(scope="module")
def alone(study: Study) -> Study:
    """A single trial of one epoch."""
    trial, history = next(iter(study.histories.items()))
    return replace(study, histories={trial: {name: {1: values[1]} for name, values in history.items() if 1 in values}})
