"""Execution of the leaves of local runs as a worker would: restored from their references."""

import json
from typing import Any

import pytest

from nerve.core.nodes.base import Node
from nerve.core.result import Result
from nerve.core.runtime import NodeCall
from nerve.engine.call_runner import CallRunner
from nerve.engine.leaf_references import describe_leaf, restore_leaf


def restore(node: Node, session: Any, name: str | None = None) -> Node:
    """Return the leaf that a worker restores, which must be equal."""
    reference = describe_leaf(node, session, name)
    restored = restore_leaf(json.loads(json.dumps(reference)), session)
    assert type(restored) is type(node)
    assert describe_leaf(restored, session, name) == reference
    if restored is not node:
        own = {**vars(node), "policy": None, "_session": None}
        assert {**vars(restored), "policy": None, "_session": None} == own
    return restored


def restore_leaves(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """Execute every leaf of a run restored from its reference; return the list of the restored leaves."""
    restored: list[Node] = []
    run_leaf = CallRunner._run_leaf

    async def run_restored(self: CallRunner, call: NodeCall, recorded: Any) -> Result:
        assert call.context is not None
        call.node = restore(call.node, call.context.session, call.node_id)
        restored.append(call.node)
        return await run_leaf(self, call, recorded)

    monkeypatch.setattr(CallRunner, "_run_leaf", run_restored)
    return restored
