"""Compile a syntax tree into closures: every node becomes a function of the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from nerve.expr import ast, utf16
from nerve.expr.analysis import evaluation_cost
from nerve.expr.coercion import to_string
from nerve.expr.errors import EvalError, EvaluationRefused, did_you_mean
from nerve.expr.frame import Frame
from nerve.expr.library import FUNCTIONS, METHODS_BY_KIND
from nerve.expr.library.objects import set_object_key
from nerve.expr.library.table import Callback
from nerve.expr.operators import BINARY_OPERATORS, UNARY_OPERATORS
from nerve.expr.property_access import own_entries, read_index, read_property, spread_elements
from nerve.expr.values import (
    PASS_THROUGH_TYPES,
    UNDEFINED,
    ArrayValue,
    ObjectValue,
    Undefined,
    Value,
    describe_kind,
    is_truthy,
    value_from_host,
    value_kind,
)

# -- chains of property reads and method calls ---------------------------------------------------


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


# -- nodes ---------------------------------------------------------------------------------------


class Compiler:
    """Compiles the nodes of one source."""

    def __init__(self, source: str) -> None:
        self.source = source

    def compile(self, node: ast.Node) -> Evaluator:
        """Return the closure that evaluates a node."""
        match node:
            case ast.Literal(value):
                return lambda frame: value
            case ast.Name(name, offset):
                return compile_variable(self.source, name, offset)
            case ast.Local(slot):
                return lambda frame: frame.slots[slot]
            case ast.Unary():
                return self.unary(node)
            case ast.Logical():
                return self.logical(node)
            case ast.Binary():
                return self.binary(node)
            case ast.Conditional():
                return self.conditional(node)
            case ast.ArrayLiteral(items, offset):
                return self.array(items, offset)
            case ast.ObjectLiteral():
                return self.object(node)
            case ast.TemplateLiteral():
                return self.template(node)
            case ast.Chain():
                return self.chain(node)
            case ast.FunctionCall():
                return self.call(node)

    # Operators

    def unary(self, node: ast.Unary) -> Evaluator:
        operand, source, offset = self.compile(node.operand), self.source, node.offset
        operator = UNARY_OPERATORS[node.operator]

        def run(frame: Frame) -> Value:
            try:
                return operator(frame, operand(frame))
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    def binary(self, node: ast.Binary) -> Evaluator:
        match node:
            case ast.Binary("===" | "!==", left_node, ast.Literal(bool() | None | Undefined() as value)):
                same = self.compile(left_node)
                if node.operator == "===":
                    return lambda frame: same(frame) is value
                return lambda frame: same(frame) is not value
        operator, source, offset = BINARY_OPERATORS[node.operator], self.source, node.offset
        left, right = self.compile(node.left), self.compile(node.right)
        length = len(node.operator)

        def run(frame: Frame) -> Value:
            try:
                return operator(frame, left(frame), right(frame))
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset, length) from None

        return run

    def logical(self, node: ast.Logical) -> Evaluator:
        left, right = self.compile(node.left), self.compile(node.right)

        def both(frame: Frame) -> Value:
            value = left(frame)
            return right(frame) if is_truthy(value) else value

        def either(frame: Frame) -> Value:
            value = left(frame)
            return value if is_truthy(value) else right(frame)

        def present(frame: Frame) -> Value:
            value = left(frame)
            return right(frame) if value is None or value is UNDEFINED else value

        return {"&&": both, "||": either, "??": present}[node.operator]

    def conditional(self, node: ast.Conditional) -> Evaluator:
        test, then, other = map(self.compile, (node.test, node.then, node.other))
        return lambda frame: then(frame) if is_truthy(test(frame)) else other(frame)

    # Literals

    def array(self, items: Sequence[ast.Node | ast.Spread], offset: int) -> Evaluator:
        values, source = self.values(items), self.source

        def run(frame: Frame) -> ArrayValue:
            try:
                return ArrayValue(values(frame))
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    def values(self, items: Sequence[ast.Argument]) -> ArgumentsEvaluator:
        """Compile a list of values with or without `...`."""
        if not any(isinstance(item, ast.Spread) for item in items):
            runs = [self.argument(item) for item in items]
            return lambda frame: [run(frame) for run in runs]
        parts = [
            (True, self.compile(item.value)) if isinstance(item, ast.Spread) else (False, self.argument(item))
            for item in items
        ]

        def run(frame: Frame) -> list[Value]:
            result: list[Value] = []
            for spread, part in parts:
                if spread:
                    added = spread_elements(frame, part(frame))
                    frame.charge_items(len(result) + len(added))
                    result += added
                else:
                    result.append(part(frame))
            return result

        return run

    def object(self, node: ast.ObjectLiteral) -> Evaluator:
        source, offset = self.source, node.offset
        parts = [self.entry(entry) for entry in node.entries]

        def run(frame: Frame) -> ObjectValue:
            result = ObjectValue()
            try:
                for key, value in parts:
                    if key is None:
                        for name, item in spread_entries(frame, value(frame)):
                            set_object_key(frame, result, name, item)
                    else:
                        set_object_key(frame, result, to_string(frame, key(frame)), value(frame))
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset) from None
            return result

        return run

    def entry(self, entry: ast.ObjectEntry | ast.Spread) -> tuple[Evaluator | None, Evaluator]:
        """Compile a key and a value; a spread has no key."""
        if isinstance(entry, ast.Spread):
            return None, self.compile(entry.value)
        return self.compile(entry.key), self.compile(entry.value)

    def template(self, node: ast.TemplateLiteral) -> Evaluator:
        source, offset = self.source, node.offset
        parts = [self.compile(part) for part in node.parts]

        def run(frame: Frame) -> str:
            try:
                return utf16.join_pieces(frame, [to_string(frame, part(frame)) for part in parts])
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    # Chains and calls

    def chain(self, node: ast.Chain) -> Evaluator:
        keys = list(
            takewhile(lambda link: isinstance(link, ast.PropertyAccess) and not link.optional, node.links)
        )
        if isinstance(node.base, ast.Name) and keys:
            key_offsets = [(key.name, key.offset) for key in keys if isinstance(key, ast.PropertyAccess)]
            base, links = (
                compile_path(self.source, node.base.name, key_offsets, node.offset),
                node.links[len(keys) :],
            )
        else:
            base, links = self.compile(node.base), node.links
        return compile_chain(base, [self.link(link, node.offset) for link in links]) if links else base

    def link(self, link: ast.Link, start: int) -> LinkEvaluator:
        match link:
            case ast.PropertyAccess(name, _, offset):
                step = compile_member(self.source, name, start, offset)
            case ast.IndexAccess(key, _, offset):
                step = compile_index(self.source, self.compile(key), offset)
            case ast.MethodCall(name, arguments, _, offset):
                step = compile_method(self.source, name, self.values(arguments), offset)
        if not link.optional:
            return step
        return lambda frame, value: CHAIN_ENDED if value is None or value is UNDEFINED else step(frame, value)

    def call(self, node: ast.FunctionCall) -> Evaluator:
        entry, source, offset = FUNCTIONS[node.function], self.source, node.offset
        values, function, max_arguments, length = (
            self.values(node.arguments),
            entry.run,
            entry.max_arguments,
            len(node.function),
        )

        def run(frame: Frame) -> Value:
            try:
                return function(frame, *values(frame)[:max_arguments])
            except EvaluationRefused as error:
                raise EvalError(str(error), source, offset, length) from None

        return run

    # Arrow functions

    def argument(self, argument: ast.Argument) -> Evaluator:
        match argument:
            case ast.Arrow():
                return self.arrow(argument)
            case ast.FunctionName(name):
                entry = FUNCTIONS[name]

                def bind(frame: Frame) -> Callback:
                    def call(*arguments: Value) -> Value:
                        frame.charge(2)
                        return entry.run(frame, *arguments[: entry.max_arguments])

                    return call

                return bind
            case ast.Spread():
                raise AssertionError("A spread is not a single argument")
            case _:
                return self.compile(argument)

    def arrow(self, node: ast.Arrow) -> Evaluator:
        """Return a closure that creates a Python function from an arrow function."""
        body, parameters = self.compile(node.body), node.parameters
        steps = 1 + len(parameters) + evaluation_cost(node.body)
        source, offset = self.source, node.offset

        def bind(frame: Frame) -> Callback:
            slots = frame.slots if parameters else []

            def call(*arguments: Value) -> Value:
                try:
                    frame.charge(steps)
                    for position, parameter in enumerate(parameters):
                        value = arguments[position] if position < len(arguments) else UNDEFINED
                        if type(parameter) is int:
                            slots[parameter] = value
                        else:
                            bind_parameter(frame, parameter, value)
                except EvaluationRefused as error:
                    raise EvalError(str(error), source, offset) from None
                return body(frame)

            return call

        return bind


def spread_entries(frame: Frame, value: Value) -> Iterator[tuple[str, Value]]:
    """Return the entries that `...value` adds to an object."""
    if type(value) is str:
        raise EvaluationRefused("A string cannot be spread into an object; write `Object.assign({}, text)`")
    return own_entries(frame, value)


def bind_parameter(frame: Frame, parameter: ast.Parameter, value: Value) -> None:
    """Assign the parts of a value to a destructured parameter like `[key, value]` or `{name}`."""
    slots = frame.slots
    if isinstance(parameter, ast.Elements):
        values = spread_elements(frame, value)
        for position, slot in enumerate(parameter.slots):
            slots[slot] = values[position] if position < len(values) else UNDEFINED
    elif isinstance(parameter, ast.Fields):
        if value is None or value is UNDEFINED:
            raise EvaluationRefused("null and undefined cannot be destructured")
        for key, slot in parameter.slots:
            slots[slot] = read_property(frame, value, key)
