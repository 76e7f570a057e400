"""The examples in the docstrings are true."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["grid.objectives", "grid.errors", "objectives"])
def test_examples_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
