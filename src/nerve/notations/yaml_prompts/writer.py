"""Write the spec itself, the full form, as readable YAML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from nerve.text.yaml_reader import MAX_DEPTH, MAX_INTEGER, parse_scalar

STRING_TAG = "tag:yaml.org,2002:str"
"""The tag of every scalar: the reader decides by the core schema, not by tags."""
PLAIN_PATTERN = re.compile(r"""[A-Za-z_/](?:[A-Za-z0-9_ .,/()'"+=<>!?$&|*@;^~%`{}\[\]-]|:(?=[^\s]))*""")
INVISIBLE_PATTERN = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u2000-\u200f\u2028-\u202f\u205f-\u2064\ufeff\ufff9-\uffff]"
)


class SpecDumper(yaml.BaseDumper):
    """Indents the items of a list below their key, and escapes invisible characters."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        self.allow_unicode = not INVISIBLE_PATTERN.search(text)
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def write_document(data: Mapping[str, Any]) -> str:
    """Return the full form of a spec; raises `ValueError` for values that YAML cannot represent."""
    text: str = yaml.serialize(
        spec_node(data, 1), Dumper=SpecDumper, allow_unicode=True, width=float("inf"), encoding=None
    )
    return text


def spec_node(value: Any, depth: int) -> yaml.Node:
    """Return the YAML node of a JSON value."""
    if depth > MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"Cannot write YAML: nested deeper than {MAX_DEPTH} levels")
    match value:
        case Mapping():
            pairs = [(key_node(key), spec_node(item, depth + 1)) for key, item in value.items()]
            return yaml.MappingNode("tag:yaml.org,2002:map", pairs)
        case list() | tuple():
            return yaml.SequenceNode("tag:yaml.org,2002:seq", [spec_node(item, depth + 1) for item in value])
        case str():
            return yaml.ScalarNode(STRING_TAG, value, style=text_style(value))
    return yaml.ScalarNode(STRING_TAG, format_atom(value))


def key_node(key: object) -> yaml.Node:
    if not isinstance(key, str):
        raise ValueError(f"Cannot write YAML: a key must be a string, got {key!r}")
    style = text_style(key)
    return yaml.ScalarNode(STRING_TAG, key, style='"' if style == "|" else style)


def format_atom(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int() if abs(value) <= MAX_INTEGER:
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
    raise ValueError(f"Cannot write YAML: unsupported value {value!r}")


def text_style(value: str) -> str | None:
    """Return the style of a string: None for plain, a block for lines, else quotes without escapes."""
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("Cannot write YAML: unpaired surrogate")
    if "\n" in value and is_block_literal(value):
        return "|"
    if INVISIBLE_PATTERN.search(value):
        return '"'
    ascii_only = re.sub(r"[^\x00-\x7f]", "a", value)
    letters = all(letter.isascii() or letter.isalnum() for letter in value)
    if letters and PLAIN_PATTERN.fullmatch(ascii_only) and value[-1] != " " and reads_back(value):
        return None
    return "'" if re.search(r'["\\\U00010000-\U0010ffff]', value) else '"'


def reads_back(value: str) -> bool:
    """Whether the reader takes a plain scalar for the string itself."""
    try:
        return bool(parse_scalar(value) == value)
    except ValueError:
        return False


def is_block_literal(value: str) -> bool:
    """Whether a text can be written unchanged as a `|` block."""
    hidden = INVISIBLE_PATTERN.search(re.sub(r"[\n\t]", "", value))
    return not hidden and value[0] not in " \t\n" and not re.search(r"^[ \t]+$|^\t", value, re.MULTILINE)
