"""ReduceNode."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.nodes.support import execute_node, function_node, run_node
from nerve import Session
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import LoopNode, MapNode, ReduceNode


@pytest.mark.requirement("S1-22")
@pytest.mark.requirement("D1-11")
@given(items=st.lists(st.integers()), initial=st.integers())
async def test_it_folds_a_list_from_the_left(items: list[int], initial: int) -> None:
    result = await execute_node(ReduceNode("sum", Session(), operator.sub, initial), items)
    assert result["output"] == initial - sum(items)
    assert result["attributes"] == {"items": len(items)}


@pytest.mark.requirement("S1-22")
async def test_after_a_map_it_gets_the_list_of_outputs(session: Session) -> None:
    square = MapNode("squares", session, function_node(session, "square", lambda n: n * n))
    graph = Graph("flow", session).chain(square, ReduceNode("sum", session, operator.add, initial=0))
    assert (await execute_node(graph, [1, 2, 3]))["output"] == 14


@pytest.mark.requirement("D1-11")
async def test_it_folds_with_a_node_too(session: Session) -> None:
    join = function_node(session, "join", lambda given: given["acc"] + given["item"])
    assert (await execute_node(ReduceNode("all", session, join, initial=""), ["a", "b"]))["output"] == "ab"


async def test_a_failing_node_stops_the_reduction(session: Session) -> None:
    result = await execute_node(ReduceNode("r", session, MockNode("n", session, [OSError("gone")])), [1])
    assert (result["success"], result["error"]) == (False, "'r' stopped in iteration 1: gone")


async def test_a_function_that_raises_names_the_reduce_and_the_types(session: Session) -> None:
    with pytest.raises(TypeError, match="fn of 'r' raised on int, str"):
        await execute_node(ReduceNode("r", session, operator.add, 0), ["a"])


@pytest.mark.parametrize("in_a_run", [False, True])
async def test_it_folds_the_results_of_a_loop_as_result_objects(session: Session, in_a_run: bool) -> None:
    body = function_node(session, "more", lambda number: number + 1)
    graph = Graph("g", session).chain(
        LoopNode("loop", session, body, times=3, accumulate=True),
        ReduceNode("sum", session, lambda total, result: total + result.output, 0),
    )
    output = (
        await (await run_node(session, graph, 1)).wait()
        if in_a_run
        else (await execute_node(graph, 1)).output
    )
    assert output == 2 + 3 + 4
