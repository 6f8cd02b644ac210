"""ParallelNode."""

import asyncio
from typing import Any

import pytest

from core.nodes.support import execute_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import ParallelNode


def branches(session: Session, *failing: str) -> dict[str, Any]:
    return {
        name: MockNode(name, session, [OSError(f"{name} is gone")] if name in failing else [])
        for name in ("a", "b", "c")
    }


async def test_every_branch_gets_the_same_input(session: Session) -> None:
    result = await execute_node(ParallelNode("p", session, branches(session)), "in")
    assert (result["success"], result["output"]) == (True, {"a": "in", "b": "in", "c": "in"})


async def test_the_branches_run_concurrently(session: Session) -> None:
    meeting = asyncio.Barrier(2)

    async def meet(_: ExecutionContext) -> None:
        await meeting.wait()

    pair = {name: FunctionNode(name, session, meet) for name in ("a", "b")}
    assert (await execute_node(ParallelNode("p", session, pair)))["success"]


@pytest.mark.requirement("D1-17")
async def test_a_failure_does_not_cancel_other_branches_and_is_named(session: Session) -> None:
    result = await execute_node(ParallelNode("p", session, branches(session, "b")), 1)
    assert (result["success"], result["error_type"]) == (False, "PartsFailed")
    assert result.get("output") == {"a": 1, "b": None, "c": 1}
    why = result["attributes"]["results"]["b"]["error"]
    assert result["error"] == f"'p': 2 of 3 succeeded, 3 required (failed: b). b: {why}"
    assert result["attributes"]["census"]["ok"] == 2


@pytest.mark.parametrize(("require", "success"), [(None, False), (3, False), (2, True), (0, True)])
async def test_require_sets_how_many_must_succeed(
    session: Session, require: int | None, success: bool
) -> None:
    result = await execute_node(ParallelNode("p", session, branches(session, "c"), require=require))
    assert result["success"] is success


async def test_the_census_distinguishes_failures_from_timeouts(session: Session) -> None:
    async def never(_: ExecutionContext) -> None:
        await asyncio.Event().wait()

    slow = FunctionNode("slow", session, never, timeout=0)
    bad = MockNode("bad", session, [OSError("gone")])
    result = await execute_node(ParallelNode("p", session, {"slow": slow, "bad": bad, "good": MockNode()}))
    assert result["attributes"]["census"]["not_ok"] == {"failed": ["bad"], "timed_out": ["slow"]}


async def test_after_a_step_a_leaf_gets_the_output_and_an_input_fn_the_result(
    session: Session,
) -> None:
    leaf = MockNode("leaf", session)
    inner = Graph("inner", session).add_step(
        MockNode("x", session),
        input_fn=lambda up: {"output": up["input"]["output"], "ok": up["input"]["success"]},
    )
    parallel = ParallelNode("p", session, {"leaf": leaf, "graph": inner})
    result = await execute_node(Graph("flow", session).chain(MockNode("first", session, ["said"]), parallel))
    assert result["output"]["leaf"] == "said"
    assert result["output"]["graph"]["output"] == "said"


def test_requiring_more_than_the_number_of_branches_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="require of 'p' must be from 0 to 3, got 4"):
        ParallelNode("p", session, branches(session), require=4)
