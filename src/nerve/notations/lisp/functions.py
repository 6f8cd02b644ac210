"""The functions of Lisp expressions, each compiled to the expression language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Texts = Sequence[str]


@dataclass(frozen=True, slots=True)
class ExpressionFunction:
    """A function: its number of arguments, and the renderer of a call."""

    min_arguments: int
    max_arguments: int | None
    render: Callable[[Texts], str]


def infix_operator(operator: str, least: int = 2, most: int | None = None) -> ExpressionFunction:
    return ExpressionFunction(least, most, lambda arguments: f"({f' {operator} '.join(arguments)})")


def method_call(name: str, count: int = 1) -> ExpressionFunction:
    return ExpressionFunction(
        count, count, lambda arguments: f"({arguments[0]}).{name}({', '.join(arguments[1:])})"
    )


def render_minus(arguments: Texts) -> str:
    return f"(-{arguments[0]})" if len(arguments) == 1 else f"({' - '.join(arguments)})"


def render_conditional(arguments: Texts) -> str:
    return f"({arguments[0]} ? {arguments[1]} : {arguments[2] if len(arguments) > 2 else 'null'})"


def render_get(arguments: Texts) -> str:
    return f"({arguments[0]}?.[{arguments[1]}] ?? {arguments[2] if len(arguments) > 2 else 'null'})"


def chain_operator(operator: str) -> ExpressionFunction:
    """Return a function that compares each argument with the next."""

    def render(arguments: Texts) -> str:
        return f"({' && '.join(f'{left} {operator} {right}' for left, right in pairwise(arguments))})"

    return ExpressionFunction(2, None, render)


def join_texts(arguments: Texts) -> str:
    """Concatenate values as `~a` formats them: nil as nothing, lists and objects as JSON."""
    value_text = 'v !== null && typeof v === "object" ? JSON.stringify(v) : v'
    return f'[{", ".join(arguments)}].map((v) => {value_text}).join("")'


FUNCTIONS: Final = {
    "str": ExpressionFunction(0, None, join_texts),
    "+": infix_operator("+", 1),
    "-": ExpressionFunction(1, None, render_minus),
    "*": infix_operator("*"),
    "/": infix_operator("/"),
    "mod": ExpressionFunction(
        2, 2, lambda args: f"((({args[0]}) % ({args[1]}) + ({args[1]})) % ({args[1]}))"
    ),
    "=": chain_operator("==="),
    "!=": infix_operator("!==", 2, 2),
    "<": chain_operator("<"),
    ">": chain_operator(">"),
    "<=": chain_operator("<="),
    ">=": chain_operator(">="),
    "not": ExpressionFunction(1, 1, lambda args: f"(!{args[0]})"),
    "and": infix_operator("&&", 1),
    "or": infix_operator("||", 1),
    "if": ExpressionFunction(2, 3, render_conditional),
    "get": ExpressionFunction(2, 3, render_get),
    "count": ExpressionFunction(1, 1, lambda args: f"Object.keys({args[0]}).length"),
    "concat": ExpressionFunction(0, None, lambda args: f"[{', '.join(f'...{item}' for item in args)}]"),
    "join": method_call("join", 2),
    "contains": method_call("includes", 2),
    "lower": method_call("toLowerCase"),
    "upper": method_call("toUpperCase"),
    "trim": method_call("trim"),
    "json": ExpressionFunction(1, 1, lambda args: f"JSON.stringify({args[0]})"),
    "parse-json": ExpressionFunction(1, 1, lambda args: f"JSON.parse({args[0]})"),
}
