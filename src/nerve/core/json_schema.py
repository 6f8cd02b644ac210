"""Validation of values by JSON Schemas, and of JSON Schemas themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nerve.core.json_codec import find_fenced_blocks, parse_strict_json

NAME_KEYED_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names chosen by the author of the schema."""
VALUE_KEYWORDS = ("const", "enum", "default", "examples")
"""Keywords that contain plain values, not schemas."""
UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
"""A Unicode escape of JSON and JavaScript, which RE2 does not support."""

FORMAT_EXAMPLES = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "decimal": "1.50",
    "duration": "PT15M",
    "time": "12:00:00",
    "uuid": "4f9d0c1e-8a53-4c2b-9d8e-5b7a1f2c3d4e",
}
"""The formats of texts that are checked, with an example of each."""
MAX_SCHEMA_MESSAGE_CHARS = 300
"""The maximum length of a message."""


def find_validation_error(value: Any, schema: Mapping[str, Any], check_formats: bool = False) -> str:
    """Return why a value does not match a schema, or "". References to other documents are not fetched.

    With `check_formats`, texts must have the formats that have an example in `FORMAT_EXAMPLES`.
    """
    for error in iterate_validation_errors(value, schema, check_formats):
        location = "".join(f"[{step!r}]" for step in error.path)
        return f"{error.message}{' at ' + location if location else ''}"
    return ""


class ValidationError(NamedTuple):
    """Why a part of a value does not match a schema."""

    path: tuple[str | int, ...]
    """The names and indexes that lead to the part."""
    message: str


def iterate_validation_errors(
    value: Any, schema: Mapping[str, Any], check_formats: bool = False
) -> Iterator[ValidationError]:
    """Yield why a value does not match a schema, in the order of its parts."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    checker = format_checker() if check_formats else None
    validator = validator_class()(dict(schema), registry=Registry(), format_checker=checker)
    try:
        errors = sorted(validator.iter_errors(value), key=rank_error)
    except PatternError as error:
        yield ValidationError((), str(error)[:MAX_SCHEMA_MESSAGE_CHARS])
        return
    except Unresolvable as error:
        message = f"the schema contains an unresolvable reference: {error}"
        yield ValidationError((), message[:MAX_SCHEMA_MESSAGE_CHARS])
        return
    for cause in map(find_cause, errors):
        yield ValidationError(tuple(cause.absolute_path), cause.message[:MAX_SCHEMA_MESSAGE_CHARS])


def rank_error(error: Any) -> tuple[list[str], bool]:
    """Sort errors by their place; the format of a value says more than the failure of its alternatives."""
    return list(map(str, error.path)), error.validator != "format"


def find_cause(error: Any) -> Any:
    """Return why a value that may be null has the wrong type, instead of the failure of both alternatives."""
    while error.validator == "anyOf":
        causes = [
            cause
            for cause in error.context or ()
            if not (cause.validator == "type" and cause.validator_value == "null")
        ]
        if len(causes) != 1:
            break
        error = causes[0]
    return error


def matches_format(text: str, format: str) -> bool:
    """Return whether a text has a format of JSON Schema; True for a format that is not checked."""
    if format not in FORMAT_EXAMPLES:
        return True
    from pydantic import ValidationError

    try:
        format_adapter(format).validate_json(json.dumps(text), strict=True)
    except ValidationError:
        return False
    return True


@cache
def format_adapter(format: str) -> Any:
    """Return what reads texts of a format, the same as values of a typed function."""
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal
    from uuid import UUID

    from pydantic import TypeAdapter

    types: dict[str, Any] = {
        "date": date,
        "date-time": datetime,
        "decimal": Decimal,
        "duration": timedelta,
        "time": time,
        "uuid": UUID,
    }
    return TypeAdapter(types[format])


@cache
def format_checker() -> Any:
    """Return the checker of formats for a validator; texts only, since a decimal may be a number."""
    from jsonschema import FormatChecker

    checker = FormatChecker(())
    for name in FORMAT_EXAMPLES:
        checker.checks(name)(
            lambda value, format=name: not isinstance(value, str) or matches_format(value, format)
        )
    return checker


class PatternError(ValueError):
    """A regular expression that RE2 cannot match in linear time."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Compile a regular expression of a schema for matching in linear time.

    RE2 supports neither look-around nor back-references, so a pattern cannot cause exponential time.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(UNICODE_ESCAPE.sub(r"\\x{\1}", pattern), options)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(
            f"pattern {pattern!r} is not supported: {reason}."
            " Use RE2 syntax, without look-around and back-references"
        ) from None


def match_pattern(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).search(text) is not None


def as_hashable(value: Any) -> Any:
    """Return a hashable key with the equality of JSON Schema: 1 equals 1.0, but not true."""
    if isinstance(value, Mapping):
        return dict, frozenset((key, as_hashable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return list, tuple(map(as_hashable, value))
    return isinstance(value, bool), value


@cache
def validator_class() -> Any:
    """Return a JSON Schema 2020-12 validator whose patterns and comparisons take linear time."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not match_pattern(pattern, value):
            excerpt = value if len(value) <= 100 else f"{value[:100]}…"
            yield ValidationError(f"{excerpt!r} does not match {pattern!r}")

    def check_pattern_properties(validator: Any, patterns: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            for pattern, inner in patterns.items():
                for key, item in value.items():
                    if match_pattern(pattern, key):
                        yield from validator.descend(item, inner, path=key, schema_path=pattern)

    def check_additional(validator: Any, inner: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        patterns = schema.get("patternProperties", {})
        extra = [key for key in value if key not in schema.get("properties", {})]
        extra = [key for key in extra if not any(match_pattern(pattern, key) for pattern in patterns)]
        if inner is False and extra:
            names = ", ".join(map(repr, extra))
            yield ValidationError(f"Additional properties are not allowed ({names} unexpected)")
        elif inner is not False:
            for key in extra:
                yield from validator.descend(value[key], inner, path=key)

    def check_unique(validator: Any, must_be_unique: Any, value: Any, schema: Any) -> Iterator[Any]:
        if (
            must_be_unique
            and validator.is_type(value, "array")
            and len(set(map(as_hashable, value))) < len(value)
        ):
            yield ValidationError(f"{value!r} has non-unique elements")

    return extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            "pattern": check_pattern,
            "patternProperties": check_pattern_properties,
            "additionalProperties": check_additional,
            "uniqueItems": check_unique,
        },
    )


def find_patterns(schema: Any) -> Iterator[str]:
    """Yield the regular expressions of a schema."""
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from find_patterns(part)
    elif isinstance(schema, Mapping):
        for name, part in schema.items():
            if name == "pattern" and isinstance(part, str):
                yield part
            elif name == "patternProperties" and isinstance(part, Mapping):
                yield from part
            if name not in VALUE_KEYWORDS:
                is_name_keyed = name in NAME_KEYED_KEYWORDS and isinstance(part, Mapping)
                yield from find_patterns(list(part.values()) if is_name_keyed else part)


def find_schema_error(schema: Mapping[str, Any]) -> str:
    """Return why a value is not a supported JSON Schema, or ""."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema), FormatChecker(()))
        for pattern in find_patterns(schema):
            compile_pattern(pattern)
    except SchemaError as error:
        return error.message[:MAX_SCHEMA_MESSAGE_CHARS]
    except PatternError as error:
        return str(error)[:MAX_SCHEMA_MESSAGE_CHARS]
    if "patternProperties" in (text := str(schema)) and "unevaluatedProperties" in text:
        return "unevaluatedProperties cannot be used with patternProperties; use additionalProperties"
    return ""


def inline_references(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with its references to definitions replaced; recursive ones stay references."""
    recursive: set[str] = set()
    inlined = replace_references(schema, definitions, (), recursive)
    if not recursive:
        return inlined
    kept = {name: replace_references(definitions[name], definitions, (name,), set()) for name in recursive}
    return {**inlined, "$defs": kept}


def replace_references(
    schema: Any, definitions: Mapping[str, Any], enclosing: tuple[str, ...], recursive: set[str]
) -> Any:
    """Return a schema without references, except those to `enclosing` definitions, added to `recursive`."""
    if isinstance(schema, list):
        return [replace_references(part, definitions, enclosing, recursive) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        if name in enclosing:
            recursive.add(name)
            return schema
        target = replace_references(definitions[name], definitions, (*enclosing, name), recursive)
        beside = {key: part for key, part in schema.items() if key != "$ref"}
        return {**target, **beside}
    return {
        key: part if key in VALUE_KEYWORDS else replace_references(part, definitions, enclosing, recursive)
        for key, part in schema.items()
    }


def reduce_field_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without the alternative null, which a field has if it may be omitted."""
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list):
        return schema
    others = [part for part in alternatives if isinstance(part, Mapping) and part.get("type") != "null"]
    if len(others) != 1 or len(others) == len(alternatives):
        return schema
    return {**others[0], **{name: part for name, part in schema.items() if name != "anyOf"}}


class UnknownKey(NamedTuple):
    """A key of an object that its schema does not have."""

    path: tuple[str | int, ...]
    """Where the object is."""
    key: str
    known: tuple[str, ...]
    """The keys that the object may have."""


def find_unknown_key(
    data: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None
) -> UnknownKey | None:
    """Return the first key of an object in the data that a closed object of the schema does not have."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    schema = resolve_reference(schema, definitions)
    if not isinstance(data, dict | list):
        return None
    kind = "object" if isinstance(data, dict) else "array"
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives is not None:
        fitting = [resolve_reference(part, definitions) for part in alternatives]
        fitting = [part for part in fitting if part.get("type", kind) == kind]
        # The alternative that is meant is the one with the most of the keys.
        fitting.sort(key=lambda part: -sum(key in part.get("properties", {}) for key in data))
        found = [find_unknown_key(data, part, definitions) for part in fitting]
        return None if None in found else next(iter(found), None)
    known = schema.get("properties", {})
    parts: list[tuple[str | int, Any, Any]] = []
    if isinstance(data, list):
        first = schema.get("prefixItems", [])
        items = [*first, *[schema.get("items", {})] * len(data)]
        parts = [(number, value, items[number]) for number, value in enumerate(data)]
    else:
        others = schema.get("additionalProperties", True)
        if others is False and (unknown := [key for key in data if key not in known]):
            return UnknownKey((), unknown[0], tuple(known))
        parts = [(key, value, known.get(key, others)) for key, value in data.items()]
    for step, value, part in parts:
        if isinstance(part, Mapping) and (inner := find_unknown_key(value, part, definitions)) is not None:
            return inner._replace(path=(step, *inner.path))
    return None


def resolve_reference(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    target: Mapping[str, Any] = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
    return target


def parse_json_answer(text: str) -> tuple[Any, str]:
    """Return the JSON value of an answer, plain or in a fenced block, and the problem if there is none."""
    candidates = [text.strip(), *(block.strip() for block in reversed(find_fenced_blocks(text)))]
    problem = "the answer is not JSON"
    for candidate in candidates:
        try:
            return parse_strict_json(candidate), ""
        except json.JSONDecodeError:
            continue
        except ValueError as error:
            problem = f"the answer is not usable JSON: {error}"
    return None, problem
