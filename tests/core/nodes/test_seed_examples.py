"""The documented workflows of control nodes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from workflows.dev_coach_review import build_dev_coach_review

from core.nodes.support import event_data, execute_node, until
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import BranchNode, GateNode, WhileNode


@pytest.fixture
def team(session: Session) -> Session:
    MockNode("dev", session, ["first draft", "second draft", "third draft"])
    MockNode("coach", session, ["be clearer", "shorter", "ACCEPTED"])
    MockNode("reviewer", session, ["APPROVED"])
    return session


@pytest.mark.requirement("S1-48")
@pytest.mark.requirement("S1-03")
@pytest.mark.requirement("C-20")
async def test_dev_coach_review_runs_without_a_run(team: Session) -> None:
    workflow = build_dev_coach_review(team)
    task = asyncio.create_task(execute_node(workflow, "write a parser"))
    gate = team.nodes["final_approval"]
    await until(lambda: gate._receivers)
    gate.receive_input("approve")
    result = await task
    assert (result["success"], result["output"]) == (True, "approve")
    assert team.nodes["dev"].calls == ["write a parser", "be clearer", "shorter"]
    assert team.nodes["coach"].calls == ["first draft", "second draft", "third draft"]


@pytest.mark.requirement("S1-48")
@pytest.mark.requirement("S1-01")
async def test_dev_coach_review_runs_with_the_gate_answered(team: Session) -> None:
    build_dev_coach_review(team)
    run = await team.start("dev_coach_review", "write a parser")
    await until(lambda: run.pending_gate)
    run.answer_gate("approve", gate_id="final_approval")
    assert await run.wait() == "approve"
    loops = [data["loop_id"] for data in event_data(run.events, "loop_iteration")]
    assert loops == ["outer_loop", "coach_loop", "coach_loop", "coach_loop"]
    assert team.nodes["reviewer"].calls == ["ACCEPTED"]


@pytest.mark.requirement("S1-33")
async def test_its_run_records_the_steps_at_the_start_and_durations_at_the_ends(
    team: Session,
) -> None:
    build_dev_coach_review(team)
    run = await team.start("dev_coach_review")
    await until(lambda: run.pending_gate)
    run.answer_gate("approve")
    await run.wait()
    [started], [completed] = (
        event_data(run.events, "workflow_started"),
        event_data(run.events, "workflow_completed"),
    )
    assert (started["workflow_id"], started["steps"]) == (
        "dev_coach_review",
        ["initial", "collaboration", "approve"],
    )
    assert completed["duration_s"] >= 0
    assert all(data["duration_ms"] >= 0 for data in event_data(run.events, "step_completed"))


@pytest.mark.requirement("S1-48")
@pytest.mark.requirement("D1-8")
@pytest.mark.parametrize("reviews", [["too long"], ["too long", "too short", "no tests"]])
async def test_dev_coach_review_survives_rejections(team: Session, reviews: list[str]) -> None:
    team.nodes["reviewer"].responses = [*reviews, "APPROVED"]
    build_dev_coach_review(team)
    run = await team.start("dev_coach_review", "write a parser")
    await until(lambda: run.pending_gate or run.is_complete)
    run.answer_gate("approve")
    assert await run.wait() == "approve"
    outer = [data for data in event_data(run.events, "loop_iteration") if data["loop_id"] == "outer_loop"]
    assert len(outer) == len(reviews) + 1


@pytest.mark.requirement("S1-48")
async def test_dev_coach_review_resumes_after_a_restart_with_the_rejection(tmp_path: Path) -> None:
    def opened(reviews: list[str]) -> Session:
        session = Session("test", tmp_path / "nerve.db")
        MockNode("dev", session, ["draft"])
        MockNode("coach", session, ["ACCEPTED"])
        MockNode("reviewer", session, reviews)
        build_dev_coach_review(session)
        return session

    async with opened(["too long", "APPROVED"]) as session:
        run = await session.start("dev_coach_review", "write a parser")
        await until(lambda: run.pending_gate)
    async with opened(["never asked again"]) as session:
        [again] = await session.recover()
        again.answer_gate("approve")
        assert await again.wait() == "approve"
        assert session.nodes["reviewer"].calls == []


def search_until_sufficient(session: Session) -> WhileNode:
    """Return the search loop of the first user story."""
    search_evaluate_graph = Graph("search_evaluate", session)
    search_evaluate_graph.add_step_ref("searcher", "search")
    return WhileNode(
        id="search_loop",
        session=session,
        condition=lambda state: not state.current_value.get("sufficient"),
        body=search_evaluate_graph,
        max_iterations=5,
    )


FOUND = [{"found": 1}, {"sufficient": True}]


@pytest.mark.requirement("S1-05")
@pytest.mark.parametrize("question", ["What is Rust?", {"question": "Rust"}, 5, None, ["a"]])
async def test_the_search_loop_accepts_any_input_as_the_first_step(session: Session, question: Any) -> None:
    MockNode("searcher", session, FOUND)
    result = await execute_node(search_until_sufficient(session), question)
    assert (result.output, result.attributes["iterations"]) == ({"sufficient": True}, 2)


@pytest.mark.requirement("S1-05")
async def test_the_search_loop_accepts_the_output_of_a_previous_step(session: Session) -> None:
    MockNode("searcher", session, FOUND)
    graph = Graph("g", session).chain(MockNode("ask", session, ["why?"]), search_until_sufficient(session))
    assert (await execute_node(graph)).output == {"sufficient": True}


@pytest.mark.requirement("S1-06")
@pytest.mark.parametrize("behind_a_step", [True, False])
@pytest.mark.parametrize(("review", "taken"), [("APPROVED", "complete"), ("too long", "revise")])
async def test_the_review_branch_accepts_a_string_at_any_position(
    session: Session, review: str, taken: str, behind_a_step: bool
) -> None:
    review_branch = BranchNode(
        id="review_check",
        session=session,
        condition=lambda inp: "APPROVED" in inp.get("output", ""),
        then_branch=MockNode("complete_node", session, ["complete"]),
        else_branch=MockNode("revision_loop", session, ["revise"]),
    )
    if behind_a_step:
        graph = Graph("g", session).chain(MockNode("reviewer", session, [review]), review_branch)
        assert (await execute_node(graph)).output == taken
    else:
        assert (await execute_node(review_branch, review)).output == taken


@pytest.mark.requirement("S1-17")
async def test_the_counter_loop_counts_after_a_step_too(session: Session) -> None:
    while_node = WhileNode(
        id="counter_loop",
        session=session,
        condition=lambda state: state.current_value < 5,
        body=FunctionNode(id="inc", session=session, fn=lambda ctx: {"output": ctx.input + 1}),
    )
    graph = Graph("g", session).chain(MockNode("zero", session, [0]), while_node)
    result = await execute_node(graph)
    assert (result["output"], result["attributes"]["iterations"]) == (5, 5)


@pytest.mark.requirement("C-20")
def test_ids_that_start_with_an_underscore_are_accepted_and_not_listed(team: Session) -> None:
    build_dev_coach_review(team)
    assert {"_inner", "_outer"} <= set(team.graphs)
    assert team.list_workflows() == ["dev_coach_review"]


def build_research_workflow(session: Session) -> Graph:
    """Return the workflow that searches, summarizes, asks for approval, and returns the answer."""
    search = Graph("search_evaluate", session)
    search.add_step_ref("searcher", "search")
    search.add_step_ref("evaluator", "evaluate", depends_on=["search"])
    loop = WhileNode("research_loop", session, lambda s: "SUFFICIENT" not in str(s.current_value), search, 5)

    workflow = Graph("research_agent", session)
    workflow.add_step(loop, "research")
    workflow.add_step_ref("writer", "synthesize", depends_on=["research"])
    workflow.add_step(GateNode("final", session, "Approve to finalize?"), "approve", ["synthesize"])
    workflow.add_step(
        FunctionNode("finish", session, lambda c: {"answer": c.input}),
        "finish",
        ["synthesize", "approve"],
        input_fn=lambda up: up["synthesize"]["output"],
    )
    return workflow


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-24")
@pytest.mark.requirement("D1-18")
async def test_full_workflow() -> None:
    session = Session()
    session.nodes["searcher"] = MockNode(responses=["Found: X, Y, Z"])
    session.nodes["evaluator"] = MockNode(responses=["SUFFICIENT"])
    session.nodes["writer"] = MockNode(responses=["Summary: ..."])
    workflow = build_research_workflow(session)

    for step in workflow._steps.values():
        if isinstance(step.node, GateNode):
            step.node._auto_approve = True

    ctx = ExecutionContext(session=session, input="What is X?")
    result = await workflow.execute(ctx)

    assert result["success"] is True
    assert "Summary" in result["output"]["answer"]
