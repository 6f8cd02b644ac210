"""Validating: a document as it was read, against the models; every problem with its place."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.core.suggest import suggest
from nerve.core.values import encode
from nerve.spec import models
from nerve.spec.source import Document, Loc, Problem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def validate(document: Document) -> tuple[models.WorkflowSpec | None, list[Problem]]:
    """The spec, or what is wrong with the shape of the document."""
    try:
        return models.WorkflowSpec.model_validate(document.data), []
    except ValidationError as error:
        told = [told_of(document, detail) for detail in error.errors(include_url=False)]
        return None, sorted(set(told))
    except RecursionError:
        return None, [document.problem((), "is nested too deep", "Nest at most 64 levels.")]


def told_of(document: Document, detail: ErrorDetails) -> Problem:
    loc, node = way_of(document.data, detail["loc"])
    kind, name = detail["type"], str(loc[-1]) if loc else ""
    if kind == "extra_forbidden":
        known = fields_of(node, loc)
        close = suggest(name, known)
        fix = "" if close else f"Known: {', '.join(known)}."
        return document.problem(loc, f"unknown key '{name}'{close}", fix, key=True)
    if kind == "missing":
        return document.problem(loc[:-1], f"'{name}' is missing", f"Add {name}.")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return unknown_kind(document, loc)
    what = f"'{name}': " if name else ""
    return document.problem(loc, f"{what}{wrong(detail)}")


def unknown_kind(document: Document, loc: Loc) -> Problem:
    node = at(document.data, loc)
    given = node.get("kind") if isinstance(node, dict) else None
    known = ", ".join(models.KINDS)
    if given is None:
        return document.problem(loc, "a node needs a 'kind'", f"It is one of: {known}.")
    return document.problem(
        (*loc, "kind"), f"unknown kind '{given}'{suggest(str(given), models.KINDS)}", f"Known: {known}."
    )


def wrong(detail: ErrorDetails) -> str:
    """What pydantic says, and what was given."""
    given = json.dumps(detail["input"], default=str, ensure_ascii=False)
    shown = given if len(given) <= 60 else given[:57] + "..."
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {shown}"


def way_of(data: Any, loc: tuple[int | str, ...]) -> tuple[Loc, Any]:
    """The way in the document without the names of models that pydantic adds, and the node it ends in."""
    way: list[str | int] = []
    node, around, tagged = data, data, False
    for n, step in enumerate(loc):
        if isinstance(node, dict) and not tagged and node.get("kind") == step:
            tagged = True
        elif isinstance(node, dict) and isinstance(step, str) and (step in node or n == len(loc) - 1):
            way.append(step)
            node, around, tagged = node.get(step), node, False
        elif isinstance(node, list) and isinstance(step, int):
            way.append(step)
            node, around, tagged = node[step] if step < len(node) else None, node, False
    return tuple(way), around


def at(data: Any, loc: Loc) -> Any:
    for step in loc:
        data = data[step]
    return data


def fields_of(node: Any, loc: Loc) -> list[str]:
    """The keys that may stand where an unknown one was found."""
    kind = node.get("kind") if isinstance(node, dict) else None
    around = [UNDER[step] for step in loc[:-1] if isinstance(step, str) and step in UNDER]
    inside = models.LimitsSpec if loc[0] == "limits" else around[-1] if around else models.WorkflowSpec
    model = models.KINDS.get(str(kind)) or inside
    return list(model.model_fields)


UNDER: dict[str, type[models.Model]] = {
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
