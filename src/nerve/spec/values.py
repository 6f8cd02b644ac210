"""Values of a spec: JSON in which every string is a template."""

from __future__ import annotations

from typing import Any

from nerve.expr import compile, compile_template
from nerve.spec.scope import Sight
from nerve.spec.shell import compile_command


def fill(value: Any, sight: Sight) -> Any:
    """The value with its templates filled in; a string that is one expression gives that value itself."""
    if isinstance(value, str):
        return template(value, sight).value(sight) if "{{" in value else value
    if isinstance(value, dict):
        return {key: fill(item, sight) for key, item in value.items()}
    return [fill(item, sight) for item in value] if isinstance(value, list) else value


def text(source: str, sight: Sight) -> str:
    filled: str = template(source, sight)(sight) if "{{" in source else source
    return filled


def holds(expression: str, sight: Sight) -> bool:
    """Whether a condition holds, as JavaScript sees truth."""
    value = evaluate(expression, sight)
    return True if isinstance(value, list | dict) else bool(value)


def evaluate(expression: str, sight: Sight) -> Any:
    return compile(expression, hyphens=sight.scope.hyphens)(sight)


def command_of(source: str, sight: Sight) -> tuple[str, dict[str, str]]:
    """A shell command, and the variables that its values are in."""
    return compile_command(source, hyphens=sight.scope.hyphens).fill(sight)


def template(source: str, sight: Sight) -> Any:
    return compile_template(source, hyphens=sight.scope.hyphens)
