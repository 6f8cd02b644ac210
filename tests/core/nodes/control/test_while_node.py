"""WhileNode."""

from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, function_node, run_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import ControlNode, WhileNode, WhileState
from nerve.errors import WorkflowFailed


def counting(session: Session, **options: Any) -> WhileNode:
    options = {"condition": lambda state: state.current_value < 5, **options}
    return WhileNode(
        id="loop", session=session, body=function_node(session, "inc", lambda n: n + 1), **options
    )


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-17")
@pytest.mark.requirement("D1-15")
async def test_loops_until_condition_false(session: Session) -> None:
    counter = {"value": 0}

    def increment(_: ExecutionContext) -> dict[str, Any]:
        counter["value"] += 1
        return {"output": counter["value"]}

    while_node = WhileNode(
        id="counter_loop",
        session=session,
        condition=lambda state: state.current_value < 5,
        body=FunctionNode(id="inc", session=session, fn=increment),
    )
    result = await while_node.execute(ExecutionContext(session=session, input=0))
    assert result["output"] == 5
    assert result["attributes"] == {"iterations": 5, "exited_early": True}


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-17")
async def test_respects_max_iterations(session: Session) -> None:
    result = await execute_node(counting(session, condition=lambda _: True, max_iterations=3), 0)
    assert (result["success"], result["output"]) == (True, 3)
    assert result["attributes"] == {"iterations": 3, "exited_early": False}


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-17")
async def test_emits_iteration_events(session: Session) -> None:
    _, events = await execute_with_events(counting(session), 0)
    assert event_data(events, "loop_iteration") == [
        {"loop_id": "loop", "iteration": number, "max": 100} for number in range(5)
    ]


@pytest.mark.requirement("S1-17")
async def test_the_event_comes_before_the_body(session: Session) -> None:
    _, events = await execute_with_events(counting(session), 4)
    assert [event.event_type for event in events] == ["loop_iteration", "node_started", "node_completed"]


@pytest.mark.requirement("S1-17")
async def test_the_condition_gets_iteration_value_and_history(session: Session) -> None:
    seen: list[tuple[int, Any, list[Any]]] = []

    def condition(state: WhileState) -> bool:
        seen.append((state.iteration, state.current_value, [result["output"] for result in state.history]))
        return state.iteration < 2

    await execute_node(counting(session, condition=condition), 0)
    assert seen == [(0, 0, []), (1, 1, [1]), (2, 2, [1, 2])]


@pytest.mark.requirement("S1-05")
async def test_the_search_loop_of_the_user_story_ends_when_there_is_enough(session: Session) -> None:
    body = Graph("search_evaluate", session)
    body.add_step(MockNode("search", session, [{"sufficient": False}, {"sufficient": True}]), "search")
    research_loop = WhileNode(
        id="search_loop",
        session=session,
        condition=lambda state: not state.current_value.get("sufficient"),
        body=body,
        max_iterations=5,
    )
    result = await execute_node(research_loop, {})
    assert (result["output"], result["attributes"]["iterations"]) == ({"sufficient": True}, 2)


async def test_a_condition_that_is_false_at_once_returns_the_input(session: Session) -> None:
    result = await execute_node(counting(session, condition=lambda _: False), "as it was")
    assert result == {
        "success": True,
        "output": "as it was",
        "attributes": {"iterations": 0, "exited_early": True},
    }


@pytest.mark.requirement("D1-7")
async def test_on_max_fail_makes_reaching_max_iterations_a_failure(session: Session) -> None:
    result = await execute_node(counting(session, max_iterations=2, on_max="fail"), 0)
    assert (result["success"], result["error_type"], result.get("output")) == (False, "MaxIterations", 2)
    assert "'loop' reached max_iterations=2" in result["error"]


@pytest.mark.requirement("D1-7")
async def test_a_condition_that_ends_exactly_at_max_iterations_is_a_success(session: Session) -> None:
    result = await execute_node(counting(session, max_iterations=5, on_max="fail"), 0)
    assert (result["success"], result["attributes"]["exited_early"]) == (True, True)


@pytest.mark.requirement("D1-7")
async def test_a_failing_body_stops_the_loop(session: Session) -> None:
    body = MockNode("flaky", session, [{"output": 1}, ValueError("broken")])
    result = await execute_node(WhileNode("loop", session, lambda _: True, body), 0)
    assert (result["success"], result["error_type"]) == (False, "ValueError")
    assert result["error"] == "'loop' stopped in iteration 2: broken"


@pytest.mark.requirement("D1-7")
async def test_on_body_failure_continue_ignores_a_failing_body(session: Session) -> None:
    body = MockNode("flaky", session, [ValueError("broken"), "fine"])
    loop = WhileNode(
        "loop", session, lambda state: state.current_value != "fine", body, on_body_failure="continue"
    )
    result = await execute_node(loop, 0)
    assert (result["success"], result["output"]) == (True, "fine")


@pytest.mark.requirement("D1-8")
async def test_a_condition_that_raises_names_the_loop_and_the_type_it_saw(session: Session) -> None:
    loop = counting(session, condition=lambda state: state.current_value.done)
    with pytest.raises(AttributeError, match=r"condition of 'loop' raised on str: .*no attribute 'done'"):
        await execute_node(loop, "text")


@pytest.mark.requirement("D1-8")
async def test_in_a_run_a_condition_that_raises_fails_the_run_with_its_type(session: Session) -> None:
    loop = counting(session, condition=lambda state: state.current_value.done)
    run = await run_node(session, Graph("flow", session).add_step(loop, "loop"), "text")
    with pytest.raises(WorkflowFailed, match="condition of 'loop' raised on str"):
        await run.wait()
    assert event_data(run.events, "workflow_failed")[0]["error_type"] == "AttributeError"


async def test_a_negative_max_iterations_is_rejected_and_registers_nothing(session: Session) -> None:
    with pytest.raises(ValueError, match="max_iterations of 'loop' must be at least 0, got -1"):
        WhileNode("loop", session, bool, MockNode(), max_iterations=-1)
    assert "loop" not in session.nodes


@pytest.mark.requirement("S1-25")
def test_every_control_node_is_a_control_node() -> None:
    from nerve.core.nodes.control import common

    assert common.ControlNode is ControlNode
    assert issubclass(WhileNode, ControlNode)
