"""The words of the program: what users and readers meet is said in the field's words, and docstrings say what to do."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.program import FILES, ROOT

BANNED = re.compile(r"\b(beside|anew|stands?)\b", re.IGNORECASE)
"""Words for which the field has others: next to, in addition to; again, from scratch; is, are listed, appears."""
NOUN = re.compile(r"^(The|A|An|What|Whether|How|Which|Why|Every|Those|Of)\b")
"""First words of a docstring that does not say what a call does."""


def _texts(path: Path) -> Iterator[str]:
    """All strings of several words, without code in backquotes: docstrings, messages and helps."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield re.sub(r"`[^`]*`", "", node.value)


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings of public functions and methods; a property's may be a noun, as that of a field."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for part in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                is_property = any("property" in ast.unparse(mark) for mark in part.decorator_list)
                if not is_property and (text := ast.get_docstring(part)):
                    yield text


def _found(texts: Callable[[Path], Iterator[str]], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {' '.join(text.split())[:120]}"
        for path in FILES
        for text in texts(path)
        if pattern.search(text)
    ]


def test_texts_have_the_words_of_the_field() -> None:
    """Most that are left are of goalgrid/ and of systems; their number falls."""
    found = _found(_texts, BANNED)
    assert len(found) <= 70, "\n".join(found)


def test_docstrings_of_public_functions_say_what_to_do() -> None:
    """Most that are left are of goalgrid/ and of systems; their number falls."""
    found = _found(_docstrings, NOUN)
    assert len(found) <= 150, "\n".join(found)
