"""Required scopes that depend on the arguments: a fact can also define a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.operations import Operation, Scope
from nerve.dataspace import Pattern
from nerve.dataspace.builtin_records import DEFINITION_LABEL
from nerve.errors import NerveError


def required_scope(operation: Operation, arguments: Mapping[str, Any]) -> Scope:
    """Return the required scope; asserting a fact that defines a workflow needs the scope of `define`."""
    if operation.name in ("assert_fact", "retract") and can_define_workflow(arguments.get("fact")):
        return "admin"
    return operation.scope


def can_define_workflow(fact: Any) -> bool:
    """Return whether a record or a pattern can match definitions."""
    try:
        return Pattern.of(fact).label.matches(DEFINITION_LABEL, {})
    except (NerveError, ValueError, TypeError):
        return False  # the operation itself rejects an invalid value
