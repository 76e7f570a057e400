"""Many quick cases in one test: pytest spends 6 ms of a processor on each test, more than such a case computes."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def every(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but in one test, which ends at the first case that fails and names it.

    For cases that are not skipped and share their fixtures; what a case patched is undone.
    """
    keys, values = ((names,), [(case,) for case in cases]) if isinstance(names, str) else (names, list(cases))
    assert values, f"no case of {names}"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def all_cases(*self: object, **fixtures: object) -> None:
            for case in values:
                named = dict(zip(keys, case, strict=True))
                try:
                    test(*self, **fixtures, **named)
                except BaseException as error:
                    error.add_note(f"in the case {named}")
                    raise
                finally:
                    if isinstance(patch := fixtures.get("monkeypatch"), pytest.MonkeyPatch):
                        patch.undo()

        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        vars(all_cases)["__signature__"] = signature.replace(parameters=others)
        return all_cases

    return decorate
