"""The syntax tree of an expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from nerve.expr.values import Value
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A literal value."""

    value: Value
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A free name, looked up in the scope."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A parameter of an enclosing arrow function."""

    slot: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Unary:
    """`!`, `-`, `+` or `typeof`."""

    operator: str
    operand: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """An operator that evaluates both sides."""

    operator: str
    left: Node
    right: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Logical(Binary):
    """`&&`, `||` or `??`, which evaluates the right side only if needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """`test ? then : other`."""

    test: Node
    then: Node
    other: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """`...value` in an array, an object or a call."""

    value: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ArrayLiteral:
    """`[a, ...b]`."""

    items: tuple[Node | Spread, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ObjectEntry:
    """One `key: value` of an object."""

    key: Node
    value: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ObjectLiteral:
    """`{a: 1, [b]: 2, ...c}`."""

    entries: tuple[ObjectEntry | Spread, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class TemplateLiteral:
    """Text with `${…}` in it."""

    parts: tuple[Node, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class PropertyAccess:
    """`.name` or `?.name`."""

    name: str
    optional: bool
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class IndexAccess:
    """`[key]` or `?.[key]`."""

    key: Node
    optional: bool
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class MethodCall:
    """`.name(arguments)` or `?.name(arguments)`."""

    name: str
    arguments: tuple[Argument, ...]
    optional: bool
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A value with property reads and method calls; `?.` may end the whole chain."""

    base: Node
    links: tuple[Link, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class FunctionCall:
    """A call of a built-in function."""

    function: str
    arguments: tuple[Argument, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """A parameter `[a, b]`: the slots of the elements."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A parameter `{a, b: c}`: the keys and their slots."""

    slots: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Arrow:
    """An arrow function; it only occurs as an argument."""

    parameters: tuple[Parameter, ...]
    body: Node
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class FunctionName:
    """A built-in function as an argument, as in `filter(Boolean)`."""

    name: str
    offset: int


Node: TypeAlias = (
    Literal
    | Name
    | Local
    | Unary
    | Binary
    | Logical
    | Conditional
    | ArrayLiteral
    | ObjectLiteral
    | TemplateLiteral
    | Chain
    | FunctionCall
)
Link: TypeAlias = PropertyAccess | IndexAccess | MethodCall
Parameter: TypeAlias = int | Elements | Fields
Argument: TypeAlias = Node | Spread | Arrow | FunctionName
AnyNode: TypeAlias = Argument | ObjectEntry | Link


def child_nodes(node: AnyNode) -> Iterator[AnyNode]:
    """Yield the children of a node, in source order."""
    for field in CHILD_FIELDS.get(type(node), ()):
        children = getattr(node, field)
        if isinstance(children, tuple):
            yield from children
        else:
            yield children


CHILD_FIELDS: dict[type, tuple[str, ...]] = {
    Unary: ("operand",),
    Spread: ("value",),
    IndexAccess: ("key",),
    Arrow: ("body",),
    **dict.fromkeys((Binary, Logical), ("left", "right")),
    Conditional: ("test", "then", "other"),
    ObjectEntry: ("key", "value"),
    ArrayLiteral: ("items",),
    TemplateLiteral: ("parts",),
    ObjectLiteral: ("entries",),
    **dict.fromkeys((FunctionCall, MethodCall), ("arguments",)),
    Chain: ("base", "links"),
}
"""The fields of a node that hold its children; the other nodes are leaves."""
