"""Compiled expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from nerve.expr import analysis, ast
from nerve.expr.analysis import NamePath
from nerve.expr.compiler import Compiler
from nerve.expr.errors import EvalError, EvaluationRefused, ExprError
from nerve.expr.frame import Frame
from nerve.expr.json_export import to_json
from nerve.expr.lexer import Lexer, Token
from nerve.expr.limits import DEFAULT_LIMITS, EvaluationLimits
from nerve.expr.parser import Parser
from nerve.expr.values import Value

TOO_DEEP_MESSAGE = "nested too deeply for this stack"
MAX_TREE_DEPTH = 200
"""Levels of the tree; more than that and Python's stack would be the limit."""


class Expression:
    """An expression that can be evaluated as often as wanted; it holds no state."""

    __slots__ = (
        *("cost", "names", "offset", "opaque_names", "paths", "source"),
        *("_fuel", "_limits", "_run", "_slots", "_text"),
    )

    def __init__(
        self, text: str, start: int, end: int, tree: ast.Node, slots: int, limits: EvaluationLimits
    ) -> None:
        self.source = text[start:end]
        """The expression's own text."""
        self.offset = start
        """Where it begins in the template it is part of, else 0."""
        self.names: frozenset[str] = analysis.free_names(tree)
        """The free names it uses."""
        self.paths: frozenset[NamePath] = analysis.free_name_paths(tree)
        """How far each use of a free name is read by keys that are written down."""
        self.opaque_names = frozenset(path[0] for path in self.paths if len(path) == 1)
        """The names that are used whole, or read by a computed key."""
        self._text, self._limits, self._slots = text, limits, slots
        self.cost = analysis.evaluation_cost(tree)
        """The steps that it takes in any case."""
        self._fuel = limits.fuel - self.cost
        self._run = Compiler(text).compile(tree)

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        """Evaluate with the values of `scope`; what comes back is JSON."""
        frame = Frame(scope, self._limits, self._fuel)
        try:
            value = self.evaluate(frame) if self._slots else self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP_MESSAGE) from None
        return value if value is True or value is False else self.value_to_json(frame, value)

    def evaluate(self, frame: Frame) -> Value:
        """The value inside an evaluation, where undefined and NaN are still there."""
        frame.slots = [None] * self._slots
        try:
            return self._run(frame)
        except RecursionError:
            raise self.error(TOO_DEEP_MESSAGE) from None

    def error(self, message: str) -> EvalError:
        """An error of the whole expression, at its place in the text."""
        return EvalError(message, self._text, self.offset, len(self.source))

    def value_to_json(self, frame: Frame, value: Value) -> Any:
        """A value of an evaluation as JSON."""
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

    `names` are the free names in sight, None for any; `hyphens` are ids with hyphens known after a dot.
    """
    return _compile_expression(
        source, None if names is None else frozenset(names), frozenset(hyphens), limits
    )


@lru_cache(maxsize=1024)
def _compile_expression(
    source: str, names: frozenset[str] | None, hyphens: frozenset[str], limits: EvaluationLimits
) -> Expression:
    if len(source) > limits.source:
        message = f"an expression has at most {limits.source:,} characters, and this has {len(source):,}"
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
    """The expression of some tokens, which stand in `text` from `start` to `end`."""
    try:
        parser = Parser(text, tokens, names, limits)
        tree = parser.parse()
        if analysis.tree_depth(tree) > MAX_TREE_DEPTH:
            raise ExprError(f"more than {MAX_TREE_DEPTH} operators within each other", text, start)
        return Expression(text, start, end, tree, parser.slots, limits)
    except RecursionError:
        raise ExprError(TOO_DEEP_MESSAGE, text, start) from None
