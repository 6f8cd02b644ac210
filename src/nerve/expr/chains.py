"""Closures for chains: a value, and what is read from it or called on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nerve.expr.access import read, read_index
from nerve.expr.errors import EvalError, Refused, did_you_mean
from nerve.expr.frame import Frame
from nerve.expr.library import METHODS_OF
from nerve.expr.values import PLAIN, UNDEFINED, Value, admit, described, kind_of

Run = Callable[[Frame], Value]
Step = Callable[[Frame, Value], Value]
Arguments = Callable[[Frame], Sequence[Value]]

ENDED: Final = object()
"""What an optional link gives when there is nothing to read from: the whole chain is undefined."""


def free(source: str, name: str, offset: int) -> Run:
    """A free name."""

    def run(frame: Frame) -> Value:
        try:
            value = frame.scope[name]
        except KeyError:
            raise EvalError(f"`{name}` is not there", source, offset, len(name)) from None
        return value if type(value) in PLAIN else located(admit, value, source, offset)

    return run


def located(function: Callable[[Value], Value], value: Value, source: str, offset: int) -> Value:
    try:
        return function(value)
    except Refused as error:
        raise EvalError(str(error), source, offset) from None


def path(source: str, name: str, keys: Sequence[tuple[str, int]], start: int) -> Run:
    """Properties of a free name, one after the other."""
    names = tuple(key for key, _ in keys)
    base = free(source, name, start)
    steps = [member(source, key, start, offset) for key, offset in keys]

    def run(frame: Frame) -> Value:
        # Mostly there are plain dictionaries all the way; what else there may be is for `slowly`.
        try:
            value = frame.scope[name]
            for key in names:
                if type(value) is not dict:
                    return slowly(frame)
                value = value[key]
        except KeyError:
            return slowly(frame)
        return value if type(value) in PLAIN else located(admit, value, source, start)

    def slowly(frame: Frame) -> Value:
        value = base(frame)
        for step in steps:
            value = step(frame, value)
        return value

    return run


def chain(base: Run, steps: Sequence[Step]) -> Run:
    """Any links, one after the other."""
    if len(steps) == 1:
        step = steps[0]

        def run_one(frame: Frame) -> Value:
            value = step(frame, base(frame))
            return UNDEFINED if value is ENDED else value

        return run_one

    def run(frame: Frame) -> Value:
        value = base(frame)
        for step in steps:
            value = step(frame, value)
            if value is ENDED:
                return UNDEFINED
        return value

    return run


def optional(step: Step) -> Step:
    """The link behind a `?.`."""

    def run(frame: Frame, value: Value) -> Value:
        return ENDED if value is None or value is UNDEFINED else step(frame, value)

    return run


def member(source: str, name: str, start: int, offset: int) -> Step:
    """One property."""

    def run(frame: Frame, value: Value) -> Value:
        if value is None or value is UNDEFINED:
            holder = source[start:offset].rstrip()
            message = f"`{holder}` is {kind_of(value)}: write `?.{name}` where it may be missing"
            raise EvalError(message, source, offset, len(name) + 1)
        return located(lambda base: read(frame, base, name), value, source, offset)

    return run


def index(source: str, key: Run, offset: int) -> Step:
    """One computed property."""

    def run(frame: Frame, value: Value) -> Value:
        found = key(frame)
        return located(lambda base: read_index(frame, base, found), value, source, offset)

    return run


def method(source: str, name: str, arguments: Arguments, offset: int) -> Step:
    """A method of the closed table, chosen by the kind of the value."""
    entries = {kind: table[name] for kind, table in METHODS_OF.items() if name in table}

    def run(frame: Frame, value: Value) -> Value:
        try:
            entry = entries.get(kind_of(value))
            if entry is None:
                raise Refused(no_method(value, name))
            given = arguments(frame)
            return entry.run(frame, value, *given[: entry.most])
        except Refused as error:
            raise EvalError(str(error), source, offset, len(name)) from None

    return run


def no_method(value: Value, name: str) -> str:
    kind = kind_of(value)
    if kind in ("null", "undefined"):
        return f"`{name}` is called on {kind}; write `?.{name}(…)` where it may be missing"
    owners = " and ".join(f"{other}s" for other, table in METHODS_OF.items() if name in table)
    close = did_you_mean(name, METHODS_OF[kind])
    return f"{described(value)} has no method `{name}`, which is one of {owners}{close}"
