"""Write the spec itself, the full form, as readable YAML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nerve.text.yaml_reader import MAX_DEPTH, MAX_INTEGER, parse_scalar

_MAX_KEY_CHARS = 1000
"""YAML requires a question mark before a key of more than 1024 characters."""
_PLAIN_PATTERN = re.compile(r"""[A-Za-z_/](?:[A-Za-z0-9_ .,/()'"+=<>!?$&|*@;^~%`{}\[\]-]|:(?=[^\s]))*""")
_KEY_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_INVISIBLE = re.compile(
    "[\x7f-\xa0\xad\u0600-\u0605\u061c\u2000-\u200f\u2028-\u202f\u205f-\u2064\ufeff\ufff9-\uffff]"
)


def write_document(data: Mapping[str, Any]) -> str:
    """Return the full form of a spec; raises `ValueError` for values that YAML cannot represent."""
    return "".join(f"{line}\n" for line in _mapping_lines(data, 1)) if data else "{}\n"


def _value_lines(value: Any, depth: int) -> list[str]:
    """Return the lines of a value; the first follows a key or a dash, the others are indented."""
    if depth > MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"Cannot write YAML: nested deeper than {MAX_DEPTH} levels")
    match value:
        case Mapping() if value:
            return list(_mapping_lines(value, depth))
        case list() | tuple() if value:
            return list(_sequence_lines(value, depth))
        case str():
            return _text_lines(value)
    return [_format_atom(value)]


def _mapping_lines(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f"Cannot write YAML: a key must be a string, got {key!r}")
        name = key if _KEY_PATTERN.fullmatch(key) and parse_scalar(key) == key else _quote_text(key)
        lines = _value_lines(item, depth + 1)
        if len(name) > _MAX_KEY_CHARS:
            yield f"? {name}"
            name = ""
        if isinstance(item, Mapping | list | tuple) and item:
            yield f"{name}:"
            yield from (f"  {line}" if line else line for line in lines)
        else:
            yield f"{name}: {lines[0]}"
            yield from lines[1:]


def _sequence_lines(value: list[Any] | tuple[Any, ...], depth: int) -> Iterator[str]:
    for item in value:
        first, *others = _value_lines(item, depth + 1)
        yield f"- {first}"
        block = isinstance(item, Mapping | list | tuple)
        yield from (f"  {line}" if line and block else line for line in others)


def _format_atom(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) <= MAX_INTEGER:
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
    raise ValueError(f"Cannot write YAML: unsupported value {value!r}")


def _text_lines(value: str) -> list[str]:
    if "\n" in value and _is_block_literal(value):
        chomp = "-" if not value.endswith("\n") else "+" if value.endswith("\n\n") else ""
        body = value.removesuffix("\n")
        return [f"|{chomp}", *(f"  {line}" if line else "" for line in body.split("\n"))]
    plain = value.isascii() or all(letter.isascii() or letter.isalnum() for letter in value)
    ascii_only = re.sub(r"[^\x00-\x7f]", "a", value)
    if plain and _PLAIN_PATTERN.fullmatch(ascii_only) and value[-1] != " " and _reads_back(value):
        return [value]
    return [_quote_text(value)]


def _reads_back(value: str) -> bool:
    try:
        return bool(parse_scalar(value) == value)
    except ValueError:
        return False


def _is_block_literal(value: str) -> bool:
    """Whether a text can be written unchanged as a `|` block."""
    visible = not _INVISIBLE.search(value) and all(letter >= " " or letter in "\n\t" for letter in value)
    return visible and value[0] not in " \t\n" and not re.search(r"^[ \t]+$|^\t", value, re.MULTILINE)


def _quote_text(value: str) -> str:
    """Return a quoted string, in single quotes if that avoids escapes."""
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("Cannot write YAML: unpaired surrogate")
    double = json.dumps(value, ensure_ascii=False)
    double = _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", double)
    if (
        "\\" in double
        and "'" not in value
        and len(double) == len(value) + 2 + len(re.findall(r'["\\]', value))
    ):
        return f"'{value}'"
    return double
