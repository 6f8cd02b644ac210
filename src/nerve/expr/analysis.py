"""What can be said about an expression without evaluating it."""

from __future__ import annotations

from collections.abc import Iterator

from nerve.expr import nodes

Path = tuple[str, ...]

COSTS: dict[type, int] = {
    nodes.ArrayLiteral: 5,
    nodes.ObjectLiteral: 6,
    nodes.TemplateLiteral: 3,
    nodes.Arrow: 3,
    nodes.Method: 4,
    nodes.Call: 4,
}
"""Steps of the nodes that take more than one."""


def walk(node: nodes.AnyNode) -> Iterator[nodes.AnyNode]:
    """A node and everything in it, without recursion."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(nodes.children(current))


def cost(node: nodes.AnyNode) -> int:
    """How many steps one evaluation takes, the bodies of arrow functions aside."""
    waiting, count = [node], 0
    while waiting:
        current = waiting.pop()
        count += COSTS.get(type(current), 1)
        if not isinstance(current, nodes.Arrow):
            waiting.extend(nodes.children(current))
    return count


def depth(node: nodes.AnyNode) -> int:
    """How deep the tree is."""
    level: list[nodes.AnyNode] = [node]
    count = 0
    while level:
        count += 1
        level = [child for current in level for child in nodes.children(current)]
    return count


def names(node: nodes.AnyNode) -> frozenset[str]:
    """The free names."""
    return frozenset(found.name for found in walk(node) if isinstance(found, nodes.Name))


def paths(node: nodes.AnyNode) -> frozenset[Path]:
    """For every use of a free name, how far it is read by keys that are written down."""
    in_chains: dict[int, Path] = {}
    found: set[Path] = set()
    for current in walk(node):
        if isinstance(current, nodes.Chain) and isinstance(current.base, nodes.Name):
            in_chains[id(current.base)] = (current.base.name, *static_keys(current.links))
        elif isinstance(current, nodes.Name):
            found.add(in_chains.get(id(current), (current.name,)))
    return frozenset(found)


def static_keys(links: tuple[nodes.Link, ...]) -> Iterator[str]:
    for link in links:
        match link:
            case nodes.Property(name=key) | nodes.Index(key=nodes.Literal(value=str() as key)):
                yield key
            case _:
                return
