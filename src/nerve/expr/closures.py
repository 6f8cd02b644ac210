"""A tree into closures: every node becomes a function of the frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from nerve.expr import chains, nodes, utf16
from nerve.expr.access import iterated, own_entries, read
from nerve.expr.analysis import cost
from nerve.expr.chains import Arguments, Run, Step
from nerve.expr.convert import to_string
from nerve.expr.errors import EvalError, Refused
from nerve.expr.frame import Frame
from nerve.expr.library import FUNCTIONS
from nerve.expr.library.objects import put
from nerve.expr.library.table import Callback
from nerve.expr.operators import BINARY, UNARY
from nerve.expr.values import UNDEFINED, Array, Object, Undefined, Value, truthy


class Compiler:
    """Compiles the nodes of one source."""

    def __init__(self, source: str) -> None:
        self.source = source

    def compile(self, node: nodes.Node) -> Run:
        """The closure that evaluates a node."""
        match node:
            case nodes.Literal(value):
                return lambda frame: value
            case nodes.Name(name, offset):
                return chains.free(self.source, name, offset)
            case nodes.Local(slot):
                return lambda frame: frame.slots[slot]
            case nodes.Unary():
                return self.unary(node)
            case nodes.Binary():
                return self.binary(node)
            case nodes.Logical():
                return self.logical(node)
            case nodes.Conditional():
                return self.conditional(node)
            case nodes.ArrayLiteral(items, offset):
                return self.array(items, offset)
            case nodes.ObjectLiteral():
                return self.object(node)
            case nodes.TemplateLiteral():
                return self.template(node)
            case nodes.Chain():
                return self.chain(node)
            case nodes.Call():
                return self.call(node)

    # Operators

    def unary(self, node: nodes.Unary) -> Run:
        operand, source, offset = self.compile(node.operand), self.source, node.offset
        operator = UNARY[node.operator]

        def run(frame: Frame) -> Value:
            try:
                return operator(frame, operand(frame))
            except Refused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    def binary(self, node: nodes.Binary) -> Run:
        match node:
            case nodes.Binary("===" | "!==", left_node, nodes.Literal(bool() | None | Undefined() as value)):
                return self.identity(left_node, value, node.operator == "===")
        operator, source, offset = BINARY[node.operator], self.source, node.offset
        left, right = self.compile(node.left), self.compile(node.right)
        length = len(node.operator)

        def run(frame: Frame) -> Value:
            try:
                return operator(frame, left(frame), right(frame))
            except Refused as error:
                raise EvalError(str(error), source, offset, length) from None

        return run

    def identity(self, node: nodes.Node, value: Value, same: bool) -> Run:
        """`===` with one of true, false, null and undefined."""
        left = self.compile(node)
        return (lambda frame: left(frame) is value) if same else (lambda frame: left(frame) is not value)

    def logical(self, node: nodes.Logical) -> Run:
        left, right = self.compile(node.left), self.compile(node.right)

        def both(frame: Frame) -> Value:
            value = left(frame)
            return right(frame) if truthy(value) else value

        def either(frame: Frame) -> Value:
            value = left(frame)
            return value if truthy(value) else right(frame)

        def present(frame: Frame) -> Value:
            value = left(frame)
            return right(frame) if value is None or value is UNDEFINED else value

        return {"&&": both, "||": either, "??": present}[node.operator]

    def conditional(self, node: nodes.Conditional) -> Run:
        test, then, other = map(self.compile, (node.test, node.then, node.other))
        return lambda frame: then(frame) if truthy(test(frame)) else other(frame)

    # Literals

    def array(self, items: Sequence[nodes.Node | nodes.Spread], offset: int) -> Run:
        values, source = self.values(items), self.source

        def run(frame: Frame) -> Array:
            try:
                return Array(values(frame))
            except Refused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    def values(self, items: Sequence[nodes.Argument]) -> Arguments:
        """The values of a list with or without `...` in it."""
        if not any(isinstance(item, nodes.Spread) for item in items):
            runs = [self.argument(item) for item in items]
            return lambda frame: [run(frame) for run in runs]
        parts = [
            (True, self.compile(item.value))
            if isinstance(item, nodes.Spread)
            else (False, self.argument(item))
            for item in items
        ]

        def run(frame: Frame) -> list[Value]:
            found: list[Value] = []
            for spread, part in parts:
                if spread:
                    added = iterated(frame, part(frame))
                    frame.make_items(len(found) + len(added))
                    found += added
                else:
                    found.append(part(frame))
            return found

        return run

    def object(self, node: nodes.ObjectLiteral) -> Run:
        source, offset = self.source, node.offset
        parts = [self.entry(entry) for entry in node.entries]

        def run(frame: Frame) -> Object:
            made = Object()
            try:
                for key, value in parts:
                    if key is None:
                        for name, item in spread(frame, value(frame)):
                            put(frame, made, name, item)
                    else:
                        put(frame, made, to_string(frame, key(frame)), value(frame))
            except Refused as error:
                raise EvalError(str(error), source, offset) from None
            return made

        return run

    def entry(self, entry: nodes.Entry | nodes.Spread) -> tuple[Run | None, Run]:
        """A key and a value; a spread has no key."""
        if isinstance(entry, nodes.Spread):
            return None, self.compile(entry.value)
        return self.compile(entry.key), self.compile(entry.value)

    def template(self, node: nodes.TemplateLiteral) -> Run:
        source, offset = self.source, node.offset
        parts = [self.compile(part) for part in node.parts]

        def run(frame: Frame) -> str:
            try:
                return utf16.joined(frame, [to_string(frame, part(frame)) for part in parts])
            except Refused as error:
                raise EvalError(str(error), source, offset) from None

        return run

    # Chains and calls

    def chain(self, node: nodes.Chain) -> Run:
        keys = list(
            takewhile(lambda link: isinstance(link, nodes.Property) and not link.optional, node.links)
        )
        if isinstance(node.base, nodes.Name) and keys:
            named = [(key.name, key.offset) for key in keys if isinstance(key, nodes.Property)]
            base, links = (
                chains.path(self.source, node.base.name, named, node.offset),
                node.links[len(keys) :],
            )
        else:
            base, links = self.compile(node.base), node.links
        return chains.chain(base, [self.link(link, node.offset) for link in links]) if links else base

    def link(self, link: nodes.Link, start: int) -> Step:
        match link:
            case nodes.Property(name, _, offset):
                step = chains.member(self.source, name, start, offset)
            case nodes.Index(key, _, offset):
                step = chains.index(self.source, self.compile(key), offset)
            case nodes.Method(name, arguments, _, offset):
                step = chains.method(self.source, name, self.values(arguments), offset)
        return chains.optional(step) if link.optional else step

    def call(self, node: nodes.Call) -> Run:
        entry, source, offset = FUNCTIONS[node.function], self.source, node.offset
        values, function, most, length = (
            self.values(node.arguments),
            entry.run,
            entry.most,
            len(node.function),
        )

        def run(frame: Frame) -> Value:
            try:
                return function(frame, *values(frame)[:most])
            except Refused as error:
                raise EvalError(str(error), source, offset, length) from None

        return run

    # Arrow functions

    def argument(self, argument: nodes.Argument) -> Run:
        match argument:
            case nodes.Arrow():
                return self.arrow(argument)
            case nodes.FunctionName(name):
                return function_value(name)
            case nodes.Spread():
                raise AssertionError("a spread is no single argument")
            case _:
                return self.compile(argument)

    def arrow(self, node: nodes.Arrow) -> Run:
        """A closure that gives a Python function of the arrow's arguments."""
        body, parameters = self.compile(node.body), node.parameters
        steps = 1 + len(parameters) + cost(node.body)
        source, offset = self.source, node.offset

        def bound(frame: Frame) -> Callback:
            slots = frame.slots if parameters else []

            def call(*arguments: Value) -> Value:
                try:
                    frame.spend(steps)
                    for place, parameter in enumerate(parameters):
                        value = arguments[place] if place < len(arguments) else UNDEFINED
                        if type(parameter) is int:
                            slots[parameter] = value
                        else:
                            bind(frame, parameter, value)
                except Refused as error:
                    raise EvalError(str(error), source, offset) from None
                return body(frame)

            return call

        return bound


def spread(frame: Frame, value: Value) -> Iterator[tuple[str, Value]]:
    """What `...value` adds to an object."""
    if type(value) is str:
        raise Refused("a string cannot be spread into an object; write `Object.assign({}, text)`")
    return own_entries(frame, value)


def bind(frame: Frame, parameter: nodes.Parameter, value: Value) -> None:
    """Put the parts of a value where a parameter like `[key, value]` or `{name}` wants them."""
    slots = frame.slots
    if isinstance(parameter, nodes.Elements):
        values = iterated(frame, value)
        for place, slot in enumerate(parameter.slots):
            slots[slot] = values[place] if place < len(values) else UNDEFINED
    elif isinstance(parameter, nodes.Fields):
        if value is None or value is UNDEFINED:
            raise Refused("null and undefined cannot be taken apart")
        for key, slot in parameter.slots:
            slots[slot] = read(frame, value, key)


def function_value(name: str) -> Run:
    """A function of the table, to be called by a method."""
    entry = FUNCTIONS[name]

    def bound(frame: Frame) -> Callback:
        def call(*arguments: Value) -> Value:
            frame.spend(2)
            return entry.run(frame, *arguments[: entry.most])

        return call

    return bound
