"""References to leaves: plain data from which another process of the project restores an equal leaf."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from nerve.core.nodes.base import (
    AGENT_CHANGES,
    ControlNode,
    Node,
    NodeRegistry,
    node_policy,
    node_role,
    with_changes,
)
from nerve.errors import NerveError


class UnknownLeaf(NerveError):
    """This process has no leaf for a reference; one with the current code of the project may have it."""


class LeafKind(NamedTuple):
    """A class of leaves without a name, and the arguments that it gets besides its id."""

    module: str
    class_name: str
    arguments: tuple[str, ...] = ()


LEAF_KINDS = {
    "bash": LeafKind("nerve.core.nodes.bash", "BashNode", ("command", "cwd", "env", "inside_project")),
    "assert": LeafKind("nerve.core.nodes.fact_nodes", "AssertNode"),
    "retract": LeafKind("nerve.core.nodes.fact_nodes", "RetractNode"),
    "start": LeafKind("nerve.core.workflow.detached_start", "StartNode"),
    "request": LeafKind("nerve.spec.dataspace_nodes", "RequestNode"),
    "response": LeafKind("nerve.spec.dataspace_nodes", "ResponseNode"),
    "workspace_base": LeafKind("nerve.core.nodes.workspace", "RecordBase"),
    "workspace_open": LeafKind("nerve.core.nodes.workspace", "OpenWorkspace"),
    "workspace_merge": LeafKind("nerve.core.nodes.workspace", "MergeWorkspace", ("trees",)),
    "workspace_read": LeafKind("nerve.core.nodes.workspace", "ReadWorkspace"),
    "workspace_close": LeafKind("nerve.core.nodes.workspace", "CloseWorkspace"),
    "file_check": LeafKind("nerve.spec.expectations", "FileCheck"),
    "file": LeafKind("nerve.spec.file_nodes", "ReadFile"),
    "unmet": LeafKind("nerve.spec.expectations", "ExpectationFailure"),
}
"""The leaves that bodies and specs create while they run; all others are found by their names."""
UNSET_VALUES: tuple[Any, ...] = (None, False, {})
"""What an argument is without being given; an empty command is a command."""
KIND_BY_CLASS = {(kind.module, kind.class_name): name for name, kind in LEAF_KINDS.items()}


def describe_leaf(node: Node, session: NodeRegistry, name: str | None = None) -> dict[str, Any]:
    """Return the reference to a leaf; ValueError for one that only this process has.

    `name` is the name by which it is called, if that is not its id.
    """
    id: str | None = getattr(node, "id", None)
    name = name or id
    if name is not None and session.nodes.get(name) is node:
        return {"name": name}
    node_class = type(node)
    if (kind := KIND_BY_CLASS.get((node_class.__module__, node_class.__qualname__))) is not None:
        arguments = {name: getattr(node, name) for name in LEAF_KINDS[kind].arguments}
        if arguments.get("cwd"):
            arguments["cwd"] = relative_to_project(arguments["cwd"], session.project)
        given = {name: value for name, value in arguments.items() if value not in UNSET_VALUES}
        return {"kind": kind, "id": id, **given}
    named = None if name is None else session.find(name)
    if named is node:
        return {"name": name}
    if (changes := find_changes(node, named)) is not None:
        return {"name": name, **changes}
    raise ValueError(
        f"A worker cannot find the step '{name or node_class.__name__}' ({node_class.__name__}), which has no"
        " name of its own. Create it with an id and the session."
    )


def restore_leaf(reference: Mapping[str, Any], session: NodeRegistry) -> Node:
    """Return the leaf of a reference; UnknownLeaf if this process does not have it."""
    if (name := reference.get("name")) is None:
        kind_name = reference["kind"]
        if (kind := LEAF_KINDS.get(kind_name)) is None:
            raise UnknownLeaf(f"Unknown kind of step '{kind_name}'. Update Nerve on this worker.")
        arguments = {name: reference[name] for name in kind.arguments if name in reference}
        node_class = getattr(import_module(kind.module), kind.class_name)
        node: Node = node_class(reference["id"], None, **arguments)
        return node
    named: Node | None = session.find(name)
    if named is None:
        raise UnknownLeaf(
            f"No step or agent '{name}' on this worker. Start the worker with the code of the project."
        )
    return with_changes(named, {key: reference[key] for key in AGENT_CHANGES if key in reference})


def check_portable(session: NodeRegistry) -> None:
    """Raise ValueError for a leaf in a registered node, graph or workflow that only this process has."""
    bodies = [getattr(workflow, "body", None) for workflow in session.workflows.values()]
    named = {id(node) for node in session.nodes.values()}
    visited: set[int] = set()
    pending: list[Any] = [*session.nodes.values(), *session.graphs.values(), *filter(None, bodies)]
    while pending:
        current = pending.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        if isinstance(fallback := node_policy(current).on_error, Node):
            pending.append(fallback)
        if isinstance(current, ControlNode):
            pending += current.parts()
        elif node_role(current) == "leaf" and id(current) not in named:
            describe_leaf(current, session)


def relative_to_project(directory: str, project: Path) -> str:
    """Return a directory inside the project as a relative path, as a worker has it elsewhere."""
    path, root = Path(directory), project.absolute()
    return str(path.relative_to(root)) if path.is_absolute() and path.is_relative_to(root) else directory


def find_changes(node: Node, named: Any) -> dict[str, Any] | None:
    """Return what a call has changed in a copy of a named agent; None for any other node."""
    if type(node) is not type(named):
        return None
    changes = {
        name: vars(node)[name]
        for name in AGENT_CHANGES
        if name in vars(node) and vars(node)[name] != vars(named).get(name)
    }
    return changes if {**vars(named), **changes} == vars(node) else None
