"""Compiled expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from nerve.expr import analysis, nodes
from nerve.expr.analysis import Path
from nerve.expr.closures import Compiler
from nerve.expr.errors import EvalError, ExprError, Refused
from nerve.expr.export import exported
from nerve.expr.frame import Frame
from nerve.expr.lexer import Lexer, Token
from nerve.expr.limits import DEFAULT, Limits
from nerve.expr.parser import Parser
from nerve.expr.values import Value

TOO_DEEP = "nested too deeply for this stack"
DEEPEST = 200
"""Levels of the tree; more than that and Python's stack would be the limit."""


class Expression:
    """An expression that can be evaluated as often as wanted; it holds no state."""

    __slots__ = (
        *("cost", "names", "offset", "opaque_names", "paths", "source"),
        *("_fuel", "_limits", "_run", "_slots", "_text"),
    )

    def __init__(self, text: str, start: int, end: int, tree: nodes.Node, slots: int, limits: Limits) -> None:
        self.source = text[start:end]
        """The expression's own text."""
        self.offset = start
        """Where it begins in the template it is part of, else 0."""
        self.names: frozenset[str] = analysis.names(tree)
        """The free names it uses."""
        self.paths: frozenset[Path] = analysis.paths(tree)
        """How far each use of a free name is read by keys that are written down."""
        self.opaque_names = frozenset(path[0] for path in self.paths if len(path) == 1)
        """The names that are used whole, or read by a computed key."""
        self._text, self._limits, self._slots = text, limits, slots
        self.cost = analysis.cost(tree)
        """The steps that it takes in any case."""
        self._fuel = limits.fuel - self.cost
        self._run = Compiler(text).compile(tree)

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        """Evaluate with the values of `scope`; what comes back is JSON."""
        frame = Frame(scope, self._limits, self._fuel)
        try:
            value = self.evaluate(frame) if self._slots else self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP) from None
        return value if value is True or value is False else self.leave(frame, value)

    def evaluate(self, frame: Frame) -> Value:
        """The value inside an evaluation, where undefined and NaN are still there."""
        frame.slots = [None] * self._slots
        try:
            return self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP) from None

    def error(self, message: str) -> EvalError:
        """An error of the whole expression, at its place in the text."""
        return EvalError(message, self._text, self.offset, len(self.source))

    def leave(self, frame: Frame, value: Value) -> Any:
        """A value of an evaluation as JSON."""
        try:
            return exported(frame, value)
        except Refused as error:
            raise self.error(str(error)) from None

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile(
    source: str,
    names: Iterable[str] | None = None,
    *,
    hyphens: Iterable[str] = (),
    limits: Limits = DEFAULT,
) -> Expression:
    """Compile an expression.

    `names` are the free names in sight, None for any; `hyphens` are ids with hyphens known after a dot.
    """
    return _compiled(source, None if names is None else frozenset(names), frozenset(hyphens), limits)


@lru_cache(maxsize=1024)
def _compiled(
    source: str, names: frozenset[str] | None, hyphens: frozenset[str], limits: Limits
) -> Expression:
    if len(source) > limits.source:
        message = f"an expression has at most {limits.source:,} characters, and this has {len(source):,}"
        raise ExprError(message, source)
    tokens = Lexer(source, limits=limits, hyphens=hyphens).tokens_to_end()
    return build(source, tokens, 0, len(source), names, limits)


def build(
    text: str, tokens: Sequence[Token], start: int, end: int, names: frozenset[str] | None, limits: Limits
) -> Expression:
    """The expression of some tokens, which stand in `text` from `start` to `end`."""
    try:
        parser = Parser(text, tokens, names, limits)
        tree = parser.parse()
        if analysis.depth(tree) > DEEPEST:
            raise ExprError(f"more than {DEEPEST} operators within each other", text, start)
        return Expression(text, start, end, tree, parser.slots, limits)
    except RecursionError:
        raise ExprError(TOO_DEEP, text, start) from None
