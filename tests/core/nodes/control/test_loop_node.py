"""LoopNode."""

from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, function_node
from nerve import Session
from nerve.core.nodes import MockNode
from nerve.core.nodes.control import LoopNode, LoopState


def doubling(session: Session, **options: Any) -> LoopNode:
    return LoopNode("loop", session, function_node(session, "double", lambda n: n * 2), **options)


@pytest.mark.requirement("S1-18")
async def test_it_executes_the_body_n_times_each_with_the_previous_output(session: Session) -> None:
    result = await execute_node(doubling(session, times=3), 1)
    assert (result["output"], result["attributes"]) == (8, {"iterations": 3, "exited_early": False})


@pytest.mark.requirement("S1-18")
async def test_until_ends_the_loop_after_the_iteration_in_which_it_is_true(session: Session) -> None:
    result = await execute_node(doubling(session, until=lambda state: state.result["output"] > 10), 1)
    assert (result["output"], result["attributes"]) == (16, {"iterations": 4, "exited_early": True})


@pytest.mark.requirement("S1-18")
async def test_the_condition_gets_the_iteration_the_last_result_and_all_results(session: Session) -> None:
    seen: list[Any] = []

    def until(state: LoopState) -> bool:
        seen.append((state.iteration, state.result["output"], [r["output"] for r in state.accumulated]))
        return False

    await execute_node(doubling(session, times=3, until=until), 1)
    assert seen == [(1, 2, [2]), (2, 4, [2, 4])]


@pytest.mark.requirement("S1-18")
async def test_accumulate_returns_the_list_of_results(session: Session) -> None:
    result = await execute_node(doubling(session, times=3, accumulate=True), 1)
    assert result["output"] == [{"success": True, "output": output, "attributes": {}} for output in (2, 4, 8)]


@pytest.mark.requirement("S1-18")
async def test_it_stops_at_max_iterations_and_reports_it(session: Session) -> None:
    result = await execute_node(doubling(session, until=lambda _: False, max_iterations=2), 1)
    assert (result["success"], result["output"]) == (True, 4)
    assert result["attributes"] == {"iterations": 2, "exited_early": False}


async def test_on_max_fail_makes_reaching_max_iterations_a_failure(session: Session) -> None:
    result = await execute_node(doubling(session, times=5, max_iterations=2, on_max="fail"), 1)
    assert (result["success"], result["error_type"]) == (False, "MaxIterations")


async def test_times_equal_to_max_iterations_is_a_success(session: Session) -> None:
    result = await execute_node(doubling(session, times=2, max_iterations=2, on_max="fail"), 1)
    assert (result["success"], result["attributes"]["exited_early"]) == (True, False)


async def test_zero_times_returns_the_input(session: Session) -> None:
    assert (await execute_node(doubling(session, times=0), 7))["output"] == 7


async def test_a_failing_body_stops_the_loop(session: Session) -> None:
    loop = LoopNode("loop", session, MockNode("body", session, ["a", OSError("gone")]), times=5)
    result = await execute_node(loop)
    assert (result["success"], result["error_type"]) == (False, "OSError")
    assert result["error"] == "'loop' stopped in iteration 2: gone"


@pytest.mark.requirement("D1-7")
async def test_on_body_failure_continue_ignores_a_failing_body(session: Session) -> None:
    body = MockNode("body", session, [OSError("gone"), "back"])
    result = await execute_node(LoopNode("loop", session, body, times=2, on_body_failure="continue"))
    assert (result["success"], result["output"]) == (True, "back")


@pytest.mark.requirement("D1-9")
def test_a_loop_without_an_end_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="LoopNode 'loop' needs times or until, otherwise it never ends"):
        LoopNode("loop", session, MockNode())


def test_negative_times_are_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="times of 'loop' must be at least 0, got -1"):
        doubling(session, times=-1)


@pytest.mark.requirement("S1-18")
async def test_it_emits_its_iterations_with_the_maximum(session: Session) -> None:
    _, events = await execute_with_events(doubling(session, times=2), 1)
    assert event_data(events, "loop_iteration") == [
        {"loop_id": "loop", "iteration": 0, "max": 2},
        {"loop_id": "loop", "iteration": 1, "max": 2},
    ]


async def test_times_is_the_default_of_max_iterations(session: Session) -> None:
    result = await execute_node(LoopNode("loop", session, MockNode("body", session, ["a"] * 101), times=101))
    assert result["attributes"] == {"iterations": 101, "exited_early": False}


async def test_without_times_max_iterations_is_100(session: Session) -> None:
    loop = LoopNode("loop", session, MockNode("body", session, ["a"] * 101), until=lambda _: False)
    assert (await execute_node(loop))["attributes"] == {"iterations": 100, "exited_early": False}
