"""A cursor over tokens, for the parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from nerve.expr import reserved_names
from nerve.expr.errors import ExprError
from nerve.expr.lexer import Token
from nerve.expr.limits import EvaluationLimits


class TokenCursor:
    """Advance through the tokens of one source and track the nesting depth."""

    def __init__(self, source: str, tokens: Sequence[Token], limits: EvaluationLimits) -> None:
        self.source, self.tokens, self.limits = source, tokens, limits
        self.position = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, count: int) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def is_operator(self, *texts: str) -> bool:
        token = self.tokens[self.position]
        return token.kind == "operator" and token.text in texts

    def advance(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.is_operator(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if not self.is_operator(text):
            if self.token.kind == "end":
                self.fail(f"`{text}` is missing at the end")
            self.fail_unexpected(f"Expected `{text}`")
        return self.advance()

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        raise ExprError(message, self.source, token.offset, len(token.text))

    def fail_unexpected(self, expected: str = "") -> NoReturn:
        token = self.token
        if token.kind == "end":
            self.fail("Unexpected end of the expression")
        reason = (
            reserved_names.OPERATOR_MESSAGES.get(token.text)
            if token.kind == "operator"
            else reserved_names.KEYWORD_MESSAGES.get(token.text)
        )
        hint = reserved_names.OTHER_LANGUAGE_HINTS.get(token.text, "") if token.kind == "name" else ""
        self.fail(reason or (not hint and expected) or f"Unexpected `{token.text}`{hint}")

    @contextmanager
    def enter_nesting(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > self.limits.nesting:
            self.fail(f"Nested deeper than {self.limits.nesting} levels")
        yield
        self.depth -= 1

    def is_at_end(self) -> bool:
        return self.token.kind == "end"
