"""By what a newer record replaces an older one, and other spellings of the records everybody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Field = str | int
"""A named field, or the number of a positional one."""

IDENTITY: Mapping[str, tuple[Field, ...]] = {
    "signal": (0, "key"),
    "workflow-definition": ("id",),
    "workflow-instance": ("definition", "label"),
    "workflow/state": ("run",),
    "workflow/log": ("run", "seq"),
    "agent-request": ("run", "request-id"),
    "agent-response": ("run", "request-id"),
}
"""A record with another label is replaced by nothing: it is the same fact only as an equal record."""

NEEDED = {"workflow-instance": "label"}
"""Without this field a record is its whole value: two nameless instances are two."""

LABELS = {"workflow/definition": "workflow-definition", "workflow/instance": "workflow-instance"}
NAMES = {"signal": {"scope": "key"}}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "signal": {"key": None, "value": None},
    "agent-response": {"request-id": None, "text": ""},
}


def spelled(label: str, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The label and the named fields in the usual spelling."""
    label = LABELS.get(label, label)
    names = NAMES.get(label, {})
    taken = {name for name, usual in names.items() if usual not in named}
    return label, {names[name] if name in taken else name: value for name, value in named.items()}


def identity_fields(label: str, named: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """The fields that make up the identity of such a record; None where all of it does."""
    needed = NEEDED.get(label)
    if needed is not None and named.get(needed) is None:
        return None
    return IDENTITY.get(label)


def first_field(label: str) -> Field:
    """The field by which the records of a label are told apart first."""
    return IDENTITY.get(label, (0,))[0]
