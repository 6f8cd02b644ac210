"""The identity of records, and aliases of built-in records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Field = str | int
"""The name of a named field, or the index of a positional one."""

IDENTITY_FIELDS: Mapping[str, tuple[Field, ...]] = {
    "signal": (0, "key"),
    "workflow-definition": ("id",),
    "workflow-instance": ("definition", "label"),
    "workflow/state": ("run",),
    "workflow/log": ("run", "seq"),
    "agent-request": ("run", "request-id"),
    "agent-response": ("run", "request-id"),
}
"""The fields that identify a record. With any other label, the whole record is its identity."""

REQUIRED_IDENTITY_FIELD = {"workflow-instance": "label"}
"""Without this field the whole record is its identity: two instances without a label are distinct."""

LABEL_ALIASES = {"workflow/definition": "workflow-definition", "workflow/instance": "workflow-instance"}
FIELD_ALIASES = {"signal": {"scope": "key"}}
DEFAULT_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "signal": {"key": None, "value": None},
    "agent-response": {"request-id": None, "text": ""},
}


def normalize_spelling(label: str, named_fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the label and the named fields without aliases."""
    label = LABEL_ALIASES.get(label, label)
    aliases = FIELD_ALIASES.get(label, {})
    renamed_fields = {name for name, usual in aliases.items() if usual not in named_fields}
    return label, {
        aliases[name] if name in renamed_fields else name: value for name, value in named_fields.items()
    }


def identity_fields(label: str, named_fields: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """Return the fields that identify a record; None for the whole record."""
    needed = REQUIRED_IDENTITY_FIELD.get(label)
    if needed is not None and named_fields.get(needed) is None:
        return None
    return IDENTITY_FIELDS.get(label)


def first_field(label: str) -> Field:
    """Return the first identity field of a label."""
    return IDENTITY_FIELDS.get(label, (0,))[0]
