"""Formatting of failures: one line with the place in the user's code, or the whole traceback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nerve.api import ApiError
from nerve.core.run_view import NodeView, RunView
from nerve.errors import NerveError
from nerve.ui.sanitize import INDENT, sanitize_text

MAX_SHOWN_STEPS = 5
"""Failed steps whose tracebacks the status of a run shows; the newest."""


def failure_line(failure: Mapping[str, Any]) -> str:
    """Return the first line of the error in the data of an event, with type and place of an exception."""
    error = str(failure.get("error") or "").strip()
    first_line = error.splitlines()[0].strip() if error else ""
    return failure_text(first_line, failure.get("error_type"), failure.get("location"))


def failure_text(error: str | None, error_type: str | None, location: str | None) -> str:
    """Return an error; that of an exception with its type and its place in the user's code."""
    text = error or error_type or ""
    if not location:
        return text
    # The message of an exception without text is its type.
    named = text if not error_type or text.startswith(error_type) else f"{error_type}: {text}"
    return f"{named} ({location})"


def traceback_lines(traceback: str | None) -> list[str]:
    """Return the lines of a traceback, indented and safe for a terminal."""
    return [f"{INDENT}{line}" for line in sanitize_text(traceback or "").splitlines()]


def failed_run_lines(view: RunView) -> Iterator[str]:
    """Yield the tracebacks of a failed run: of its newest failed steps, and of its own code."""
    if view.state == "failed":
        yield from failed_step_lines(view.nodes.values())
        yield from traceback_lines(view.traceback)


def failed_step_lines(nodes: Iterable[NodeView]) -> Iterator[str]:
    failed = [node for node in nodes if node.state == "failed" and node.traceback]
    for node in failed[-MAX_SHOWN_STEPS:]:
        yield sanitize_text(f"{INDENT}step {node.path}:")
        yield from traceback_lines(node.traceback)


# -- errors of commands --------------------------------------------------------------------------------


def api_error_sentence(error: ApiError) -> str:
    text = sanitize_text(error.sentences).strip()
    return text[:1].upper() + text[1:]


def format_any_error(error: Exception) -> str:
    """Format any exception for the user."""
    match error:
        case ApiError():
            return api_error_sentence(error)
        case OSError():
            return f"{error.filename or 'The system'}: {error.strerror or error}."
        case ValueError() | NerveError():
            return sanitize_text(str(error))
    return format_unexpected_error(error)


def format_unexpected_error(error: Exception) -> str:
    return sanitize_text(f"Internal error: {type(error).__name__}: {error}")
