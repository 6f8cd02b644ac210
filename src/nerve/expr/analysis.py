"""Static analysis of expressions: cost, depth, and the names they read."""

from __future__ import annotations

from collections.abc import Iterator

from nerve.expr import ast

NamePath = tuple[str, ...]

STEPS_BY_NODE_TYPE: dict[type, int] = {
    ast.ArrayLiteral: 5,
    ast.ObjectLiteral: 6,
    ast.TemplateLiteral: 3,
    ast.Arrow: 3,
    ast.MethodCall: 4,
    ast.FunctionCall: 4,
}
"""The steps of nodes that take more than one."""


def walk_expression(node: ast.AnyNode) -> Iterator[ast.AnyNode]:
    """Yield a node and its descendants, without recursion."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(ast.child_nodes(current))


def evaluation_cost(node: ast.AnyNode) -> int:
    """Return the steps of one evaluation, without the bodies of arrow functions."""
    pending, count = [node], 0
    while pending:
        current = pending.pop()
        count += STEPS_BY_NODE_TYPE.get(type(current), 1)
        if not isinstance(current, ast.Arrow):
            pending.extend(ast.child_nodes(current))
    return count


def tree_depth(node: ast.AnyNode) -> int:
    """Return the depth of the tree."""
    level: list[ast.AnyNode] = [node]
    count = 0
    while level:
        count += 1
        level = [child for current in level for child in ast.child_nodes(current)]
    return count


def free_names(node: ast.AnyNode) -> frozenset[str]:
    """Return the free names of an expression."""
    return frozenset(child.name for child in walk_expression(node) if isinstance(child, ast.Name))


def free_name_paths(node: ast.AnyNode) -> frozenset[NamePath]:
    """Return each use of a free name with the literal keys that are read from it."""
    in_chains: dict[int, NamePath] = {}
    result: set[NamePath] = set()
    for current in walk_expression(node):
        if isinstance(current, ast.Chain) and isinstance(current.base, ast.Name):
            in_chains[id(current.base)] = (current.base.name, *static_keys(current.links))
        elif isinstance(current, ast.Name):
            result.add(in_chains.get(id(current), (current.name,)))
    return frozenset(result)


def static_keys(links: tuple[ast.Link, ...]) -> Iterator[str]:
    for link in links:
        match link:
            case ast.PropertyAccess(name=key) | ast.IndexAccess(key=ast.Literal(value=str() as key)):
                yield key
            case _:
                return
