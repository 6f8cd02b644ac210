"""How an error is told: one sentence, and what to do."""

from __future__ import annotations

from nerve.api import ApiError
from nerve.commander.core.harmless import harmless
from nerve.errors import NerveError


def sentence(error: ApiError) -> str:
    message = harmless(error.message).strip()
    told = message[:1].upper() + message[1:] + ("" if message.endswith((".", "!", "?")) else ".")
    return f"{told} {error.fix}".rstrip()


def why(error: Exception) -> str:
    """Any error that can be met while something is done, as a person is told it."""
    match error:
        case ApiError():
            return sentence(error)
        case OSError():
            return f"{error.filename or 'The system'}: {error.strerror or error}."
        case ValueError() | NerveError():
            return harmless(str(error))
    return unforeseen(error)


def unforeseen(error: Exception) -> str:
    return harmless(f"Something went wrong inside ({type(error).__name__}: {error}).")
