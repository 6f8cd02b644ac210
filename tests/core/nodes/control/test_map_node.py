"""MapNode."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.nodes.support import event_data, execute_node, execute_with_events, function_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import MockNode, Result
from nerve.core.nodes.control import MapNode


def squares(session: Session, **options: Any) -> MapNode:
    return MapNode("squares", session, function_node(session, "square", lambda n: n * n), **options)


@pytest.mark.requirement("S1-21")
async def test_it_returns_the_outputs_and_the_results(session: Session) -> None:
    result = await execute_node(squares(session), [1, 2, 3])
    assert (result["success"], result["output"]) == (True, [1, 4, 9])
    assert [part["output"] for part in result["attributes"]["results"]] == [1, 4, 9]


@pytest.mark.requirement("S1-21")
async def test_an_input_that_is_not_a_list_is_one_item(session: Session) -> None:
    assert (await execute_node(squares(session), 7))["output"] == [49]


async def test_a_tuple_counts_as_a_list(session: Session) -> None:
    assert (await execute_node(squares(session), (2, 3)))["output"] == [4, 9]


async def test_an_empty_list_is_a_success(session: Session) -> None:
    result = await execute_node(squares(session), [])
    assert (result["success"], result["output"]) == (True, [])


@pytest.mark.requirement("S1-21")
@given(order=st.permutations(range(8)), most=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
async def test_results_keep_the_order_of_the_items(order: list[int], most: int) -> None:
    session = Session()

    async def turns(context: ExecutionContext) -> Any:
        for _ in range(order[context.input]):
            await asyncio.sleep(0)
        return context.input

    result = await execute_node(
        MapNode("m", session, FunctionNode("f", session, turns), most), list(range(8))
    )
    assert result["output"] == list(range(8))


@pytest.mark.requirement("S1-21")
async def test_at_most_max_parallel_run_at_once(session: Session) -> None:
    now, most = 0, 0

    async def leaf(_: ExecutionContext) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    body = FunctionNode("leaf", session, leaf)
    await execute_node(MapNode("m", session, body, max_parallel=3), list(range(10)))
    assert most == 3


@pytest.mark.requirement("S1-21")
async def test_it_emits_start_and_end_of_every_item(session: Session) -> None:
    _, events = await execute_with_events(squares(session, max_parallel=1), [5, 6])
    assert [(e["index"], e["total"]) for e in event_data(events, "map_item_start")] == [(0, 2), (1, 2)]
    assert [e["index"] for e in event_data(events, "map_item_complete")] == [0, 1]


@pytest.mark.requirement("D1-17")
async def test_a_failure_does_not_cancel_other_items_and_the_census_names_it(session: Session) -> None:
    body = function_node(session, "inverse", lambda n: 1 / n)
    result = await execute_node(MapNode("m", session, body), [1, 0, 2])
    assert (result["success"], result.get("output")) == (False, [1.0, None, 0.5])
    assert result["error"] == "'m': 2 of 3 succeeded, 3 required (failed: 1). 1: division by zero"
    assert result["attributes"]["census"]["not_ok"] == {"failed": ["1"]}


@pytest.mark.requirement("D1-17")
async def test_a_body_that_raises_does_not_cancel_other_items(session: Session) -> None:
    class Raising(MockNode):
        async def execute(self, context: ExecutionContext) -> Any:
            if context.input == "bad":
                raise OSError("gone")
            return await super().execute(context)

    result = await execute_node(MapNode("m", session, Raising()), ["a", "bad", "b"])
    assert result.get("output") == ["a", None, "b"]
    assert result["attributes"]["results"][1]["error_type"] == "OSError"


async def test_require_sets_how_many_must_succeed(session: Session) -> None:
    body = function_node(session, "inverse", lambda n: 1 / n)
    assert (await execute_node(MapNode("m", session, body, require=2), [1, 0, 2]))["success"]


async def test_skipped_items_do_not_fail_it_and_are_counted(session: Session) -> None:
    body = MockNode("body", session, ["fine", OSError("gone")], on_error="skip")
    result = await execute_node(MapNode("m", session, body, max_parallel=1), [1, 2])
    assert (result["success"], result["output"]) == (True, ["fine", None])
    assert result["attributes"]["census"]["not_ok"] == {"skipped": ["1"]}


@pytest.mark.parametrize("options", [{"max_parallel": 0}, {"require": -1}])
def test_invalid_numbers_are_rejected(session: Session, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} of 'm' must be at least"):
        MapNode("m", session, MockNode(), **options)


async def test_requiring_more_than_the_number_of_items_is_reported(session: Session) -> None:
    result = await execute_node(MapNode("m", session, MockNode(), require=3), [1, 2])
    assert result.error == "'m': 2 of 2 succeeded, 3 required"


async def test_a_list_in_a_result_is_mapped_item_by_item(session: Session) -> None:
    assert (await execute_node(MapNode("m", session, MockNode()), Result.ok([1, 2]))).output == [1, 2]
