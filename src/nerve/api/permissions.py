"""Permissions: what the token of each scope may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.callers import Caller, Grant, Scope
from nerve.api.errors import ApiError
from nerve.api.operations import Operation
from nerve.dataspace import Pattern
from nerve.dataspace.builtin_records import DEFINITION_LABEL
from nerve.errors import NerveError

ALLOWED_SCOPES: dict[Grant, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "answer": frozenset({"read", "answer"}),
    "run": frozenset({"read", "run"}),
    "member": frozenset({"read", "answer", "run"}),
    "admin": frozenset({"read", "answer", "run", "admin"}),
}
"""What the token of each scope may do. "run" does not include "answer", so starting is not approving."""


def check_permission(caller: Caller, operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Raise ApiError if the caller may not execute an operation; code in this process may do everything.

    A fact that can define a workflow needs the scope of `define`.
    """
    changes_facts = operation.name in ("assert_fact", "retract")
    is_definition = changes_facts and can_define_workflow(arguments.get("fact"))
    require_scope(caller, "admin" if is_definition else operation.scope)


def permits(caller: Caller, scope: Scope) -> bool:
    """Whether the token of the caller includes a scope."""
    return caller.scope is None or scope in ALLOWED_SCOPES[caller.scope]


def require_scope(caller: Caller, scope: Scope) -> None:
    """Raise ApiError if the token of the caller does not include a scope."""
    if not permits(caller, scope):
        other = f" for '{scope}', or" if scope != "admin" else ""
        raise ApiError(
            "forbidden", f"A token for '{caller.scope}' is not sufficient", f"Use a token{other} for 'admin'."
        )


def can_define_workflow(fact: Any) -> bool:
    """Return whether a record or a pattern can match definitions."""
    try:
        return Pattern.of(fact).label.matches(DEFINITION_LABEL, {})
    except (NerveError, ValueError, TypeError):
        return False  # the operation itself rejects an invalid value
