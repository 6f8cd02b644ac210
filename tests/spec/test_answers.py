"""Answers: their `success`, fields in conditions, schema and error."""

import json
from typing import Any

import pytest

from nerve import FunctionNode, MockNode, Result, Session
from nerve.agents import AgentNode
from nerve.core.workflow import WorkflowState
from nerve.errors import WorkflowFailed
from nerve.notations import read_source
from nerve.spec.checker import check_document
from nerve.testing import ScriptedProvider

pytestmark = pytest.mark.requirement("S2-05")


@pytest.fixture
async def session():
    async with Session() as made:
        yield made


def steps(*steps: dict[str, Any], **more: Any) -> str:
    return json.dumps({"id": "w", "steps": list(steps), **more})


def agent(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "agent", "agent": id, **more}


def transform(id: str, expression: str) -> dict[str, Any]:
    return {"id": id, "type": "transform", "transform": expression}


def decide(condition: str) -> tuple[dict[str, Any], ...]:
    """A condition after the step `test`, and what it leads to."""
    chosen = {"id": "if", "type": "condition", "condition": condition, "then": "yes", "else": "no"}
    return chosen, transform("yes", "'DEPLOYED'"), transform("no", "'kept'")


async def value(session: Session, text: str, input: Any = None) -> Any:
    return await (await session.start(session.load(text).id, input)).wait()


RED = {"success": False, "failed": 7}
OBJECT = {"type": "object"}


def answering(session: Session, name: str, *answers: Any) -> ScriptedProvider:
    """An agent whose provider returns these answers."""
    provider = ScriptedProvider([a if isinstance(a, str) else json.dumps(a) for a in answers])
    AgentNode(name, session, provider)
    return provider


# -- success -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [{"success": False}, RED, {**RED, "output": "x"}, {**RED, "error": "7 red"}]
)
async def test_an_object_with_success_false_fails_a_node(session: Session, answer: dict[str, Any]) -> None:
    MockNode("test", session, [answer])
    text = steps(agent("test", on_error="h", next="yes"), transform("yes", "1"), transform("h", "steps.test"))
    told = await value(session, text)
    assert told["success"] is False
    assert told["status"] == "failed"
    assert told["error"] == answer.get("error", told["error"])


def test_the_object_stays_the_output_of_a_failure() -> None:
    assert Result.of(RED) == Result.failed("the output has success: false", output=RED)
    assert Result.of({**RED, "error": "7 red"}).error == "7 red"
    assert Result.of({"success": True, "x": 1}) == Result.ok({"success": True, "x": 1})
    assert Result.of(Result.ok(RED)).success


@pytest.mark.parametrize("success", [True, False])
async def test_smart_deploy_reads_the_success_of_the_answer_of_a_node(
    session: Session, success: bool
) -> None:
    MockNode("test", session, [{"success": success, "failed": 7}])
    text = steps(agent("test", next="if"), *decide("context.test.success === true"))
    assert await value(session, text) == ("DEPLOYED" if success else "kept")


@pytest.mark.parametrize("written", ["{}", "```json\n{}\n```", "  {}\n"])
async def test_smart_deploy_reads_the_success_in_the_text_of_an_agent(session: Session, written: str) -> None:
    answering(session, "test", written.replace("{}", json.dumps(RED)))
    text = steps(agent("test", next="if"), *decide("context.test.success === true"))
    assert await value(session, text) == "kept"


async def test_text_never_fails_a_step(session: Session) -> None:
    answering(session, "test", RED)
    told = await value(session, steps(agent("test", next="t"), transform("t", "steps.test")))
    assert (told["status"], told["success"], told["output"]) == ("completed", False, json.dumps(RED))


async def test_an_answer_with_a_schema_fails_like_that_of_a_node(session: Session) -> None:
    answering(session, "test", RED)
    text = steps(agent("test", output_schema=OBJECT, on_error="h"), transform("h", "context.test.failed"))
    assert await value(session, text) == 7


async def test_transforms_and_commands_do_not_fail_because_of_their_data(session: Session) -> None:
    session.load(json.dumps({"id": "kid", "steps": [transform("t", "({success: false, n: 1})")]}))
    text = steps(
        {"id": "c", "type": "agent", "agent": "workflow:kid", "next": "t"},
        transform("t", "[context.c.success, context.c.n, steps.c.status]"),
    )
    assert await value(session, text) == [False, 1, "completed"]


# -- fields ------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize(("coverage", "last"), [(92, "DEPLOYED"), (50, "kept")])
@pytest.mark.parametrize("more", [{}, {"output_schema": OBJECT}])
async def test_a_condition_reads_fields_of_json_text_from_an_agent(
    session: Session, coverage: int, last: str, more: dict[str, Any]
) -> None:
    answering(session, "test", {"coverage": coverage})
    text = steps(agent("test", next="if", **more), *decide("context.test.coverage >= 80"))
    assert await value(session, text) == last


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[1]",
        '{"coverage": 92',
        '{"coverage": 92} and more',
        "{" * 5000,
        '{"a":' * 3000 + "1" + "}" * 3000,
    ],
)
async def test_other_text_has_no_fields(session: Session, text: str) -> None:
    answering(session, "test", text)
    made = steps(agent("test", next="t"), transform("t", "context.test.coverage === undefined"))
    assert await value(session, made) is True


async def test_a_large_text_is_not_parsed_as_json(session: Session) -> None:
    MockNode("test", session, [json.dumps({"coverage": 92, "more": "x" * 1_000_001})])
    made = steps(agent("test", next="t"), transform("t", "context.test.coverage === undefined"))
    assert await value(session, made) is True


# -- schemas -----------------------------------------------------------------------------------

COVERAGE = {"type": "object", "properties": {"coverage": {"type": "number"}}, "required": ["coverage"]}


async def test_an_agent_is_asked_again_if_its_answer_does_not_match_the_schema(session: Session) -> None:
    provider = answering(session, "test", "about 90", {"coverage": 90})
    text = steps(agent("test", output_schema=COVERAGE, next="t"), transform("t", "results.test.coverage"))
    assert await value(session, text) == 90
    assert "JSON Schema" in provider.calls[-1].prompt


@pytest.mark.parametrize("answer", [{"coverage": 90}, '{"coverage": 90}'])
async def test_the_output_of_a_node_must_match_its_schema(session: Session, answer: Any) -> None:
    MockNode("test", session, [answer, "I could not do it."])
    text = steps(agent("test", output_schema=COVERAGE, next="t"), transform("t", "results.test.coverage"))
    workflow = session.load(text)
    assert await (await session.start(workflow.id)).wait() == 90
    run = await session.start(workflow.id)
    with pytest.raises(WorkflowFailed, match="does not match its schema"):
        await run.wait()


async def test_the_answer_of_a_node_to_a_prompt_must_match_the_schema(session: Session) -> None:
    MockNode("tester", session, ["I could not do it."])
    prompt = {"kind": "prompt", "id": "p", "text": "Test it.", "agent": "tester", "output_schema": COVERAGE}
    run = await session.start(session.load(json.dumps({"name": "w", "body": prompt})).id)
    with pytest.raises(WorkflowFailed, match="does not match its schema"):
        await run.wait()
    assert run.state is WorkflowState.FAILED


async def test_a_prompt_to_a_node_may_be_answered_in_a_fenced_block(session: Session) -> None:
    MockNode("tester", session, ['Here it is:\n```json\n{"coverage": 90}\n```'])
    prompt = {"kind": "prompt", "id": "p", "text": "Test it.", "agent": "tester", "output_schema": COVERAGE}
    run = await session.start(session.load(json.dumps({"name": "w", "body": prompt})).id)
    assert await run.wait() == {"coverage": 90}


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-10")
@pytest.mark.requirement("S2-21")
@pytest.mark.parametrize("named", [{}, {"input": "test"}, {"input": ["test"]}])
async def test_an_agent_that_handles_an_error_receives_it(session: Session, named: dict[str, Any]) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("3 tests red: test_login")

    FunctionNode("test", session, broken)
    coder = answering(session, "code", "done")
    await value(session, steps(agent("test", on_error="code"), agent("code", **named)), "go")
    assert "3 tests red: test_login" in coder.calls[-1].prompt


async def test_results_of_a_failure_have_its_error(session: Session) -> None:
    MockNode("bad", session, [Result.failed("boom", output="half")])
    MockNode("red", session, [RED])
    text = steps(
        agent("bad", on_error="red"),
        agent("red", on_error="t"),
        transform("t", "[results.bad, results.red, context.bad.error]"),
    )
    said = "the output has success: false"
    assert await value(session, text) == [{"error": "boom", "output": "half"}, {"error": said, **RED}, "boom"]


async def test_a_node_that_is_executed_instead_sees_the_error(session: Session) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("boom")

    FunctionNode("bad", session, broken)
    instead = {"kind": "transform", "expression": "steps.b.error"}
    body = {"kind": "sequence", "steps": [{"kind": "call", "id": "b", "target": "bad", "on_error": instead}]}
    assert await value(session, json.dumps({"name": "w", "body": body})) == "boom"


async def test_a_step_that_did_not_fail_has_null_as_its_error(session: Session) -> None:
    text = steps({**transform("a", "1"), "next": "t"}, transform("t", "[context.a.error, steps.a.error]"))
    assert await value(session, text) == [None, None]


# -- checks ------------------------------------------------------------------------------------


def warnings(text: str) -> list[str]:
    found = check_document(read_source(text, "w.json")).problems
    return [f"{problem.message} {problem.fix}" for problem in found if problem.severity == "warning"]


READ = decide("context.test.coverage >= 80")


def test_reading_an_undeclared_field_is_a_warning() -> None:
    [said] = warnings(steps(agent("test", next="if"), *READ))
    assert "reads 'coverage' of 'test', but no output_schema declares it" in said
    assert "output_schema of 'test'" in said
    [said] = warnings(steps(agent("test", next="if", output_schema={"properties": {"covrage": {}}}), *READ))
    assert "Did you mean 'covrage'?" in said


@pytest.mark.parametrize(
    "text",
    [
        steps(agent("test", next="if", output_schema=COVERAGE), *READ),
        steps(agent("test", next="if", output_schema={"$ref": "#/x"}), *READ),
        steps(agent("test", next="if"), *decide("context.test.success && !context.test.error")),
        steps(agent("test", next="if"), *decide("context.test.output.length > 3")),
        steps(agent("test", next="if"), *decide("results.test.includes('ok')")),
        steps({**transform("test", "1"), "next": "if"}, *READ),
        steps({"id": "test", "type": "agent", "agent": "workflow:kid", "next": "if"}, *READ),
        steps(agent("test", next="t"), transform("t", "context.test.coverage")),
    ],
)
def test_steps_that_cannot_declare_fields_cause_no_warning(text: str) -> None:
    assert warnings(text) == []


def notes(text: str) -> list[str]:
    found = check_document(read_source(text, "w.json")).problems
    return [f"{each.message} {each.fix}" for each in found if each.severity == "note" and each.fix]


@pytest.mark.requirement("S2-14")
def test_a_condition_on_an_undeclared_success_field_is_a_note() -> None:
    on_success = decide("context.test.success === true")
    [said] = notes(steps(agent("test", next="if"), *on_success))
    assert "An answer of 'test' counts as success unless it is JSON with success: false" in said
    assert "Add 'success' to output_schema of 'test'" in said
    declared = {"properties": {"success": {"type": "boolean"}}}
    assert notes(steps(agent("test", next="if", output_schema=declared), *on_success)) == []
    assert notes(steps({**transform("test", "1"), "next": "if"}, *on_success)) == []
    assert notes(steps(agent("test", next="if"), *decide("!context.test.error"))) == []


def test_a_declared_success_field_without_a_handler_is_a_warning() -> None:
    schema = {"properties": {"success": {"type": "boolean"}}}
    test = agent("test", output_schema=schema)
    [said] = warnings(steps({**test, "next": "t"}, transform("t", "1")))
    assert "An answer with success: false fails 'test', and nothing handles the failure" in said
    assert warnings(steps({**test, "on_error": "t"}, transform("t", "1"))) == []
    assert warnings(steps({**test, "next": "if"}, *decide("context.test.success"))) == []
