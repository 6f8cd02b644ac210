"""MachineNode."""

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, function_node
from nerve import Session
from nerve.core.nodes import MockNode, Result
from nerve.core.nodes.control import MachineNode, State


def review(session: Session, verdicts: list[str]) -> MachineNode:
    def after_review(result: Result) -> str:
        return "merge" if result["output"] == "good" else "write"

    return MachineNode(
        "review",
        session,
        {
            "write": State(MockNode("writer", session, ["draft"]), next="check"),
            "check": State(MockNode("checker", session, verdicts), next=after_review),
            "merge": State(MockNode("merger", session, ["merged"])),
        },
    )


async def test_it_goes_from_state_to_state_until_next_is_none(session: Session) -> None:
    result = await execute_node(review(session, ["bad", "good"]))
    assert (result["success"], result["output"]) == (True, "merged")
    assert result["attributes"]["states"] == ["write", "check", "write", "check", "merge"]


async def test_each_body_gets_the_previous_result(session: Session) -> None:
    await execute_node(review(session, ["good"]), "task")
    assert session.nodes["writer"].calls == ["task"]
    assert session.nodes["checker"].calls == ["draft"]


async def test_it_emits_the_states_it_enters(session: Session) -> None:
    _, events = await execute_with_events(review(session, ["good"]))
    assert event_data(events, "state_entered") == [
        {"node_id": "review", "state": "write", "transition": 1},
        {"node_id": "review", "state": "check", "transition": 2, "previous": "completed"},
        {"node_id": "review", "state": "merge", "transition": 3, "previous": "completed"},
    ]


async def test_it_starts_in_the_start_state(session: Session) -> None:
    states = {name: State(MockNode(responses=[name])) for name in ("a", "b")}
    assert (await execute_node(MachineNode("m", session, states, start="b")))["output"] == "b"


async def test_a_failed_body_ends_the_machine(session: Session) -> None:
    states = {"a": State(MockNode(responses=[OSError("gone")]), next="b"), "b": State(MockNode())}
    result = await execute_node(MachineNode("m", session, states))
    assert (result["success"], result["error_type"]) == (False, "OSError")
    assert result["error"] == "state 'a' failed: gone"


async def test_a_next_function_handles_a_failed_body(session: Session) -> None:
    broken = State(MockNode(responses=[OSError("gone")]), next=lambda r: None if r["success"] else "repair")
    repair = State(function_node(session, "repair", lambda _: "repaired"))
    result = await execute_node(MachineNode("m", session, {"try": broken, "repair": repair}))
    assert (result["success"], result["output"]) == (True, "repaired")


async def test_an_endless_cycle_ends_at_max_transitions(session: Session) -> None:
    states = {"a": State(MockNode(), next="b"), "b": State(MockNode(), next="a")}
    result = await execute_node(MachineNode("m", session, states, max_transitions=5))
    assert (result["success"], result["error_type"]) == (False, "MaxTransitions")
    assert "reached max_transitions=5 in state 'b': check for states that form a cycle" in result["error"]


def test_an_unknown_next_state_is_rejected_with_a_suggestion(session: Session) -> None:
    with pytest.raises(ValueError, match=r"Unknown state 'chek' of machine 'm'. Did you mean 'check'\?"):
        MachineNode("m", session, {"write": State(MockNode(), "chek"), "check": State(MockNode())})
    assert "m" not in session.nodes


async def test_a_next_function_that_returns_an_unknown_state_fails(session: Session) -> None:
    with pytest.raises(ValueError, match="Unknown state 'nowhere' of machine 'm'"):
        await execute_node(MachineNode("m", session, {"a": State(MockNode(), lambda _: "nowhere")}))


def test_a_machine_without_states_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="MachineNode 'm' has no states"):
        MachineNode("m", session, {})
