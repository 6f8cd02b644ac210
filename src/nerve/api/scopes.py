"""What an operation needs that its name does not tell: a fact can define a workflow, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.operations import Operation, Scope
from nerve.dataspace import Pattern
from nerve.dataspace.builtin_records import DEFINITION_LABEL
from nerve.errors import NerveError


def required_scope(operation: Operation, arguments: Mapping[str, Any]) -> Scope:
    """Who may ask for this: whoever defines a workflow by a fact must be one who may define workflows."""
    if operation.name in ("assert_fact", "retract") and can_define_workflow(arguments.get("fact")):
        return "admin"
    return operation.scope


def can_define_workflow(fact: Any) -> bool:
    """Whether definitions are among what a record or a pattern means."""
    try:
        return Pattern.of(fact).label.matches(DEFINITION_LABEL, {})
    except (NerveError, ValueError, TypeError):
        return False  # what is neither is refused when it is looked at
