"""Formatting of errors for users."""

from __future__ import annotations

from nerve.api import ApiError
from nerve.errors import NerveError
from nerve.ui.sanitize import sanitize_text


def api_error_sentence(error: ApiError) -> str:
    message = sanitize_text(error.message).strip()
    text = message[:1].upper() + message[1:] + ("" if message.endswith((".", "!", "?")) else ".")
    return f"{text} {error.fix}".rstrip()


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
