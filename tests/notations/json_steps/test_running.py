"""Step machines as runs."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nerve.core.nodes import FunctionNode
from nerve.core.workflow import WorkflowRun, WorkflowState
from nerve.errors import NerveError, WorkflowFailed
from nerve.session import Session
from nerve.text.source import InvalidDefinition

EXAMPLES = Path(__file__).parents[3] / "examples/workflows/json"


class Agents:
    """A session with agents that note how they are called."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls: list[tuple[str, Any]] = []

    def add(self, name: str, *answers: Any) -> None:
        """An agent that gives its answers in turn, the last one again and again; exceptions are raised."""
        turn = list(answers) or [f"{name} is done"]

        async def act(context: Any) -> Any:
            self.calls.append((name, context.input))
            answer = turn.pop(0) if len(turn) > 1 else turn[0]
            if callable(answer):
                answer = await answer()
            if isinstance(answer, Exception):
                raise answer
            return answer

        FunctionNode(name, self.session, act)

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.calls]

    async def start(self, *steps: dict[str, Any], input: Any = "go", **workflow: Any) -> WorkflowRun:
        text = json.dumps({"id": "w", **workflow, "steps": list(steps)})
        return await self.session.start(self.session.load(text).id, input)

    async def run(self, *steps: dict[str, Any], input: Any = "go", **workflow: Any) -> Any:
        return await (await self.start(*steps, input=input, **workflow)).wait()

    async def fail(self, *steps: dict[str, Any], **workflow: Any) -> str:
        run = await self.start(*steps, **workflow)
        with pytest.raises(NerveError) as caught:
            await run.wait()
        assert run.state is WorkflowState.FAILED
        return str(caught.value)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with Session() as session:
        yield Agents(session)


def agent(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "agent", "agent": f"{id}-agent", **more}


NO = RuntimeError("no")


# -- the examples ------------------------------------------------------------------------------


@pytest.mark.requirement("S2-05")
@pytest.mark.requirement("S2-21")
@pytest.mark.requirement("S2-01")
async def test_feature_dev_goes_back_to_the_code_when_the_tests_fail(agents: Agents) -> None:
    agents.add("planner", "a plan")
    agents.add("coder", NO, "some code")
    agents.add("tester", NO, NO, NO, "all well")
    workflow = agents.session.load(EXAMPLES / "feature-dev.json")
    assert await (await agents.session.start(workflow.id, "a feature")).wait() == "all well"
    assert agents.called == ["planner", "coder", "coder", *["tester"] * 3, "coder", "tester"]


@pytest.mark.requirement("S2-05")
@pytest.mark.requirement("S2-12")
@pytest.mark.requirement("S2-21")
async def test_comprehensive_test_reports_on_all_tests_and_has_failed_if_one_did(agents: Agents) -> None:
    agents.add("test-unit", {"passed": 12})
    agents.add("test-integration", NO)
    agents.add("test-e2e")
    agents.add("reporter")
    run = await agents.session.start(agents.session.load(EXAMPLES / "comprehensive-test.json").id, "x")
    with pytest.raises(WorkflowFailed, match="parallel-tests"):
        await run.wait()
    assert run.state is WorkflowState.FAILED
    name, given = agents.calls[-1]
    assert name == "reporter"
    assert given["context"]["parallel-tests"] == [
        {"stepId": "unit", "status": "fulfilled", "result": {"passed": 12}, "error": None},
        {"stepId": "integration", "status": "rejected", "result": None, "error": "no"},
        {"stepId": "e2e", "status": "fulfilled", "result": "test-e2e is done", "error": None},
    ]


@pytest.mark.requirement("S2-05")
@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize(("answer", "last"), [("green", "deployer"), (NO, "notifier")])
async def test_smart_deploy_decides_by_the_success_of_the_test(
    agents: Agents, answer: Any, last: str
) -> None:
    agents.add("tester", answer)
    agents.add("deployer")
    agents.add("notifier")
    run = await agents.session.start(agents.session.load(EXAMPLES / "smart-deploy.json").id)
    assert await run.wait() == f"{last} is done"
    assert agents.called == ["tester", last]


# -- agents ------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-10")
@pytest.mark.requirement("S2-27")
async def test_agents_see_the_input_and_the_results_so_far(agents: Agents) -> None:
    agents.add("step1-agent", {"data": "result1"})
    agents.add("step2-agent", {"data": "result2"})
    result = await agents.run(agent("step1", next="step2"), agent("step2"), input={"input": "test"})
    assert result == {"data": "result2"}
    assert agents.calls == [
        ("step1-agent", {"input": {"input": "test"}, "context": {}}),
        ("step2-agent", {"input": {"input": "test"}, "context": {"step1": {"data": "result1"}}}),
    ]


@pytest.mark.requirement("S2-10")
async def test_a_named_input_is_given_by_its_name(agents: Agents) -> None:
    for name in ("a", "b", "c"):
        agents.add(f"{name}-agent")
    await agents.run(agent("a", next="b"), agent("b", input="a", next="c"), agent("c", input=["a"]))
    assert agents.calls[1][1]["a"] == "a-agent is done"
    assert agents.calls[2][1] == {
        "input": "go",
        "context": {"a": "a-agent is done"},
        "a": "a-agent is done",
    }


@pytest.mark.requirement("S2-11")
@pytest.mark.requirement("S2-27")
async def test_three_retries_are_three_calls(agents: Agents) -> None:
    agents.add("a-agent", RuntimeError("fail 1"), RuntimeError("fail 2"), {"output": "success"})
    assert await agents.run(agent("a", max_retries=3)) is not None
    assert agents.called == ["a-agent"] * 3


@pytest.mark.requirement("S2-11")
async def test_one_attempt_is_no_retry(agents: Agents) -> None:
    agents.add("a-agent", NO, "late")
    assert "no" in await agents.fail(agent("a"))
    assert agents.called == ["a-agent"]


@pytest.mark.requirement("S2-10")
async def test_an_unknown_agent_is_reported_before_anything_runs(agents: Agents) -> None:
    agents.add("a-agent")
    with pytest.raises((InvalidDefinition, ValueError), match="b-agent"):
        await agents.run(agent("a", next="b"), agent("b"))
    assert agents.called == []


@pytest.mark.requirement("S2-16")
async def test_a_step_that_takes_too_long_goes_to_its_handler(agents: Agents) -> None:
    agents.add("a-agent", asyncio.Event().wait)
    agents.add("b-agent")
    assert await agents.run(agent("a", timeout_ms=20, on_error="b"), agent("b")) == "b-agent is done"


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.requirement("S2-19")
@pytest.mark.requirement("S2-21")
async def test_a_failure_without_a_handler_is_a_failed_run(agents: Agents) -> None:
    agents.add("a-agent", NO)
    agents.add("b-agent")
    assert "no" in await agents.fail(agent("a", next="b"), agent("b"))
    assert agents.called == ["a-agent"]


@pytest.mark.requirement("S2-21")
async def test_a_failure_that_is_handled_is_none(agents: Agents) -> None:
    agents.add("a-agent", NO)
    agents.add("b-agent")
    assert await agents.run(agent("a", next="a", on_error="b"), agent("b")) == "b-agent is done"


@pytest.mark.requirement("S2-21")
async def test_a_run_continues_after_a_skipped_failure(agents: Agents) -> None:
    agents.add("a-agent", NO)
    agents.add("b-agent")
    assert await agents.run(agent("a", on_error="skip", next="b"), agent("b")) == "b-agent is done"
    await agents.run(agent("a", on_error="skip"))


@pytest.mark.requirement("S2-04")
async def test_an_unknown_target_is_a_problem_with_its_place(agents: Agents) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        agents.session.load(
            '{"id": "w", "steps": [\n{"id": "a", "type": "agent", "agent": "x", "next": "b"}]}'
        )
    assert [(it.position.line, it.position.column) for it in caught.value.problems] == [(2, 52)]


# -- guards ------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-17")
@pytest.mark.requirement("S2-18")
@pytest.mark.requirement("S2-27")
async def test_an_endless_loop_ends(agents: Agents) -> None:
    agents.add("a-agent")
    told = await agents.fail(agent("a", next="a"), max_iterations=10)
    assert (
        "Workflow exceeded max iterations: 10. This usually indicates an infinite loop. Check your workflow"
        " routing logic." in told
    )
    assert "raise it with max_iterations in the file" in told
    assert agents.called == ["a-agent"] * 10


@pytest.mark.requirement("S2-17")
async def test_zero_iterations_run_nothing(agents: Agents) -> None:
    agents.add("a-agent")
    assert "exceeded max iterations: 0" in await agents.fail(agent("a"), max_iterations=0)
    assert agents.called == []


@pytest.mark.requirement("S2-17")
async def test_a_run_that_takes_too_long_ends_in_the_middle_of_a_step(agents: Agents) -> None:
    agents.add("a-agent", asyncio.Event().wait)
    told = await agents.fail(agent("a"), max_duration_ms=50)
    said = r"exceeded max duration: 50ms\. Elapsed: (\d+)ms\. Consider breaking into smaller workflows\."
    found = re.search(said, told)
    assert found
    assert int(found[1]) >= 50
    assert "raise it with max_duration_ms in the file" in told


@pytest.mark.requirement("S2-17")
@pytest.mark.requirement("S2-20")
async def test_ten_errors_are_a_systemic_issue(agents: Agents) -> None:
    agents.add("a-agent", NO)
    told = await agents.fail(agent("a", on_error="a"))
    assert (
        "Workflow exceeded max errors: 10. This indicates a systemic issue. Check your error handling logic."
        in told
    )
    assert agents.called == ["a-agent"] * 10


# -- parallel ----------------------------------------------------------------------------------


def parallel(**more: Any) -> dict[str, Any]:
    return {"id": "p", "type": "parallel", "steps": [agent("u"), agent("v")], **more}


@pytest.mark.requirement("S2-12")
@pytest.mark.requirement("S2-27")
async def test_parallel_steps_run_at_the_same_time(agents: Agents) -> None:
    both = asyncio.Barrier(2)
    agents.add("u-agent", both.wait)
    agents.add("v-agent", both.wait)
    assert len(await agents.run(parallel())) == 2


@pytest.mark.requirement("S2-12")
async def test_a_failed_part_goes_to_the_handler(agents: Agents) -> None:
    agents.add("u-agent", NO)
    agents.add("v-agent")
    agents.add("b-agent")
    assert await agents.run(parallel(on_error="b"), agent("b")) == "b-agent is done"
    assert sorted(agents.called) == ["b-agent", "u-agent", "v-agent"]


@pytest.mark.requirement("S2-12")
async def test_as_many_as_asked_for_are_enough(agents: Agents) -> None:
    agents.add("u-agent", NO)
    agents.add("v-agent", "fine")
    report = await agents.run(parallel(min_success=1))
    assert [part["status"] for part in report] == ["rejected", "fulfilled"]


@pytest.mark.requirement("S2-12")
async def test_a_failed_parallel_names_the_parts_and_what_they_said(agents: Agents) -> None:
    agents.add("a-agent", 1)
    agents.add("b-agent", RuntimeError("it broke"))
    step = {"id": "p", "type": "parallel", "steps": [agent("a"), agent("b")]}
    assert "'p' failed: 1 of 2 failed (b: it broke)" in await agents.fail(step)
    step["min_success"] = 2
    assert "'p' failed: 1 of 2 failed, 2 must succeed (b: it broke)" in await agents.fail(step)


@pytest.mark.requirement("S2-12")
@pytest.mark.requirement("S2-13")
async def test_a_rejected_part_cancels_and_names_itself(agents: Agents) -> None:
    parts = [{"id": "sure", "type": "approval"}, {"id": "t", "type": "transform", "transform": "1"}]
    run = await agents.start(
        {"id": "p", "type": "parallel", "steps": parts, "next": "end"},
        {"id": "end", "type": "transform", "transform": "results.p"},
    )
    await answer(run, "reject")
    with pytest.raises(asyncio.CancelledError, match=r"1 of 2 failed \(sure: rejected: reject\)"):
        await run.wait()


@pytest.mark.requirement("S2-12")
async def test_later_steps_see_the_parts_by_their_ids(agents: Agents) -> None:
    agents.add("u-agent", {"passed": 3})
    agents.add("v-agent", NO)
    check = {
        "id": "c",
        "type": "condition",
        "condition": "context.u.passed === 3 && !context.v.success && !context.p.success",
    }
    agents.add("yes-agent")
    agents.add("no-agent")
    assert (
        await agents.run(
            parallel(next="c"), {**check, "then": "yes", "else": "no"}, agent("yes"), agent("no")
        )
        == "yes-agent is done"
    )


@pytest.mark.requirement("S2-12")
async def test_parallels_nest(agents: Agents) -> None:
    for name in "uvw":
        agents.add(f"{name}-agent", name)
    outer = {"id": "o", "type": "parallel", "steps": [parallel(), agent("w")]}
    first, second = await agents.run(outer)
    assert [part["result"] for part in first["result"]] == ["u", "v"]
    assert second == {"stepId": "w", "status": "fulfilled", "result": "w", "error": None}


@pytest.mark.requirement("S2-25")
async def test_independent_steps_run_at_the_same_time_and_give_the_same(agents: Agents) -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        await both.wait()
        return "met"

    agents.add("a-agent", meet)
    agents.add("b-agent", meet)
    agents.add("c-agent")
    steps = agent("a", input=[], next="b"), agent("b", input=[], next="c"), agent("c", input=["a", "b"])
    assert await agents.run(*steps, parallel=True) == "c-agent is done"
    assert agents.calls[-1][1]["context"] == {"a": "met", "b": "met"}
    assert await agents.run(*steps[:1], agent("b", input=[]), parallel=True) == "met"


# -- approvals ---------------------------------------------------------------------------------


def approval(**more: Any) -> dict[str, Any]:
    return {"id": "g", "type": "approval", **more}


async def answer(run: WorkflowRun, text: str) -> None:
    gate = await run.next_gate()
    assert gate.choices == ["approve", "reject"]
    run.answer_gate(text)


@pytest.mark.requirement("S2-13")
async def test_a_run_continues_after_an_approval(agents: Agents) -> None:
    agents.add("b-agent")
    run = await agents.start(approval(message="Ship {{ input }}?", next="b"), agent("b"))
    assert (await run.next_gate()).prompt == "Ship go?"
    await answer(run, "approve")
    assert await run.wait() == "b-agent is done"


@pytest.mark.requirement("S2-13")
@pytest.mark.parametrize("handler", [{}, {"on_error": "b"}])
async def test_a_rejection_ends_the_run_cancelled(agents: Agents, handler: dict[str, Any]) -> None:
    agents.add("b-agent")
    run = await agents.start(approval(next="b", **handler), agent("b"))
    await answer(run, "reject")
    with pytest.raises((NerveError, asyncio.CancelledError)):
        await run.wait()
    assert run.state is WorkflowState.CANCELLED
    assert agents.called == []


@pytest.mark.requirement("S2-13")
@pytest.mark.parametrize(("text", "approved"), [("approve", True), ("reject", False)])
async def test_a_rejection_goes_where_the_step_says(agents: Agents, text: str, approved: bool) -> None:
    told = {"id": "t", "type": "transform", "transform": "[context.g.approved, results.g, given]"}
    run = await agents.start(approval(on_approve="t", on_reject="t"), told)
    await answer(run, text)
    assert await run.wait() == [approved, {"approved": approved}, {"approved": approved}]


@pytest.mark.requirement("S2-13")
@pytest.mark.parametrize(("text", "approved"), [("approve", True), ("reject", False)])
async def test_an_approval_in_a_parallel_gives_whether_it_was_approved(
    agents: Agents, text: str, approved: bool
) -> None:
    step = {"id": "p", "type": "parallel", "steps": [approval(on_reject="continue")]}
    run = await agents.start(step)
    await answer(run, text)
    assert [part["result"] for part in await run.wait()] == [{"approved": approved}]


# -- conditions, transforms, nesting -----------------------------------------------------------


@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("context.a-b.score >= 80", True),
        ("context.a-b.score < 80", False),
        ("context.a-b.name === 'x'", True),
        ('context.a-b.name !== "x"', False),
        ("context.a-b.deep.er === null", True),
        ("context.start.n === 1", True),
    ],
)
async def test_conditions_compare(agents: Agents, condition: str, holds: bool) -> None:
    agents.add("a-b-agent", {"score": 80, "name": "x", "deep": {"er": None}})
    agents.add("yes-agent", True)
    agents.add("no-agent", False)
    check = {"id": "c", "type": "condition", "condition": condition, "then": "yes", "else": "no"}
    steps = agent("a-b", next="c"), check, agent("yes"), agent("no")
    assert await agents.run(*steps, initial_context={"start": {"n": 1}}) is holds


@pytest.mark.requirement("S2-14")
async def test_an_invalid_condition_is_reported_with_its_position(agents: Agents) -> None:
    step = '{"id": "c", "type": "condition", "then": null, "else": null,\n"condition": "context.a ==="}'
    with pytest.raises(InvalidDefinition) as caught:
        agents.session.load('{"id": "w", "steps": [' + step + "]}")
    assert caught.value.problems[0].position.line == 2


@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize("condition", ["context.c.x === === 1", "nope === 1"])
async def test_a_condition_that_cannot_be_read_is_called_invalid(agents: Agents, condition: str) -> None:
    step = {"id": "c", "type": "condition", "condition": condition, "then": None, "else": None}
    with pytest.raises(InvalidDefinition) as caught:
        await agents.run(step)
    (problem,) = caught.value.problems
    assert problem.message.startswith(f"Invalid condition: {condition}: ")
    assert problem.fix
    with pytest.raises(InvalidDefinition) as caught:
        await agents.run({"id": "c", "type": "transform", "transform": condition})
    assert "Invalid condition" not in str(caught.value)


@pytest.mark.requirement("S2-02")
async def test_names_of_the_initial_context_may_have_hyphens(agents: Agents) -> None:
    step = {"id": "t", "type": "transform", "transform": "context.a-b.x + context.n - 1"}
    assert await agents.run(step, initial_context={"a-b": {"x": 2}, "n": 5}) == 6


@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize("said", ["context.late", "steps['late']", "results.late"])
async def test_a_step_that_has_not_run_has_no_result(agents: Agents, said: str) -> None:
    agents.add("late-agent")
    key = "success" if said.startswith("steps") else "ok"
    steps = [
        {"id": "c", "type": "condition", "condition": f"{said}.{key} === true", "then": "late", "else": "t"},
        agent("late"),
        {"id": "t", "type": "transform", "transform": f"{said}?.{key} ?? 'not yet'"},
    ]
    assert "Step result not found: late" in await agents.fail(*steps)
    asked = {"id": "g", "type": "approval", "message": f"{{{{ {said}.{key} }}}}?", "next": "late"}
    assert "Step result not found: late" in await agents.fail(asked, agent("late"))
    steps[0]["condition"] = f"{said}?.{key} === true"
    assert await agents.run(*steps) == "not yet"


@pytest.mark.requirement("S2-15")
async def test_a_transform_computes(agents: Agents) -> None:
    step = {"id": "t", "type": "transform", "transform": "({sum: input.reduce((a, b) => a + b, 0)})"}
    assert await agents.run(step, input=[1, 2, 3]) == {"sum": 6}


@pytest.mark.requirement("S2-23")
async def test_a_workflow_is_called_as_an_agent(agents: Agents) -> None:
    agents.add("inner-agent", lambda: asyncio.sleep(0, "inside"))
    agents.session.load(json.dumps({"id": "child", "steps": [agent("inner")]}))
    run = await agents.start({"id": "a", "type": "agent", "agent": "workflow:child"}, input="hello")
    assert await run.wait() == "inside"
    assert agents.calls == [("inner-agent", {"input": "hello", "context": {}})]


KID = """
name: kid
inputs:
  who: {type: string, required: true}
  times: {type: integer, default: 2}
body: {kind: transform, expression: "[input, inputs.who, inputs.times]"}
"""
CALL = {"id": "c", "type": "agent", "agent": "workflow:kid"}


@pytest.mark.requirement("S2-23")
async def test_a_workflow_that_is_called_is_given_its_inputs(agents: Agents) -> None:
    agents.session.load(KID, "yaml")
    params = {"who": "{{ input }} and {{ results.a }}", "times": 3}
    first = {"id": "a", "type": "transform", "transform": "'Ada'", "next": "c"}
    assert await agents.run(first, {**CALL, "params": params}) == ["go", "go and Ada", 3]


@pytest.mark.requirement("S2-23")
@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, r"Workflow 'kid' needs the input 'who' \(string\)"),
        ({"who": "x", "tims": 1}, "Workflow 'kid' has no input 'tims'. Did you mean 'times'?"),
    ],
)
async def test_invalid_inputs_are_reported_before_anything_runs(
    agents: Agents, params: dict[str, Any], said: str
) -> None:
    agents.session.load(KID, "yaml")
    with pytest.raises(InvalidDefinition, match=said):
        await agents.start({**CALL, "params": params})


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (agent("a", params={"x": 1}), "'params' of step 'a' are the inputs of a workflow, and 'a-agent' is"),
        ({**CALL, "output_schema": {}}, "'output_schema' of step 'c' is for an agent"),
    ],
)
def test_what_only_an_agent_or_a_workflow_has_is_said(
    agents: Agents, step: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidDefinition, match=said):
        agents.session.load(json.dumps({"id": "w", "steps": [step]}))
