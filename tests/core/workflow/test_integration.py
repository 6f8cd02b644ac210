"""The documented examples of workflow functions."""

import pytest
from workflows.code_review_workflow import code_review
from workflows.dev_coach_review import dev_coach_review_workflow
from workflows.research_agent import register

from core.workflow.support import at_gate, data_of, types, until, within
from nerve import FunctionNode, MockNode, Session
from nerve.core.workflow import Workflow, WorkflowRun, WorkflowState


class TestWorkflowIntegration:
    """The documented tests, under their names."""

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-69")
    @pytest.mark.requirement("S0-72")
    @pytest.mark.asyncio
    async def test_workflow_with_multiple_nodes(self):
        session = Session(name="test")

        FunctionNode(
            id="step1",
            session=session,
            fn=lambda ctx: {"output": f"step1({ctx.input})"},
        )
        FunctionNode(
            id="step2",
            session=session,
            fn=lambda ctx: {"output": f"step2({ctx.input})"},
        )

        async def pipeline(ctx):
            r1 = await ctx.run("step1", ctx.input)
            r2 = await ctx.run("step2", r1["output"])
            return r2["output"]

        Workflow(id="pipeline", session=session, fn=pipeline)

        run = WorkflowRun(
            workflow=session.get_workflow("pipeline"),
            input="hello",
        )
        await run.start()
        result = await run.wait()

        assert result == "step2(step1(hello))"

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-01")
    @pytest.mark.asyncio
    async def test_workflow_with_loop(self):
        session = Session(name="test")

        counter = {"value": 0}

        FunctionNode(
            id="increment",
            session=session,
            fn=lambda ctx: {"output": counter.__setitem__("value", counter["value"] + 1) or counter["value"]},
        )

        async def loop_workflow(ctx):
            target = ctx.input
            while counter["value"] < target:
                await ctx.run("increment", None)
            return counter["value"]

        Workflow(id="loop", session=session, fn=loop_workflow)

        run = WorkflowRun(
            workflow=session.get_workflow("loop"),
            input=5,
        )
        await run.start()
        result = await run.wait()

        assert result == 5


async def answered(run, *answers):
    for answer in answers:
        await at_gate(run)
        await run.answer(answer)
    return await within(run.wait())


@pytest.fixture
def review(session):
    """Return the session of the code review, and the inputs of its two nodes."""
    nodes = [
        MockNode("reviewer", session, ["3 issues", "no issues"]),
        MockNode("editor", session, ["code 2"]),
    ]
    Workflow(id="code_review", session=session, fn=code_review)
    return session, nodes


@pytest.mark.requirement("S0-04")
@pytest.mark.requirement("S0-01")
async def test_the_code_review_loops_over_feedback_until_it_is_accepted(review):
    session, (reviewer, editor) = review
    run = await session.start("code_review", "code 1")
    assert await answered(run, "shorter names", "accept") == "no issues"
    assert reviewer.calls == ["Review this:\ncode 1", "Review this:\ncode 2"]
    assert editor.calls == ["Apply feedback: shorter names\n\nCode:\ncode 1"]
    assert data_of(run, "review_complete") == [{"review": "3 issues"}, {"review": "no issues"}]


@pytest.mark.requirement("S0-04")
async def test_the_code_review_can_be_rejected(review):
    run = await review[0].start("code_review", "code 1")
    assert await answered(run, "Reject") == "Review rejected"


@pytest.mark.requirement("S0-04")
@pytest.mark.requirement("S0-73")
async def test_the_code_review_survives_a_restart_between_two_rounds(file):
    asked = []
    for part in ("start", "recover"):
        async with Session("test", file) as session:
            reviewer = MockNode("reviewer", session, [lambda given: f"seen: {given[-6:]}"])
            MockNode("editor", session, ["code 2"])
            Workflow("code_review", session, code_review)
            if part == "start":
                run = await session.start("code_review", "code 1")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                assert await answered(run, "shorter names", "accept") == "seen: code 2"
            asked.append(len(reviewer.calls))
    assert asked == [1, 1]


@pytest.mark.requirement("S1-15")
@pytest.mark.requirement("S1-16")
async def test_the_research_agent_searches_until_it_has_enough(session):
    register(session)
    assert session.get_workflow("research_agent").description == "Research and synthesize information"
    MockNode("searcher", session, ["little", "much"])
    MockNode("evaluator", session, ["not yet", "better query", "SUFFICIENT"])
    writer = MockNode("writer", session, ["the answer"])
    run = await session.start("research_agent", "why?")
    result = await answered(run, "approve")
    assert result == {"success": True, "answer": "the answer", "iterations": 2}
    assert writer.calls == ["Synthesize:\nlittle\n---\nmuch"]
    assert [data["name"] for data in data_of(run, "phase")] == ["research", "sufficient", "synthesize"]
    assert [data["current"] for data in data_of(run, "iteration")] == [1, 2]


@pytest.mark.requirement("S1-15")
async def test_the_research_agent_respects_its_parameter_and_a_rejection(session):
    register(session)
    MockNode("searcher", session, ["little"])
    MockNode("evaluator", session, ["not yet"])
    MockNode("writer", session, ["the answer"])
    run = await session.start("research_agent", "why?", {"max_iterations": 3})
    assert await answered(run, "too short") == {
        "success": False,
        "reason": "rejected",
        "feedback": "too short",
    }
    assert len(data_of(run, "iteration")) == 3


@pytest.mark.requirement("S1-15")
async def test_dev_coach_and_reviewer_loop_until_both_accept(session):
    dev = MockNode("dev", session, ["v1", "v2", "v3"])
    MockNode("coach", session, ["fix it", "ACCEPTED", "ACCEPTED"])
    MockNode("reviewer", session, ["no", "APPROVED"])
    Workflow("dev_coach_review", session, dev_coach_review_workflow)
    run = await session.start("dev_coach_review", "task")
    assert await answered(run, "approve") == {"success": True, "rounds": 2}
    assert dev.calls == ["Implement: task", "Address:\nfix it"]
    assert types(run).count("coach_accepted") == 2
    assert data_of(run, "reviewer_accepted") == [{"round": 2}]
    assert [data["inner"] for data in data_of(run, "inner_round")] == [1, 2, 1]


@pytest.mark.requirement("S1-15")
async def test_dev_coach_and_reviewer_stop_after_their_rounds(session):
    MockNode("dev", session, ["v1"])
    MockNode("coach", session, ["fix it"])
    MockNode("reviewer", session, ["no"])
    Workflow("dev_coach_review", session, dev_coach_review_workflow)
    run = await session.start("dev_coach_review", "task", {"max_outer": 2, "max_inner": 3})
    assert await within(run.wait()) == {"success": False, "reason": "max_rounds", "rounds": 2}
    assert len(data_of(run, "inner_round")) == 6


@pytest.mark.requirement("S0-01")
async def test_a_workflow_branches_on_a_result_and_retries_differently_after_an_error(session):
    FunctionNode("strict", session, lambda context: int(context.input))
    MockNode("lenient", session, [lambda given: len(given)])

    async def parse(ctx):
        result = await ctx.run("strict", ctx.input)
        if not result["success"]:
            result = await ctx.run("lenient", ctx.input)
        return result["output"]

    Workflow("parse", session, parse)
    values = [await (await session.start("parse", text)).wait() for text in ("42", "four")]
    assert values == [42, 4]


@pytest.mark.requirement("S0-02")
async def test_the_state_of_every_run_is_available(session):
    async def ask(ctx):
        return await ctx.gate("Continue?")

    Workflow("ask", session, ask)
    runs = [await session.start("ask", number) for number in range(3)]
    await until(lambda: all(run.pending_gate for run in runs))
    await runs[0].answer("yes")
    await runs[0].wait()
    await runs[1].stop()
    assert [info.state.value for info in session.list_workflow_runs("ask")] == [
        "completed",
        "cancelled",
        "waiting",
    ]
    assert session.list_workflow_runs(state=WorkflowState.WAITING)[0].pending_gate["prompt"] == "Continue?"
