"""Messages and fixes for values of the wrong type, from pydantic errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.suggest import did_you_mean_hint

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

A_STRING, A_NUMBER, AN_INTEGER = "a string", "a number", "an integer"
A_BOOLEAN, A_LIST, AN_OBJECT = "true or false", "a list", "an object"
EXPECTED_BY_ERROR_TYPE = {
    "string_type": A_STRING,
    "float_type": A_NUMBER,
    "finite_number": A_NUMBER,
    "bool_type": A_BOOLEAN,
    "list_type": A_LIST,
    **dict.fromkeys(("int_type", "int_from_float"), AN_INTEGER),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), AN_OBJECT),
}
"""The expected type, by the error type of pydantic."""
FIX_BY_EXPECTED = {
    A_STRING: "Put it in double quotes.",
    A_NUMBER: "Write a number such as 30 or 1.5.",
    AN_INTEGER: "Write a number such as 3.",
    A_BOOLEAN: "Write true or false, without quotes.",
    A_LIST: "Put it in brackets: […].",
    AN_OBJECT: "Write keys and values.",
}
UNQUOTED_VALUE_PATTERN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|true|false")
QUOTED_WORD_PATTERN = re.compile(r"'(\w+)'")


def expected_type(detail: ErrorDetails) -> str:
    """Return the type or value that pydantic expected."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error":
            return str(context["expected"])
        case "greater_than_equal":
            return f"at least {context['ge']:g}"
        case "string_too_short":
            return "a non-empty string"
        case "string_too_long":
            return f"a string of at most {context['max_length']} characters"
        case kind:
            return EXPECTED_BY_ERROR_TYPE.get(kind) or detail["msg"]


def describe_type_error(name: str, details: Sequence[ErrorDetails], keys: Sequence[str]) -> tuple[str, str]:
    """Return the message and the fix for an invalid value; `keys` are the keys of the expected object."""
    value = details[0]["input"]
    words = list(dict.fromkeys(map(expected_type, details)))
    return f"{name} must be {' or '.join(words)}, got {format_json_excerpt(value)}", suggest_type_fix(
        words, value, keys
    )


def suggest_type_fix(words: Sequence[str], value: Any, keys: Sequence[str]) -> str:
    if isinstance(value, str):
        if close := did_you_mean_hint(value, QUOTED_WORD_PATTERN.findall(" ".join(words))):
            return close.removeprefix(". ")
        if UNQUOTED_VALUE_PATTERN.fullmatch(value):
            return "Write it without quotes."
    if words == [AN_OBJECT] and keys:
        return f"Keys: {', '.join(keys)}."
    return FIX_BY_EXPECTED.get(words[0], "Change the value.")


def format_json_excerpt(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
