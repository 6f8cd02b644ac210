"""Validate a document against the models; every problem has a position."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.core.json_codec import encode_json
from nerve.core.suggest import closest_name, did_you_mean_hint
from nerve.spec import models
from nerve.spec.key_suggestions import describe_unknown_key, suggest_keys
from nerve.text.source import Document, Loc, Problem

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
    excerpt = json.dumps(value, default=str, ensure_ascii=False)
    excerpt = excerpt if len(excerpt) <= 60 else excerpt[:57] + "..."
    return f"{name} must be {' or '.join(words)}, got {excerpt}", suggest_type_fix(words, value, keys)


def suggest_type_fix(words: Sequence[str], value: Any, keys: Sequence[str]) -> str:
    if isinstance(value, str):
        if close := did_you_mean_hint(value, QUOTED_WORD_PATTERN.findall(" ".join(words))):
            return close.removeprefix(". ")
        if UNQUOTED_VALUE_PATTERN.fullmatch(value):
            return "Write it without quotes."
    if words == [AN_OBJECT] and keys:
        return f"Keys: {', '.join(keys)}."
    return FIX_BY_EXPECTED.get(words[0], "Change the value.")


def validate_document(document: Document) -> tuple[models.WorkflowSpec | None, list[Problem]]:
    """Return the spec, or None and the problems of the document."""
    try:
        return models.WorkflowSpec.model_validate(document.data), []
    except ValidationError as error:
        return None, sorted({*problems_from_errors(document, error.errors(include_url=False))})
    except RecursionError:
        return None, [document.problem((), "The document is nested too deeply", "Nest at most 64 levels.")]


def problems_from_errors(document: Document, details: list[ErrorDetails]) -> Iterator[Problem]:
    """Yield one problem per value, where pydantic reports one for each alternative of a union."""
    errors_by_loc: dict[Loc, list[ErrorDetails]] = {}
    for detail in details:
        errors_by_loc.setdefault(location_path(document.data, detail), []).append(detail)
    parent_locs = {loc[:n] for loc in errors_by_loc for n in range(len(loc))}
    for loc, loc_errors in errors_by_loc.items():
        kinds = {detail["type"] for detail in loc_errors}
        if "union_tag_invalid" in kinds or "union_tag_not_found" in kinds:
            yield unknown_kind_problem(document, loc)
        elif "extra_forbidden" in kinds:
            yield document.problem(
                loc, *describe_unknown_key(str(loc[-1]), sibling_keys(document, loc)), key=True
            )
        elif "missing" in kinds:
            parent = value_at_loc(document.data, loc[:-1])
            if loc[-1] not in suggest_keys(parent, sibling_keys(document, loc)):
                yield document.problem(loc[:-1], f"'{loc[-1]}' is missing", f"Add {loc[-1]}.")
        elif loc not in parent_locs:
            yield document.problem(loc, *describe_type_error(value_label(loc), loc_errors, child_keys(loc)))


def unknown_kind_problem(document: Document, loc: Loc) -> Problem:
    node = value_at_loc(document.data, loc)
    kind = node.get("kind") if isinstance(node, dict) else None
    known = ", ".join(models.KINDS)
    if kind is None:
        keys = node if isinstance(node, dict) else ()
        if (misspelt := next((key for key in keys if closest_name(key, ["kind"])), None)) is not None:
            return document.problem((*loc, misspelt), *describe_unknown_key(misspelt, ["kind"]), key=True)
        return document.problem(loc, "A node needs a 'kind'", f"Known: {known}.")
    close = did_you_mean_hint(str(kind), models.KINDS)
    fix = "" if close else f"Known: {known}."
    return document.problem((*loc, "kind"), f"Unknown kind '{kind}'{close}", fix)


def value_label(loc: Loc) -> str:
    """Return the name of a value in messages: its key, or its number in the list."""
    key = next((step for step in reversed(loc) if isinstance(step, str)), "A workflow")
    match loc:
        case (*_, int() as index):
            return f"Item {index + 1} of '{key}'"
        case ():
            return key
    return f"'{key}'"


def location_path(data: Any, detail: ErrorDetails) -> Loc:
    """Return the location in the document, without the model names that pydantic adds."""
    location: list[str | int] = []
    node, tagged, last = data, False, len(detail["loc"]) - 1
    for n, step in enumerate(detail["loc"]):
        absent = n == last and detail["type"] == "missing"
        if isinstance(node, dict) and not tagged and node.get("kind") == step:
            tagged = True
        elif isinstance(node, dict) and isinstance(step, str) and (step in node or absent):
            location.append(step)
            node, tagged = node.get(step), False
        elif isinstance(node, list) and isinstance(step, int):
            location.append(step)
            node, tagged = node[step] if step < len(node) else None, False
    return tuple(location)


def value_at_loc(data: Any, loc: Loc) -> Any:
    for step in loc:
        data = data[step]
    return data


def sibling_keys(document: Document, loc: Loc) -> list[str]:
    """Return the keys that are allowed in the object that contains a key."""
    kind = models.KINDS.get(str(value_at_loc(document.data, loc[:-1]).get("kind")))
    return list(kind.model_fields) if kind else child_keys(loc[:-1]) or list(models.WorkflowSpec.model_fields)


def child_keys(loc: Loc) -> list[str]:
    """Return the allowed keys of an object without a kind; empty if its model is unknown."""
    if loc[:1] == ("limits",):
        return list(models.LimitsSpec.model_fields)
    model = next((MODEL_BY_KEY[step] for step in reversed(loc) if step in MODEL_BY_KEY), None)
    return list(model.model_fields) if model else []


MODEL_BY_KEY: dict[str | int, type[models.SpecModel]] = {
    "states": models.StateSpec,
    "next": models.TransitionSpec,
    "any": models.ConditionSpec,
    "expect": models.ExpectSpec,
    "retry": models.RetrySpec,
    "inputs": models.InputSpec,
    "limits": models.StepLimitsSpec,
    "permissions": models.PermissionsSpec,
    "mcp": models.McpServerSpec,
    "hooks": models.HookSpec,
    "subagents": models.SubagentSpec,
}
"""The model of an object without a kind, by the key that contains it."""


def plain_form(spec: models.WorkflowSpec) -> dict[str, Any]:
    """Return the spec as plain data without default values."""
    return spec.model_dump(mode="json", exclude_defaults=True)


def canonical_spec(spec: models.WorkflowSpec) -> str:
    """Return the canonical JSON of a spec: equal workflows have equal text."""
    return encode_json(plain_form(spec), canonical=True)


def spec_hash(spec: models.WorkflowSpec) -> str:
    return sha256(canonical_spec(spec).encode()).hexdigest()
