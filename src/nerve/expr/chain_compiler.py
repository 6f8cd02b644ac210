"""Closures for chains: property reads and method calls on a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nerve.expr.errors import EvalError, EvaluationRefused, did_you_mean
from nerve.expr.frame import Frame
from nerve.expr.library import METHODS_BY_KIND
from nerve.expr.property_access import read_index, read_property
from nerve.expr.values import PASS_THROUGH_TYPES, UNDEFINED, Value, describe_kind, value_from_host, value_kind

Evaluator = Callable[[Frame], Value]
LinkEvaluator = Callable[[Frame, Value], Value]
ArgumentsEvaluator = Callable[[Frame], Sequence[Value]]

CHAIN_ENDED: Final = object()
"""The result of an optional link on null or undefined: the whole chain is undefined."""


def compile_variable(source: str, name: str, offset: int) -> Evaluator:
    """Compile a free name."""

    def run(frame: Frame) -> Value:
        try:
            value = frame.scope[name]
        except KeyError:
            raise EvalError(f"`{name}` is not defined", source, offset, len(name)) from None
        return (
            value
            if type(value) in PASS_THROUGH_TYPES
            else apply_with_location(value_from_host, value, source, offset)
        )

    return run


def apply_with_location(function: Callable[[Value], Value], value: Value, source: str, offset: int) -> Value:
    try:
        return function(value)
    except EvaluationRefused as error:
        raise EvalError(str(error), source, offset) from None


def compile_path(source: str, name: str, keys: Sequence[tuple[str, int]], start: int) -> Evaluator:
    """Compile consecutive properties of a free name."""
    names = tuple(key for key, _ in keys)
    base = compile_variable(source, name, start)
    steps = [compile_member(source, key, start, offset) for key, offset in keys]

    def run(frame: Frame) -> Value:
        # Fast path for plain dictionaries; everything else takes the slow path.
        try:
            value = frame.scope[name]
            for key in names:
                if type(value) is not dict:
                    return run_slow(frame)
                value = value[key]
        except KeyError:
            return run_slow(frame)
        return (
            value
            if type(value) in PASS_THROUGH_TYPES
            else apply_with_location(value_from_host, value, source, start)
        )

    def run_slow(frame: Frame) -> Value:
        value = base(frame)
        for step in steps:
            value = step(frame, value)
        return value

    return run


def compile_chain(base: Evaluator, steps: Sequence[LinkEvaluator]) -> Evaluator:
    """Compile consecutive links."""
    if len(steps) == 1:
        step = steps[0]

        def run_one(frame: Frame) -> Value:
            value = step(frame, base(frame))
            return UNDEFINED if value is CHAIN_ENDED else value

        return run_one

    def run(frame: Frame) -> Value:
        value = base(frame)
        for step in steps:
            value = step(frame, value)
            if value is CHAIN_ENDED:
                return UNDEFINED
        return value

    return run


def compile_optional_link(step: LinkEvaluator) -> LinkEvaluator:
    """Compile the link after a `?.`."""

    def run(frame: Frame, value: Value) -> Value:
        return CHAIN_ENDED if value is None or value is UNDEFINED else step(frame, value)

    return run


def compile_member(source: str, name: str, start: int, offset: int) -> LinkEvaluator:
    """Compile a property."""

    def run(frame: Frame, value: Value) -> Value:
        if value is None or value is UNDEFINED:
            holder = source[start:offset].rstrip()
            message = f"`{holder}` is {value_kind(value)}; write `?.{name}` if it may be missing"
            raise EvalError(message, source, offset, len(name) + 1)
        return apply_with_location(lambda base: read_property(frame, base, name), value, source, offset)

    return run


def compile_index(source: str, key: Evaluator, offset: int) -> LinkEvaluator:
    """Compile a computed property."""

    def run(frame: Frame, value: Value) -> Value:
        key_value = key(frame)
        return apply_with_location(lambda base: read_index(frame, base, key_value), value, source, offset)

    return run


def compile_method(source: str, name: str, arguments: ArgumentsEvaluator, offset: int) -> LinkEvaluator:
    """Compile a built-in method, which the kind of the value selects."""
    entries = {kind: table[name] for kind, table in METHODS_BY_KIND.items() if name in table}

    def run(frame: Frame, value: Value) -> Value:
        try:
            entry = entries.get(value_kind(value))
            if entry is None:
                raise EvaluationRefused(missing_method_message(value, name))
            values = arguments(frame)
            return entry.run(frame, value, *values[: entry.max_arguments])
        except EvaluationRefused as error:
            raise EvalError(str(error), source, offset, len(name)) from None

    return run


def missing_method_message(value: Value, name: str) -> str:
    kind = value_kind(value)
    if kind in ("null", "undefined"):
        return f"`{name}` is called on {kind}; write `?.{name}(…)` if it may be missing"
    owners = " and ".join(f"{other}s" for other, table in METHODS_BY_KIND.items() if name in table)
    close = did_you_mean(name, METHODS_BY_KIND[kind])
    return f"`{name}` is a method of {owners}, not of {describe_kind(value)}{close}"
