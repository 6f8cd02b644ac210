"""Errors with a position in the source: the message, the line and a caret."""

from __future__ import annotations

from collections.abc import Iterable

from nerve.errors import NerveError

MAX_EXCERPT_CHARS = 100


class SourceError(NerveError):
    """An error at a position in the source of an expression."""

    def __init__(self, message: str, source: str, offset: int = 0, length: int = 1) -> None:
        super().__init__(message, source, offset, length)
        self.message, self.source = message, source
        self.offset, self.length = offset, max(length, 1)

    @property
    def line(self) -> int:
        """The line in the source, starting at 1."""
        return self.source.count("\n", 0, self.offset) + 1

    @property
    def column(self) -> int:
        """The column in the line, starting at 1."""
        return self.offset - self.source.rfind("\n", 0, self.offset)

    def __str__(self) -> str:
        return f"{self.message}\n{line_with_caret(self.source, self.offset, self.length)}"


class ExprError(SourceError, ValueError):
    """An expression that cannot be compiled; the message contains the problem and the fix."""


class EvalError(SourceError, RuntimeError):
    """An expression that could not be evaluated with its values."""


class EvaluationRefused(Exception):
    """An operation on values that is not allowed; becomes an EvalError where the position is known."""


def line_with_caret(source: str, offset: int, length: int) -> str:
    """Return the line at `offset` with a caret under it; a long line is cut around the offset."""
    start = source.rfind("\n", 0, offset) + 1
    end = source.find("\n", offset)
    line = source[start : end if end >= 0 else len(source)]
    at = offset - start
    cut = max(0, at - MAX_EXCERPT_CHARS // 2) if len(line) > MAX_EXCERPT_CHARS else 0
    excerpt = line[cut : cut + MAX_EXCERPT_CHARS]
    before = "".join(character if character == "\t" else " " for character in excerpt[: at - cut])
    return f"    {excerpt}\n    {before}{'^' * max(1, min(length, len(excerpt) - (at - cut)))}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if a known name is close to `name`, else an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=1, cutoff=0.65)
    return f"; did you mean `{close[0]}`?" if close else ""
