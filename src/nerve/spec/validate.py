"""Validating: a document as it was read, against the models; every problem with its place."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.core.suggest import closest, suggest
from nerve.core.values import encode
from nerve.spec import models
from nerve.spec.meant import all_meant, unknown_key
from nerve.spec.source import Document, Loc, Problem
from nerve.spec.wanted import misfit

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def validate(document: Document) -> tuple[models.WorkflowSpec | None, list[Problem]]:
    """The spec, or what is wrong with the shape of the document."""
    try:
        return models.WorkflowSpec.model_validate(document.data), []
    except ValidationError as error:
        return None, sorted({*told(document, error.errors(include_url=False))})
    except RecursionError:
        return None, [document.problem((), "is nested too deep", "Nest at most 64 levels.")]


def told(document: Document, details: list[ErrorDetails]) -> Iterator[Problem]:
    """One problem for each value, where pydantic has one for everything that the value could have been."""
    found: dict[Loc, list[ErrorDetails]] = {}
    for detail in details:
        found.setdefault(way_of(document.data, detail), []).append(detail)
    looked_into = {loc[:n] for loc in found for n in range(len(loc))}
    for loc, here in found.items():
        kinds = {detail["type"] for detail in here}
        if "union_tag_invalid" in kinds or "union_tag_not_found" in kinds:
            yield unknown_kind(document, loc)
        elif "extra_forbidden" in kinds:
            yield document.problem(loc, *unknown_key(str(loc[-1]), keys_beside(document, loc)), key=True)
        elif "missing" in kinds:
            yield from missing(document, loc)
        elif loc not in looked_into:
            yield document.problem(loc, *misfit(name_of(loc), here, keys_under(loc)))


def missing(document: Document, loc: Loc) -> Iterator[Problem]:
    """That a key is missing, unless it is there under a name that is told to be wrong."""
    there = at(document.data, loc[:-1])
    if loc[-1] not in all_meant(there, keys_beside(document, loc)):
        yield document.problem(loc[:-1], f"'{loc[-1]}' is missing", f"Add {loc[-1]}.")


def unknown_kind(document: Document, loc: Loc) -> Problem:
    node = at(document.data, loc)
    given = node.get("kind") if isinstance(node, dict) else None
    known = ", ".join(models.KINDS)
    if given is None:
        misspelt = (
            next((key for key in node if closest(key, ["kind"])), None) if isinstance(node, dict) else None
        )
        if misspelt is not None:
            return document.problem((*loc, misspelt), *unknown_key(misspelt, ["kind"]), key=True)
        return document.problem(loc, "a node needs a 'kind'", f"It is one of: {known}.")
    close = suggest(str(given), models.KINDS)
    fix = "" if close else f"Known: {known}."
    return document.problem((*loc, "kind"), f"unknown kind '{given}'{close}", fix)


def name_of(loc: Loc) -> str:
    """What a value is called: by its key, or by its number in the list under one."""
    key = next((step for step in reversed(loc) if isinstance(step, str)), "a workflow")
    match loc:
        case (*_, int() as index):
            return f"item {index + 1} of '{key}'"
        case ():
            return key
    return f"'{key}'"


def way_of(data: Any, detail: ErrorDetails) -> Loc:
    """The way in the document, without the names of models that pydantic adds."""
    way: list[str | int] = []
    node, tagged, last = data, False, len(detail["loc"]) - 1
    for n, step in enumerate(detail["loc"]):
        absent = n == last and detail["type"] == "missing"
        if isinstance(node, dict) and not tagged and node.get("kind") == step:
            tagged = True
        elif isinstance(node, dict) and isinstance(step, str) and (step in node or absent):
            way.append(step)
            node, tagged = node.get(step), False
        elif isinstance(node, list) and isinstance(step, int):
            way.append(step)
            node, tagged = node[step] if step < len(node) else None, False
    return tuple(way)


def at(data: Any, loc: Loc) -> Any:
    for step in loc:
        data = data[step]
    return data


def keys_beside(document: Document, loc: Loc) -> list[str]:
    """The keys that may stand in the object around a key."""
    kind = models.KINDS.get(str(at(document.data, loc[:-1]).get("kind")))
    return list(kind.model_fields) if kind else keys_under(loc[:-1]) or list(models.WorkflowSpec.model_fields)


def keys_under(loc: Loc) -> list[str]:
    """The keys of an object without a kind; nothing if it is not known what it is."""
    if loc[:1] == ("limits",):
        return list(models.LimitsSpec.model_fields)
    found = next((UNDER[step] for step in reversed(loc) if step in UNDER), None)
    return list(found.model_fields) if found else []


UNDER: dict[str | int, type[models.Model]] = {
    "states": models.State,
    "next": models.Transition,
    "any": models.Condition,
    "expect": models.Expect,
    "retry": models.RetrySpec,
    "inputs": models.Input,
    "limits": models.StepLimits,
    "permissions": models.PermissionsSpec,
}
"""What an object without a kind is, by the key under which it stands."""


def plain_form(spec: models.WorkflowSpec) -> dict[str, Any]:
    """The spec as plain data, with nothing in it that would be there anyway."""
    return spec.model_dump(mode="json", exclude_defaults=True)


def canonical(spec: models.WorkflowSpec) -> str:
    """The one text of a spec: equal texts are equal workflows."""
    return encode(plain_form(spec), canonical=True)


def hash_of(spec: models.WorkflowSpec) -> str:
    return sha256(canonical(spec).encode()).hexdigest()
