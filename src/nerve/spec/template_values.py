"""Template values: JSON in which every string is a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from nerve.expr import EvalError, compile, compile_template
from nerve.spec.scope import ScopeView
from nerve.spec.shell.command import compile_command

Value = TypeVar("Value")
STEP_REFERENCE_PATTERN = re.compile(
    r"""\b(?:context|steps|results)\s*(?:\.\s*([\w-]+)|\[\s*(['"])(.*?)\2\s*\])\s*$"""
)
"""A reference to a step at the end of a text."""


def fill_templates(value: Any, view: ScopeView) -> Any:
    """Return the value with its templates filled in; a string that is one expression becomes its value."""
    if isinstance(value, str):
        return (
            with_missing_step_hint(compile_scoped_template(value, view).value, view)
            if "{{" in value
            else value
        )
    if isinstance(value, dict):
        return {key: fill_templates(item, view) for key, item in value.items()}
    return [fill_templates(item, view) for item in value] if isinstance(value, list) else value


def render_text(source: str, view: ScopeView) -> str:
    filled: str = (
        with_missing_step_hint(compile_scoped_template(source, view), view) if "{{" in source else source
    )
    return filled


def is_condition_true(expression: str, view: ScopeView) -> bool:
    """Whether a condition is truthy as in JavaScript."""
    value = evaluate_expression(expression, view)
    return True if isinstance(value, list | dict) else bool(value)


def evaluate_expression(expression: str, view: ScopeView) -> Any:
    return with_missing_step_hint(compile(expression, hyphens=view.scope.hyphens), view)


def render_command(
    source: str, view: ScopeView, variables: frozenset[str] = frozenset()
) -> tuple[str, dict[str, str]]:
    """Return a shell command and the environment variables that hold its values."""
    compiled = compile_command(source, hyphens=view.scope.hyphens, variables=variables)
    return with_missing_step_hint(compiled.fill, view)


def with_missing_step_hint(compute: Callable[[ScopeView], Value], view: ScopeView) -> Value:
    """Compute a value; if a step that has not run caused the error, the error says so."""
    try:
        return compute(view)
    except EvalError as error:
        match = STEP_REFERENCE_PATTERN.search(error.source[: error.offset])
        id = match and (match[1] or match[3])
        if not id or id in view.scope.results or id in view.scope.initial_context:
            raise
        message = f"Step result not found: {id} has not run; write `?.` if it may not have run"
        raise EvalError(message, error.source, error.offset, error.length) from None


def compile_scoped_template(source: str, view: ScopeView) -> Any:
    return compile_template(source, hyphens=view.scope.hyphens)
