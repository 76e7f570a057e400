"""Every example in a docstring is executed."""

import doctest
import importlib

from tests.cases import every
from tests.program import FILES, module_of

MODULES = [module_of(path) for path in FILES if ">>> " in path.read_text(encoding="utf-8")]


@every("name", MODULES)
def test_examples_hold(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
