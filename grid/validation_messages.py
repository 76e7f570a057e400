"""Translate pydantic's validation errors into messages for users."""

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from goalgrid.grid.errors import nearest, unknown
from goalgrid.grid.settings.base import CHOICES

_PROBLEMS = {
    "missing": "it is missing",
    **dict.fromkeys(["int_type", "int_parsing", "int_parsing_size", "int_from_float"], "it should be a whole number"),
    **dict.fromkeys(["float_type", "float_parsing"], "it should be a number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], "it should be true or false"),
    **dict.fromkeys(["dict_type", "model_type"], "it should be a table"),
    "string_type": "it should be a text",
    "list_type": "it should be a list",
    "literal_error": "it should be {expected}",
    "too_short": "it needs {min_length} or more entries",
    "greater_than": "it should be above {gt:g}",
    "greater_than_equal": "it should be at least {ge:g}",
    "less_than": "it should be below {lt:g}",
    "less_than_equal": "it should be at most {le:g}",
}
"""Messages by pydantic's error type; other errors keep pydantic's message."""


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return one line per validation error: its place, the problem, the wrong value, and the nearest known name."""
    lines = []
    for problem in error.errors():
        *path, last = map(str, problem["loc"] or ("",))
        place = ".".join([*path, last])
        fields = _fields_at(model, path)
        if problem["type"] == "extra_forbidden" and fields:
            within = f"{prefix}{'.'.join(path)}".rstrip(".")
            lines.append(unknown("key", last, fields, where=f"in {within}" if within else ""))
            continue
        if problem["type"] == "union_tag_invalid":  # which of several models: of encoders, of scorers
            what, tag, known = (problem["ctx"][key] for key in ("discriminator", "tag", "expected_tags"))
            names = [name.strip("'") for name in known.split(", ")]
            lines.append(unknown(what.strip("'"), tag, names, where=f"in {prefix}{place}"))
            continue
        given = repr(problem["input"])
        value = f" (got {given if len(given) <= 80 else f'{given[:77]}...'})" if problem["type"] != "missing" else ""
        text = problem["msg"].removeprefix("Value error, ")
        text = _PROBLEMS.get(problem["type"], "{said}").format(said=text, **problem.get("ctx", {}))
        value = "" if given in text else value
        if problem["type"] == "literal_error":
            close = nearest(str(problem["input"]), re.findall("'([^']*)'", problem["ctx"]["expected"]))
            value += f". Did you mean {close[0]!r}?" if close else ""
        lines.append(f"{prefix}{place}{': ' if place else ''}{text}{value}")
    return lines


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys of a table within a model; among several encoders or scorers, those of the one named in the path."""
    models = [model]
    for part in path:
        if not any(part in option.model_fields for option in models):
            models = [option for option in models if len(models) == 1 or part in chosen_by(option)]
            continue
        kinds = [option.model_fields[part].annotation for option in models if part in option.model_fields]
        models = [inner for kind in kinds for inner in models_in(kind)]
    return list(models[0].model_fields) if len(models) == 1 else []


def chosen_by(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of the encoders or scorers that this settings class belongs to."""
    return tuple(
        name for choice in CHOICES for name in get_args(getattr(model.model_fields.get(choice), "annotation", None))
    )


def models_in(kind: Any) -> list[type[BaseModel]]:
    """Return the pydantic models that occur in a type annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in get_args(kind) for model in models_in(part)]
