"""Usage errors, which exit with code 2."""

from __future__ import annotations


def with_full_stop(sentence: str) -> str:
    """Return the sentence with a full stop, unless it already ends in punctuation."""
    return sentence if sentence.endswith(("?", ".", "!")) else f"{sentence}."


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
