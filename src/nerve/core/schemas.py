"""JSON Schemas: whether a value fits one, and whether it is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPRESSIONS = ("pattern", "patternProperties")
NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Parts of a schema whose keys are names that somebody chose."""
PLAIN = ("const", "enum", "default", "examples")
"""Parts of a schema that are values."""

SHOWN = 300
"""Characters of a message that are told."""


def problem_of(value: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with a value, or nothing. Nothing is fetched: a schema is complete in itself."""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator = Draft202012Validator(dict(schema), registry=Registry())
    try:
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        return f"the schema refers to something that is not in it: {error}"[:SHOWN]
    if not errors:
        return ""
    first = errors[0]
    place = "".join(f"[{step!r}]" for step in first.path)
    return f"{first.message[:SHOWN]}{' at ' + place if place else ''}"


def endless(schema: Any) -> str:
    """Which part of a schema may take for ever over a short value, or nothing: regular expressions do."""
    if isinstance(schema, list | tuple):
        return next(filter(None, map(endless, schema)), "")
    if not isinstance(schema, Mapping):
        return ""
    for name, part in schema.items():
        if name in EXPRESSIONS:
            return str(name)
        inner = list(part.values()) if name in NAMED and isinstance(part, Mapping) else part
        if name not in PLAIN and (found := endless(inner)):
            return found
    return ""


def flaw_of(schema: Mapping[str, Any]) -> str:
    """Why something is no JSON Schema, or nothing."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return error.message[:SHOWN]
    return ""
