"""Bad usage: one clear sentence and exit code 2."""

from __future__ import annotations


def with_full_stop(sentence: str) -> str:
    """A sentence with its full stop; a question that was added to it is the end."""
    return sentence if sentence.endswith(("?", ".", "!")) else f"{sentence}."


class UsageError(Exception):
    """What was asked for cannot be done; the message says what can."""

    code = "bad_request"
    """As the api says it: the same with a server and without."""


class NameNotFound(UsageError):
    """Nothing is called that."""

    code = "not_found"


class AmbiguousName(UsageError):
    """More than one thing is called that."""

    code = "conflict"
