"""BranchNode."""

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events
from nerve import Session
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import BranchNode


def approved(session: Session, with_else: bool = True) -> BranchNode:
    return BranchNode(
        id="review_check",
        session=session,
        condition=lambda inp: "APPROVED" in inp.get("output", ""),
        then_branch=MockNode("complete", session, ["done"]),
        else_branch=MockNode("revise", session, ["again"]) if with_else else None,
    )


@pytest.mark.requirement("S1-06")
@pytest.mark.requirement("S1-19")
@pytest.mark.parametrize(
    ("said", "output", "branch"), [("APPROVED", "done", "then"), ("no", "again", "else")]
)
async def test_the_condition_chooses_the_branch(
    session: Session, said: str, output: str, branch: str
) -> None:
    result, events = await execute_with_events(approved(session), {"output": said})
    assert result["output"] == output
    assert event_data(events, "branch_taken") == [{"node_id": "review_check", "branch": branch}]


@pytest.mark.requirement("S1-19")
@pytest.mark.requirement("D1-16")
async def test_without_an_else_branch_the_input_is_returned_and_no_branch_is_taken(session: Session) -> None:
    result, events = await execute_with_events(approved(session, with_else=False), {"output": "no"})
    assert (result["success"], result["output"]) == (True, {"output": "no"})
    assert event_data(events, "branch_taken") == [{"node_id": "review_check", "branch": None}]


async def test_a_branch_not_taken_in_a_graph_returns_the_output_of_the_previous_step(
    session: Session,
) -> None:
    graph = Graph("flow", session).chain(
        MockNode("review", session, ["no"]), approved(session, with_else=False)
    )
    assert (await execute_node(graph))["output"] == "no"


@pytest.mark.requirement("S1-06")
async def test_a_branch_after_a_step_gets_its_result_and_the_leaf_in_it_the_output(session: Session) -> None:
    branch = approved(session)
    await execute_node(Graph("flow", session).chain(MockNode("review", session, ["APPROVED"]), branch))
    assert session.nodes["complete"].calls == ["APPROVED"]
    assert session.nodes["revise"].calls == []


async def test_the_failure_of_the_branch_is_its_failure(session: Session) -> None:
    branch = BranchNode("b", session, bool, MockNode("then", session, [KeyError("x")]))
    assert (await execute_node(branch, True))["error_type"] == "KeyError"
