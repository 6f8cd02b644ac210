"""Inputs of the steps of a graph."""

from typing import Any

import pytest

from core.nodes.support import execute_node, step_outputs
from nerve import ExecutionContext, Session
from nerve.core.nodes import ControlNode, Graph, MockNode, Node, Result
from nerve.core.nodes.control import MapNode, ReduceNode


class Seeing(ControlNode):
    """A control node that records its input."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok({"type": type(context.input).__name__, "value": context.input})


def behind(session: Session, node: Node, *before: Node) -> Graph:
    graph = Graph("g", session)
    for each in before:
        graph.add_step(each)
    return graph.add_step(node, "last", depends_on=[str(each.id) for each in before])


@pytest.mark.requirement("S1-27")
async def test_without_dependencies_a_step_gets_the_input_of_the_graph(session: Session) -> None:
    assert (await execute_node(behind(session, MockNode("n", session)), "in"))["output"] == "in"


@pytest.mark.requirement("S1-27")
async def test_a_leaf_after_one_step_gets_its_output(session: Session) -> None:
    leaf = MockNode("leaf", session)
    await execute_node(
        behind(session, leaf, MockNode("a", session, [{"output": "out", "attributes": {"x": 1}}]))
    )
    assert leaf.calls == ["out"]


@pytest.mark.requirement("S1-27")
async def test_a_control_node_after_one_step_gets_its_result(session: Session) -> None:
    before = MockNode("a", session, [{"output": "out", "attributes": {"x": 1}}])
    seen = (await execute_node(behind(session, Seeing("see", session), before)))["output"]
    assert seen == {
        "type": "Result",
        "value": {"success": True, "output": "out", "attributes": {"x": 1}},
    }


@pytest.mark.requirement("S1-27")
async def test_map_and_reduce_after_one_step_get_its_output(session: Session) -> None:
    graph = behind(session, MapNode("m", session, MockNode()), MockNode("a", session, [[1, 2]]))
    graph.add_step(ReduceNode("r", session, lambda acc, n: acc + n, 0), depends_on=["last"])
    assert step_outputs(await execute_node(graph)) == {"a": [1, 2], "last": [1, 2], "r": 3}


@pytest.mark.requirement("S1-27")
async def test_a_step_after_several_steps_gets_all_their_results(session: Session) -> None:
    leaf = MockNode("leaf", session)
    await execute_node(behind(session, leaf, MockNode("a", session, [1]), MockNode("b", session, [2])))
    [seen] = leaf.calls
    assert {name: (type(result), result["output"]) for name, result in seen.items()} == {
        "a": (Result, 1),
        "b": (Result, 2),
    }


@pytest.mark.requirement("S1-27")
async def test_an_input_fn_gets_the_input_of_the_graph_and_the_results(session: Session) -> None:
    seen: list[dict[str, Any]] = []
    graph = Graph("g", session).add_step(MockNode("a", session, ["one"]))
    graph.add_step(MockNode("b", session), depends_on=["a"], input_fn=lambda up: seen.append(up) or "made")
    assert (await execute_node(graph, "in"))["output"] == "made"
    assert seen == [{"input": "in", "a": {"success": True, "output": "one", "attributes": {}}}]


async def test_a_leaf_gets_the_output_of_a_result_that_input_fn_returns(session: Session) -> None:
    leaf = MockNode("leaf", session)
    graph = Graph("g", session).add_step(MockNode("a", session, ["one"]))
    await execute_node(graph.add_step(leaf, depends_on=["a"], input_fn=lambda up: up["a"]))
    assert leaf.calls == ["one"]


async def test_the_first_leaf_of_a_graph_gets_the_output_of_a_result(session: Session) -> None:
    leaf = MockNode("leaf", session)
    inner = Graph("inner", session).add_step(leaf)
    await execute_node(behind(session, inner, MockNode("a", session, ["one"])))
    assert leaf.calls == ["one"]


async def test_in_a_run_the_inputs_are_the_same(session: Session) -> None:
    session.register_workflow(behind(session, Seeing("see", session), MockNode("a", session, ["out"])))
    run = await session.start("g")
    assert await run.wait() == {
        "type": "Result",
        "value": {"success": True, "output": "out", "attributes": {}},
    }
