"""A place among tokens, and what can be asked and demanded there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from nerve.expr import words
from nerve.expr.errors import ExprError
from nerve.expr.lexer import Token
from nerve.expr.limits import Limits


class Cursor:
    """Goes through the tokens of one source, and counts how deep the nesting is."""

    def __init__(self, source: str, tokens: Sequence[Token], limits: Limits) -> None:
        self.source, self.tokens, self.limits = source, tokens, limits
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, count: int) -> Token:
        return self.tokens[min(self.at + count, len(self.tokens) - 1)]

    def operator(self, *texts: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "operator" and token.text in texts

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def took(self, text: str) -> bool:
        if self.operator(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if not self.operator(text):
            if self.token.kind == "end":
                self.fail(f"`{text}` is missing at the end")
            self.fail_unexpected(f"`{text}` is expected here")
        return self.take()

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        raise ExprError(message, self.source, token.offset, len(token.text))

    def fail_unexpected(self, expected: str = "") -> NoReturn:
        token = self.token
        if token.kind == "end":
            self.fail("the expression ends too early")
        reason = (
            words.OPERATORS.get(token.text) if token.kind == "operator" else words.KEYWORDS.get(token.text)
        )
        hint = words.ELSEWHERE.get(token.text, "") if token.kind == "name" else ""
        self.fail(reason or (not hint and expected) or f"unexpected `{token.text}`{hint}")

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > self.limits.nesting:
            self.fail(f"nested deeper than {self.limits.nesting} levels")
        yield
        self.depth -= 1

    def ended(self) -> bool:
        return self.token.kind == "end"
