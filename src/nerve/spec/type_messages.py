"""What a value must be that is something else: pydantic's words in ours, and the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.suggest import did_you_mean_hint

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

A_TEXT, A_NUMBER, A_WHOLE_NUMBER = "a text", "a number", "a whole number"
A_FLAG, A_LIST, AN_OBJECT = "true or false", "a list", "an object"
EXPECTED_BY_ERROR_TYPE = {
    "string_type": A_TEXT,
    "float_type": A_NUMBER,
    "finite_number": A_NUMBER,
    "bool_type": A_FLAG,
    "list_type": A_LIST,
    **dict.fromkeys(("int_type", "int_from_float"), A_WHOLE_NUMBER),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), AN_OBJECT),
}
"""What was wanted, by the name that pydantic has for being something else."""
FIX_BY_EXPECTED = {
    A_TEXT: "Put it in double quotes.",
    A_NUMBER: "Write a number such as 30 or 1.5.",
    A_WHOLE_NUMBER: "Write a number such as 3.",
    A_FLAG: "Write true or false, without quotes.",
    A_LIST: "Put it in brackets: […].",
    AN_OBJECT: "Give it keys and values.",
}
UNQUOTED_VALUE_PATTERN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|true|false")
QUOTED_WORD_PATTERN = re.compile(r"'(\w+)'")


def expected_type(detail: ErrorDetails) -> str:
    """What pydantic would have taken."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error":
            return str(context["expected"])
        case "greater_than_equal":
            return f"at least {context['ge']:g}"
        case "string_too_short":
            return "a text that is not empty"
        case "string_too_long":
            return f"a text of at most {context['max_length']} characters"
        case kind:
            return EXPECTED_BY_ERROR_TYPE.get(kind) or detail["msg"]


def describe_type_error(name: str, details: Sequence[ErrorDetails], keys: Sequence[str]) -> tuple[str, str]:
    """What is wrong with a value, and the fix; `keys` are those of the object that it could be."""
    value = details[0]["input"]
    words = list(dict.fromkeys(map(expected_type, details)))
    return f"{name} must be {' or '.join(words)}, not {format_json_excerpt(value)}", suggest_type_fix(
        words, value, keys
    )


def suggest_type_fix(words: Sequence[str], value: Any, keys: Sequence[str]) -> str:
    if isinstance(value, str):
        if close := did_you_mean_hint(value, QUOTED_WORD_PATTERN.findall(" ".join(words))):
            return close.removeprefix(". ")
        if UNQUOTED_VALUE_PATTERN.fullmatch(value):
            return "Write it without quotes."
    if words == [AN_OBJECT] and keys:
        return f"Its keys: {', '.join(keys)}."
    return FIX_BY_EXPECTED.get(words[0], "Change it.")


def format_json_excerpt(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
