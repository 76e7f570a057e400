"""The words of the program: what users and readers meet is said in the field's words, and docstrings say what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.program import FILES, ROOT

BANNED = re.compile(r"\b(beside|anew|stands?)\b", re.IGNORECASE)
"""Words for which the field has others: next to, in addition to; again, from scratch; is, are listed, appears."""
NOUN = re.compile(r"(The|A|An|What|Whether|How|Which|Why|Every|Those|Of)\b")
"""First words of a docstring that does not say what a call does."""
EARLIER = (
    "goalgrid/", "retrieval/components/", "retrieval/encoders/", "runners/gpu/", "runners/training/inputs.py",
    "runners/training/embedding.py", "grid/catalog.py", "grid/document.py", "grid/expansion.py", "grid/gridfile.py",
    "grid/plugins.py", "grid/registration.py", "grid/select.py", "grid/settings/", "grid/objectives/declared.py",
    "results/layouts/captions.py", "results/records/sources.py",
)  # fmt: skip
"""Where texts are still of earlier days: their number falls, and each folder leaves the list once it has none."""


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


def _split(found: list[tuple[Path, str]]) -> tuple[list[str], list[str]]:
    """Texts in files of `EARLIER`, and all others with their files."""
    lines = [(str(path.relative_to(ROOT)), text) for path, text in found]
    earlier = [text for name, text in lines if name.startswith(EARLIER)]
    return earlier, [f"{name}: {text}" for name, text in lines if not name.startswith(EARLIER)]


def test_texts_have_the_words_of_the_field() -> None:
    earlier, others = _split([(path, text) for path in FILES for text in _texts(path) if BANNED.search(text)])
    assert others == []
    assert len(earlier) <= 100


def test_docstrings_of_public_functions_say_what_to_do() -> None:
    earlier, others = _split([(path, text) for path in FILES for text in _docstrings(path) if NOUN.match(text)])
    assert others == []
    assert len(earlier) <= 300
