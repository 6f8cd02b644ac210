"""Validate a document against the models; every problem has a position."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.core.json_codec import encode_json
from nerve.core.suggest import closest_name, did_you_mean_hint
from nerve.spec import models
from nerve.spec.key_suggestions import describe_unknown_key, suggest_keys
from nerve.spec.type_messages import describe_type_error
from nerve.text.source import Document, Loc, Problem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


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
            yield from missing_key_problems(document, loc)
        elif loc not in parent_locs:
            yield document.problem(loc, *describe_type_error(value_label(loc), loc_errors, child_keys(loc)))


def missing_key_problems(document: Document, loc: Loc) -> Iterator[Problem]:
    """Yield a problem for a missing key, unless a misspelled key already has one."""
    parent = value_at_loc(document.data, loc[:-1])
    if loc[-1] not in suggest_keys(parent, sibling_keys(document, loc)):
        yield document.problem(loc[:-1], f"'{loc[-1]}' is missing", f"Add {loc[-1]}.")


def unknown_kind_problem(document: Document, loc: Loc) -> Problem:
    node = value_at_loc(document.data, loc)
    kind = node.get("kind") if isinstance(node, dict) else None
    known = ", ".join(models.KINDS)
    if kind is None:
        misspelt = (
            next((key for key in node if closest_name(key, ["kind"])), None)
            if isinstance(node, dict)
            else None
        )
        if misspelt is not None:
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
