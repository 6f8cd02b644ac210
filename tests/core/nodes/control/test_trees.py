"""Nested control nodes: no failure is hidden, and a run returns the same as a direct execution."""

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.nodes.support import execute_node
from nerve import Graph, MockNode, Session
from nerve.core.nodes import Node
from nerve.core.nodes.control import (
    BranchNode,
    LoopNode,
    MachineNode,
    MapNode,
    ParallelNode,
    State,
    SwitchNode,
    WhileNode,
)
from nerve.errors import WorkflowFailed

KINDS = ["chain", "graph", "parallel", "map", "branch", "switch", "loop", "while", "machine"]

shapes = st.recursive(
    st.sampled_from(["fine", "bad", "counts"]),
    lambda inner: st.tuples(st.sampled_from(KINDS), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=8,
)
"""Leaves that succeed, fail, or fail with attributes, in control nodes without error handling."""

RESPONSES: dict[str, Any] = {
    "fine": "fine",
    "bad": OSError("gone"),
    "counts": {"success": False, "error": "gone", "attributes": {"skipped": 3, "census": 1}},
}


def built(session: Session, shape: Any, number: list[int]) -> Node:
    number[0] += 1
    id = f"n{number[0]}"
    if isinstance(shape, str):
        return MockNode(id, session, [RESPONSES[shape]])
    kind, inner = shape
    parts = [built(session, each, number) for each in inner]
    graph = Graph(id, session) if kind in ("chain", "graph") else None
    if graph is not None and kind == "chain":
        return graph.chain(*parts)
    if graph is not None:
        for part in parts:
            graph.add_step(part)
        return graph
    made: dict[str, Any] = {
        "parallel": lambda: ParallelNode(id, session, {f"b{i}": part for i, part in enumerate(parts)}),
        "map": lambda: MapNode(id, session, parts[0]),
        "branch": lambda: BranchNode(id, session, lambda _: True, parts[0]),
        "switch": lambda: SwitchNode(id, session, lambda _: "a", {"a": parts[0]}),
        "loop": lambda: LoopNode(id, session, parts[0], times=2),
        "while": lambda: WhileNode(id, session, lambda state: state.iteration < 2, parts[0]),
        "machine": lambda: MachineNode(
            id,
            session,
            {f"s{i}": State(part, f"s{i + 1}" if parts[i + 1 :] else None) for i, part in enumerate(parts)},
        ),
    }
    node: Node = made[kind]()
    return node


def failures(node: Node) -> list[Node]:
    """Return the executed leaves below a node that do not succeed."""
    if isinstance(node, MockNode):
        return [node] if node.calls and node.responses != ["fine"] else []
    parts: Any = node.parts()  # type: ignore[attr-defined]
    return [leaf for part in parts for leaf in failures(part)]


@given(shapes)
async def test_a_tree_succeeds_exactly_when_all_its_parts_succeed(shape: Any) -> None:
    node = built(Session(), shape, [0])
    result = await execute_node(node, 1)
    assert result.success != bool(failures(node)), shape
    if not result.success:
        assert "gone" in result.error


@given(shapes)
async def test_a_run_of_a_tree_returns_the_same_as_a_direct_execution(shape: Any) -> None:
    directly = await execute_node(built(Session(), shape, [0]), 1)
    session = Session()
    node = built(session, shape, [0])
    session.register_workflow(node)
    run = await session.start(str(node.id), 1)
    if directly.success:
        assert await asyncio.wait_for(run.wait(), 10) == directly.output
    else:
        with pytest.raises(WorkflowFailed, match=re.escape(directly.error)):
            await asyncio.wait_for(run.wait(), 10)
