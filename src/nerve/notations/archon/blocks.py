"""Insert the nodes of included workflows, each with its own names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.notations.archon.graph_order import dependency_ids
from nerve.text.source import LocatedList, LocatedMap

MAX_DEPTH = 5
FindSource = Callable[[str], LocatedMap | None]
"""Returns the document of a workflow of the project by its name."""


class UnreadableInclude(ValueError):
    """An `include` that cannot be replaced by nodes."""

    def __init__(self, item: LocatedMap, message: str, fix: str) -> None:
        super().__init__(message)
        self.item, self.message, self.fix = item, message, fix


@dataclass(slots=True)
class IncludedBlock:
    """The names that the texts of the nodes of one included workflow use."""

    names: dict[str, str] = field(default_factory=dict)
    """The ids of its nodes by the names in its file."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The values of `with`."""
    outer: IncludedBlock | None = None
    """The block whose texts the values of `with` and the conditions below belong to."""
    conditions: list[str] = field(default_factory=list)
    """The conditions of the include, in the names of the outer block."""


@dataclass(slots=True)
class ExpandedNodes:
    """All nodes of a workflow, without includes, and the block of each."""

    items: list[LocatedMap] = field(default_factory=list)
    block_by_id: dict[str, IncludedBlock] = field(default_factory=dict)
    root: IncludedBlock = field(default_factory=IncludedBlock)


def expand_includes(items: list[LocatedMap], find_source: FindSource) -> ExpandedNodes:
    """Return the nodes with every include replaced by the nodes of its workflow."""
    expanded = ExpandedNodes()
    _expand(items, expanded.root, "", find_source, expanded, ())
    return expanded


def _expand(
    items: list[LocatedMap],
    block: IncludedBlock,
    prefix: str,
    find_source: FindSource,
    expanded: ExpandedNodes,
    stack: tuple[str, ...],
) -> list[str]:
    """Add the nodes of one workflow; return the ids of its last nodes."""
    last_ids: dict[str, list[str]] = {}
    first_nodes: list[tuple[LocatedMap, list[LocatedMap]]] = []
    for item in items:
        name = str(item.get("id"))
        if isinstance(target := item.get("include"), str):
            child = read_included(item, target, find_source, stack)
            conditions = [when] if isinstance(when := item.get("when"), str) else []
            inner = IncludedBlock({}, _declared_values(item, child), block, conditions)
            parts = [_with_defaults(copy.deepcopy(part), child) for part in child["nodes"]]
            count = len(expanded.items)
            path = (*stack, target)
            last_ids[name] = _expand(parts, inner, f"{prefix}{name}__", find_source, expanded, path)
            inserted = expanded.items[count:]
            _check_boundary(item, inserted)
            first_nodes.append((item, [node for node in inserted if not dependency_ids(node)]))
            block.names[name] = inner.names.get(str(child.get("returns"))) or last_ids[name][0]
        else:
            node = LocatedMap(item, item.position)
            node.key_positions, node.value_positions = item.key_positions, item.value_positions
            node["id"] = block.names[name] = f"{prefix}{name}"
            last_ids[name] = [node["id"]]
            expanded.items.append(node)
            expanded.block_by_id[node["id"]] = block
            first_nodes.append((item, [node]))
    for item, nodes in first_nodes:
        names = [id for name in dependency_ids(item) for id in last_ids.get(name, [name])]
        for node in nodes:
            if names:
                node.set_at("depends_on", LocatedList(names), item.position_of_value("depends_on"))
            if names and "include" in item:
                node["trigger_rule"] = item.get("trigger_rule", "all_success")
    needed = {name for item in items for name in dependency_ids(item)}
    return [id for name, ids in last_ids.items() if name not in needed for id in ids]


def read_included(
    item: LocatedMap, target: str, find_source: FindSource, stack: tuple[str, ...]
) -> LocatedMap:
    """Return the document of an included workflow."""
    if target in stack or len(stack) >= MAX_DEPTH:
        path = " -> ".join((*stack, target))
        raise UnreadableInclude(item, f"The includes form a cycle or are too deep: {path}", "Remove one.")
    child = find_source(target)
    nodes = child.get("nodes") if child is not None else None
    if not isinstance(nodes, list) or not nodes or not all(isinstance(node, LocatedMap) for node in nodes):
        fix = "Create it in .archon/workflows."
        raise UnreadableInclude(item, f"The included workflow '{target}' is not found", fix)
    assert child is not None
    return child


def _declared_values(item: LocatedMap, child: LocatedMap) -> dict[str, Any]:
    """Return the values of `with` and the defaults of the included workflow."""
    declared = child.get("inputs")
    defaults = {
        name: value["default"]
        for name, value in (declared.items() if isinstance(declared, dict) else ())
        if isinstance(value, dict) and "default" in value
    }
    given = item.get("with")
    return {**defaults, **(given if isinstance(given, dict) else {})}


def _with_defaults(item: LocatedMap, child: LocatedMap) -> LocatedMap:
    """Return a node with the settings of its own workflow."""
    if any(key in item for key in ("prompt", "command", "loop")):
        for key in ("provider", "model", "effort"):
            if child.get(key) is not None:
                item.setdefault(key, child[key])
    return item


def _check_boundary(item: LocatedMap, nodes: list[LocatedMap]) -> None:
    """Refuse a block with a node that would run although the whole block is skipped."""
    if not dependency_ids(item) and "when" not in item:
        return
    for node in nodes:
        if node.get("trigger_rule") == "all_done" and dependency_ids(node):
            message = f"'{item['include']}' has '{node['id']}' with trigger_rule all_done"
            raise UnreadableInclude(item, message, "Call it with 'workflow' instead of 'include'.")
