"""Compiled expressions, and their results as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from nerve.expr import analysis, ast, numbers, utf16
from nerve.expr.analysis import NamePath
from nerve.expr.compiler import Compiler
from nerve.expr.errors import EvalError, EvaluationRefused, ExprError
from nerve.expr.frame import DEFAULT_LIMITS, EvaluationLimits, Frame
from nerve.expr.lexer import Lexer, Token
from nerve.expr.parser import Parser
from nerve.expr.values import UNDEFINED, ArrayValue, ObjectValue, Value, value_from_host


def to_json(frame: Frame, value: Value, depth: int = 0) -> Any:
    """Return the value as JSON; host data is returned without a copy."""
    kind = type(value)
    if value is None or value is UNDEFINED:
        return None
    if kind is bool or kind is int:
        return value
    if kind is float:
        return numbers.int_if_safe(value + 0.0) if math.isfinite(value) else None
    if kind is str:
        frame.charge_scan(len(value))
        return utf16.require_whole_characters(value)
    frame.charge_visit(depth)
    if kind is ArrayValue:
        frame.charge_items(len(value))
        return [to_json(frame, item, depth + 1) for item in value]
    if kind is ObjectValue or (kind is not dict and isinstance(value, Mapping)):
        frame.charge_items(2 * len(value))
        return {
            utf16.require_whole_characters(key): to_json(frame, value_from_host(item), depth + 1)
            for key, item in value.items()
            if item is not UNDEFINED
        }
    return list(value) if kind is tuple else value


TOO_DEEP_MESSAGE = "Nested too deeply for the Python stack"
MAX_TREE_DEPTH = 200
"""The maximum depth of the tree; beyond it, Python's stack would be the limit."""


class Expression:
    """A compiled, stateless expression that can be evaluated repeatedly."""

    __slots__ = (
        *("cost", "names", "offset", "opaque_names", "paths", "source"),
        *("_fuel", "_limits", "_run", "_slots", "_text"),
    )

    def __init__(
        self, text: str, start: int, end: int, tree: ast.Node, slots: int, limits: EvaluationLimits
    ) -> None:
        self.source = text[start:end]
        """The text of the expression."""
        self.offset = start
        """The start of the expression in its template, else 0."""
        self.names: frozenset[str] = analysis.free_names(tree)
        """The free names it uses."""
        self.paths: frozenset[NamePath] = analysis.free_name_paths(tree)
        """Each use of a free name with the literal keys that are read from it."""
        self.opaque_names = frozenset(path[0] for path in self.paths if len(path) == 1)
        """The names that are used as a whole, or read by a computed key."""
        self._text, self._limits, self._slots = text, limits, slots
        self.cost = analysis.evaluation_cost(tree)
        """The minimum number of steps of an evaluation."""
        self._fuel = limits.fuel - self.cost
        self._run = Compiler(text).compile(tree)

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        """Evaluate with the values of `scope` and return JSON."""
        frame = Frame(scope, self._limits, self._fuel)
        try:
            value = self.evaluate(frame) if self._slots else self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP_MESSAGE) from None
        return value if value is True or value is False else self.value_to_json(frame, value)

    def evaluate(self, frame: Frame) -> Value:
        """Return the value inside an evaluation, which may still be undefined or NaN."""
        frame.slots = [None] * self._slots
        try:
            return self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP_MESSAGE) from None

    def error(self, message: str) -> EvalError:
        """Return an error that marks the whole expression."""
        return EvalError(message, self._text, self.offset, len(self.source))

    def value_to_json(self, frame: Frame, value: Value) -> Any:
        """Return a value of an evaluation as JSON."""
        try:
            return to_json(frame, value)
        except EvaluationRefused as error:
            raise self.error(str(error)) from None

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile(
    source: str,
    names: Iterable[str] | None = None,
    *,
    hyphens: Iterable[str] = (),
    limits: EvaluationLimits = DEFAULT_LIMITS,
) -> Expression:
    """Compile an expression.

    `names` are the allowed free names, None for any; `hyphens` are ids with hyphens allowed after a dot.
    """
    return _compile_expression(
        source, None if names is None else frozenset(names), frozenset(hyphens), limits
    )


@lru_cache(maxsize=1024)
def _compile_expression(
    source: str, names: frozenset[str] | None, hyphens: frozenset[str], limits: EvaluationLimits
) -> Expression:
    if len(source) > limits.source:
        message = f"An expression can have at most {limits.source:,} characters, got {len(source):,}"
        raise ExprError(message, source)
    tokens = Lexer(source, limits=limits, hyphens=hyphens).tokens_to_end()
    return build_expression(source, tokens, 0, len(source), names, limits)


def build_expression(
    text: str,
    tokens: Sequence[Token],
    start: int,
    end: int,
    names: frozenset[str] | None,
    limits: EvaluationLimits,
) -> Expression:
    """Build the expression from the tokens of `text` between `start` and `end`."""
    try:
        parser = Parser(text, tokens, names, limits)
        tree = parser.parse()
        if analysis.tree_depth(tree) > MAX_TREE_DEPTH:
            raise ExprError(f"More than {MAX_TREE_DEPTH} nested operators", text, start)
        return Expression(text, start, end, tree, parser.slots, limits)
    except RecursionError:
        raise ExprError(TOO_DEEP_MESSAGE, text, start) from None
