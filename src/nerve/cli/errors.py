"""Usage errors, which exit with code 2."""

from __future__ import annotations

from collections.abc import Collection

from nerve.core.suggest import did_you_mean_hint


def check_action(action: str | None, actions: Collection[str], usage: str = "") -> None:
    """Raise UsageError for an action that a command does not have; `usage` shows how to write them."""
    if action is not None and action not in actions:
        hint = did_you_mean_hint(action, actions) or f". Use {usage or ', '.join(actions)}."
        raise UsageError(f"Unknown action '{action}'{hint}")


class UsageError(Exception):
    """A command that cannot be executed as given; the message says what to change."""

    code = "bad_request"
    """The error code of the API, so that it is the same with and without a server."""


class InvalidInputs(UsageError):
    """The inputs do not fit the workflow; the help of the workflow describes them."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


class NameNotFound(UsageError):
    """No file, workflow or run has the given name."""

    code = "not_found"


class AmbiguousName(UsageError):
    """More than one name matches."""

    code = "conflict"
