"""The functions of expressions: a closed list, each written as text of the expression language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Texts = Sequence[str]


@dataclass(frozen=True, slots=True)
class Function:
    """How many arguments it takes, and how it is written with the texts of them."""

    least: int
    most: int | None
    write: Callable[[Texts], str]


def between(operator: str, least: int = 2, most: int | None = None) -> Function:
    return Function(least, most, lambda given: f"({f' {operator} '.join(given)})")


def method(name: str, count: int = 1) -> Function:
    return Function(count, count, lambda given: f"({given[0]}).{name}({', '.join(given[1:])})")


def minus(given: Texts) -> str:
    return f"(-{given[0]})" if len(given) == 1 else f"({' - '.join(given)})"


def when(given: Texts) -> str:
    return f"({given[0]} ? {given[1]} : {given[2] if len(given) > 2 else 'null'})"


def get(given: Texts) -> str:
    return f"({given[0]}?.[{given[1]}] ?? {given[2] if len(given) > 2 else 'null'})"


def chain_operator(operator: str) -> Function:
    """A comparison of each value with the next."""

    def write(given: Texts) -> str:
        return f"({' && '.join(f'{left} {operator} {right}' for left, right in pairwise(given))})"

    return Function(2, None, write)


def join_texts(given: Texts) -> str:
    """Values as one text, each as `~a` writes it: nothing for nil, JSON for lists and objects."""
    written = 'v !== null && typeof v === "object" ? JSON.stringify(v) : v'
    return f'[{", ".join(given)}].map((v) => {written}).join("")'


FUNCTIONS: Final = {
    "str": Function(0, None, join_texts),
    "+": between("+", 1),
    "-": Function(1, None, minus),
    "*": between("*"),
    "/": between("/"),
    "mod": Function(2, 2, lambda given: f"((({given[0]}) % ({given[1]}) + ({given[1]})) % ({given[1]}))"),
    "=": chain_operator("==="),
    "!=": between("!==", 2, 2),
    "<": chain_operator("<"),
    ">": chain_operator(">"),
    "<=": chain_operator("<="),
    ">=": chain_operator(">="),
    "not": Function(1, 1, lambda given: f"(!{given[0]})"),
    "and": between("&&", 1),
    "or": between("||", 1),
    "if": Function(2, 3, when),
    "get": Function(2, 3, get),
    "count": Function(1, 1, lambda given: f"Object.keys({given[0]}).length"),
    "concat": Function(0, None, lambda given: f"[{', '.join(f'...{item}' for item in given)}]"),
    "join": method("join", 2),
    "contains": method("includes", 2),
    "lower": method("toLowerCase"),
    "upper": method("toUpperCase"),
    "trim": method("trim"),
    "json": Function(1, 1, lambda given: f"JSON.stringify({given[0]})"),
    "parse-json": Function(1, 1, lambda given: f"JSON.parse({given[0]})"),
}
