"""Many quick cases in one test: pytest spends 6 ms of a processor on each test, more than such a case computes."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import product
from typing import Any

import pytest

Test = Callable[..., None]


def every(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but in one test: each case that fails is a subtest of pytest's, which names it.

    For cases that are not skipped and share their fixtures; what a case patched is undone. Given twice, the cases are
    all pairs, those of the upper line outside.
    """
    keys, values = ((names,), [(case,) for case in cases]) if isinstance(names, str) else (names, list(cases))
    assert values, f"no case of {names}"
    named = [dict(zip(keys, case, strict=True)) for case in values]

    def decorate(test: Test) -> Test:
        inner, below = getattr(test, "cases", (test, [{}]))
        return _in_one(inner, [upper | lower for upper, lower in product(named, below)])

    return decorate


def _in_one(test: Test, cases: list[Mapping[str, Any]]) -> Test:
    signature = inspect.signature(test)

    @wraps(test)
    def all_cases(*self: object, subtests: pytest.Subtests, **fixtures: object) -> None:
        for case in cases:
            try:
                test(*self, **fixtures, **case)
            except (Exception, pytest.fail.Exception):
                with subtests.test(**case):  # entered by none that passes: it takes as long as a test
                    raise
            finally:
                if isinstance(patch := fixtures.get("monkeypatch"), pytest.MonkeyPatch):
                    patch.undo()

    fixtures = [parameter for name, parameter in signature.parameters.items() if name not in cases[0]]
    fixtures.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
    vars(all_cases).update(__signature__=signature.replace(parameters=fixtures), cases=(test, cases))
    return all_cases
