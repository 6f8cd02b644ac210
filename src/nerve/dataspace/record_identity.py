"""By what a newer record replaces an older one, and other spellings of the records everybody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Field = str | int
"""A named field, or the number of a positional one."""

IDENTITY_FIELDS: Mapping[str, tuple[Field, ...]] = {
    "signal": (0, "key"),
    "workflow-definition": ("id",),
    "workflow-instance": ("definition", "label"),
    "workflow/state": ("run",),
    "workflow/log": ("run", "seq"),
    "agent-request": ("run", "request-id"),
    "agent-response": ("run", "request-id"),
}
"""A record with another label is replaced by nothing: it is the same fact only as an equal record."""

REQUIRED_IDENTITY_FIELD = {"workflow-instance": "label"}
"""Without this field a record is its whole value: two nameless instances are two."""

LABEL_ALIASES = {"workflow/definition": "workflow-definition", "workflow/instance": "workflow-instance"}
FIELD_ALIASES = {"signal": {"scope": "key"}}
DEFAULT_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "signal": {"key": None, "value": None},
    "agent-response": {"request-id": None, "text": ""},
}


def normalize_spelling(label: str, named_fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The label and the named fields in the usual spelling."""
    label = LABEL_ALIASES.get(label, label)
    aliases = FIELD_ALIASES.get(label, {})
    renamed_fields = {name for name, usual in aliases.items() if usual not in named_fields}
    return label, {
        aliases[name] if name in renamed_fields else name: value for name, value in named_fields.items()
    }


def identity_fields(label: str, named_fields: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """The fields that make up the identity of such a record; None where all of it does."""
    needed = REQUIRED_IDENTITY_FIELD.get(label)
    if needed is not None and named_fields.get(needed) is None:
        return None
    return IDENTITY_FIELDS.get(label)


def first_field(label: str) -> Field:
    """The field by which the records of a label are told apart first."""
    return IDENTITY_FIELDS.get(label, (0,))[0]
