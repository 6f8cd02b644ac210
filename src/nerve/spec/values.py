"""Values of a spec: JSON in which every string is a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from nerve.expr import EvalError, compile, compile_template
from nerve.spec.scope import Sight
from nerve.spec.shell import compile_command

Value = TypeVar("Value")
STEP = re.compile(r"""\b(?:context|steps|results)\s*(?:\.\s*([\w-]+)|\[\s*(['"])(.*?)\2\s*\])\s*$""")
"""A reference to a step, with which a text ends."""


def fill(value: Any, sight: Sight) -> Any:
    """The value with its templates filled in; a string that is one expression gives that value itself."""
    if isinstance(value, str):
        return told(template(value, sight).value, sight) if "{{" in value else value
    if isinstance(value, dict):
        return {key: fill(item, sight) for key, item in value.items()}
    return [fill(item, sight) for item in value] if isinstance(value, list) else value


def text(source: str, sight: Sight) -> str:
    filled: str = told(template(source, sight), sight) if "{{" in source else source
    return filled


def holds(expression: str, sight: Sight) -> bool:
    """Whether a condition holds, as JavaScript sees truth."""
    value = evaluate(expression, sight)
    return True if isinstance(value, list | dict) else bool(value)


def evaluate(expression: str, sight: Sight) -> Any:
    return told(compile(expression, hyphens=sight.scope.hyphens), sight)


def command_of(
    source: str, sight: Sight, variables: frozenset[str] = frozenset()
) -> tuple[str, dict[str, str]]:
    """A shell command, and the variables that its values are in."""
    compiled = compile_command(source, hyphens=sight.scope.hyphens, variables=variables)
    return told(compiled.fill, sight)


def told(read: Callable[[Sight], Value], sight: Sight) -> Value:
    """A value; where the result of a step that has not run is missing, the error says so."""
    try:
        return read(sight)
    except EvalError as error:
        found = STEP.search(error.source[: error.offset])
        id = found and (found[1] or found[3])
        if not id or id in sight.scope.done or id in sight.scope.initial:
            raise
        message = f"Step result not found: {id} has not run; write `?.` where it may not have"
        raise EvalError(message, error.source, error.offset, error.length) from None


def template(source: str, sight: Sight) -> Any:
    return compile_template(source, hyphens=sight.scope.hyphens)
