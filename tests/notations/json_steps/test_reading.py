"""Step machines read into the spec."""

import json
from pathlib import Path
from typing import Any

import pytest

from nerve.notations.json_steps import read_document
from nerve.spec.models import WorkflowSpec
from nerve.text.source import Document, InvalidDefinition, Position

SHAPE = 'Write {"id": "a-name", "steps": [{…}]}.'
EXAMPLES = Path(__file__).parents[3] / "examples/workflows/json"


def spec(*steps: dict[str, Any], **workflow: Any) -> WorkflowSpec:
    return WorkflowSpec.model_validate(document(*steps, **workflow).data)


def document(*steps: dict[str, Any], **workflow: Any) -> Document:
    return read_document(json.dumps({"id": "w", **workflow, "steps": list(steps)}))


def state(step: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """The state of the first of some steps."""
    made: dict[str, Any] = document(step, *others).data["body"]["states"][0]
    return made


def told(text: str) -> list[str]:
    with pytest.raises(InvalidDefinition) as caught:
        read_document(text, "w.json")
    return [str(problem).removeprefix("w.json:") for problem in caught.value.problems]


AGENT = {"id": "a", "type": "agent", "agent": "planner"}
END = {"id": "end", "type": "agent", "agent": "x"}
CHECK = {"id": "check", "type": "condition", "condition": "true", "then": None, "else": None}
PARALLEL = {
    "id": "p",
    "type": "parallel",
    "steps": [{"id": "u", "type": "agent", "agent": "unit"}, {"id": "v", "type": "agent", "agent": "v"}],
}


@pytest.mark.requirement("S2-05")
@pytest.mark.requirement("S2-24")
@pytest.mark.parametrize("name", ["feature-dev", "comprehensive-test", "smart-deploy"])
def test_the_examples_are_read_as_they_stand(name: str) -> None:
    read_from = read_document((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"), name)
    assert WorkflowSpec.model_validate(read_from.data).name == name


@pytest.mark.requirement("S2-02")
def test_a_workflow_has_a_name_limits_and_a_context() -> None:
    made = spec(
        AGENT, description="d", max_iterations=7, max_duration_ms=1500, initial_context={"x": {"y": 1}}
    )
    assert (made.name, made.description, made.context) == ("w", "d", {"x": {"y": 1}})
    assert made.limits.model_dump(exclude_none=True) == {"iterations": 7, "wall_time": 1.5, "errors": 10}


@pytest.mark.requirement("S2-02")
def test_the_defaults_are_said() -> None:
    read_from = document(AGENT, PARALLEL, {"id": "g", "type": "approval"})
    assert read_from.data["limits"] == {"iterations": 100, "errors": 10, "wall_time": 300}
    assert [note.message for note in read_from.warnings] == [
        "max_iterations is not set: 100 steps at most",
        "max_duration_ms is not set: 300000 (5 minutes), not counting waits",
        "The run fails at 10 failed steps",
        "timeout_ms is not set for 'a', 'u', 'v': 60000 (1 minute)",
    ]
    assert {note.severity for note in read_from.warnings} == {"note"}


@pytest.mark.requirement("S2-02")
def test_zero_is_zero() -> None:
    assert spec(AGENT, max_iterations=0).limits.iterations == 0


def test_the_machine_allows_as_many_steps_as_the_workflow() -> None:
    assert "max_transitions" not in document(AGENT).data["body"]
    assert document(AGENT, max_iterations=5000).data["body"]["max_transitions"] > 5000


@pytest.mark.requirement("S2-04")
def test_a_step_is_a_state_and_the_first_is_the_start() -> None:
    body = document({**AGENT, "next": "end"}, END).data["body"]
    assert body["kind"] == "machine"
    assert [made["name"] for made in body["states"]] == ["a", "end"]
    assert "start" not in body
    assert [made["next"] for made in body["states"]] == [[{"to": "end"}], []]


@pytest.mark.requirement("S2-10")
def test_an_agent_is_called_with_the_input_and_the_results() -> None:
    body = state(AGENT)["body"]
    assert (body["kind"], body["id"], body["target"]) == ("call", "a", "planner")
    assert body["input"] == {"input": "{{ input }}", "context": "{{ results }}"}


@pytest.mark.requirement("S2-10")
def test_an_input_is_given_by_name_too_and_a_list_is_all_there_is() -> None:
    one = state({**AGENT, "input": "end"}, END)["body"]["input"]
    assert one == {"input": "{{ input }}", "context": "{{ results }}", "end": "{{ results['end'] }}"}
    several = state({**AGENT, "input": ["end"]}, END)["body"]["input"]
    named = {"end": "{{ results['end'] }}"}
    assert several == {"input": "{{ input }}", "context": named, **named}
    assert state({**AGENT, "input": []})["body"]["input"] == {"input": "{{ input }}", "context": {}}


@pytest.mark.requirement("S2-23")
def test_a_workflow_is_an_agent() -> None:
    child = {**AGENT, "agent": "workflow:other"}
    body = state(child)["body"]
    assert body == {"kind": "workflow", "workflow": "other", "input": "{{ input }}", "id": "a"}
    assert state({**child, "input": "end"}, END)["body"]["input"] == "{{ results['end'] }}"
    assert state({**child, "input": ["end"]}, END)["body"]["input"] == {"end": "{{ results['end'] }}"}


@pytest.mark.requirement("S2-11")
def test_retries_are_attempts_in_all() -> None:
    assert "retry" not in state(AGENT)["body"]
    assert "retry" not in state({**AGENT, "max_retries": 1, "retry_delay_ms": 5})["body"]
    retry = state({**AGENT, "max_retries": 3, "retry_delay_ms": 1000})["body"]["retry"]
    assert retry == {"attempts": 3, "delay": 1, "factor": 2, "cap": 30}
    assert state({**AGENT, "max_retries": 2})["body"]["retry"]["delay"] == 0


@pytest.mark.requirement("S2-16")
def test_only_agents_have_a_timeout_by_default() -> None:
    assert state(AGENT)["body"]["timeout"] == 60
    assert state({**AGENT, "timeout_ms": 250})["body"]["timeout"] == 0.25
    for step in (PARALLEL, CHECK, {"id": "g", "type": "approval"}, {**AGENT, "agent": "workflow:x"}):
        assert "timeout" not in state(step)["body"]
        assert state({**step, "timeout_ms": 1000})["body"]["timeout"] == 1


@pytest.mark.requirement("S2-13")
def test_an_approval_is_a_gate() -> None:
    asked = state({"id": "g", "type": "approval", "next": "end"}, END)
    gate = {"kind": "gate", "id": "g", "choices": ["approve", "reject"], "reject": ["reject"]}
    assert asked["body"] == {**gate, "output": "approved"}
    assert asked["next"] == [{"to": "end"}]


@pytest.mark.requirement("S2-13")
def test_a_rejection_goes_where_it_says() -> None:
    step = {"id": "g", "type": "approval", "message": "Ship?", "next": "end", "on_reject": "a"}
    asked = state(step, END, AGENT)
    assert asked["body"]["prompt"] == "Ship?"
    assert "reject" not in asked["body"]
    assert asked["next"] == [{"when": "!given.approved", "to": "a"}, {"to": "end"}]
    assert state({**step, "on_approve": "a"}, END, AGENT)["next"][1] == {"to": "a"}


@pytest.mark.requirement("S2-14")
def test_a_condition_goes_one_of_two_ways() -> None:
    made = state({**CHECK, "condition": "context.a-b.n >= 80", "then": "end", "else": None}, END)
    assert made["body"] == {"kind": "transform", "id": "check", "expression": "context.a-b.n >= 80"}
    assert made["next"] == [{"when": "given", "to": "end"}, {}]


@pytest.mark.requirement("S2-15")
def test_a_transform_is_an_expression() -> None:
    made = state({"id": "t", "type": "transform", "transform": "input.x + 1"})
    assert made["body"] == {"kind": "transform", "id": "t", "expression": "input.x + 1"}


@pytest.mark.requirement("S2-12")
def test_a_parallel_runs_all_and_reports_on_each() -> None:
    side_by_side = state(PARALLEL)["body"]
    assert [branch["id"] for branch in side_by_side["branches"]] == ["u", "v"]
    assert side_by_side["outputs"] == "list"
    assert "require" not in side_by_side
    assert state({**PARALLEL, "min_success": 1})["body"]["require"] == 1


@pytest.mark.requirement("S2-12")
def test_any_step_stands_in_a_parallel_one() -> None:
    nested = [
        {"id": "g", "type": "approval"},
        {"id": "c", "type": "condition", "condition": "true"},
        {"id": "t", "type": "transform", "transform": "1"},
        PARALLEL,
    ]
    with_ends = [
        nested[0] | {"next": None, "on_reject": None},
        nested[1] | {"then": None, "else": None},
        nested[2] | {"next": None, "on_error": None},
        PARALLEL,
    ]
    alike = [{"id": "outer", "type": "parallel", "steps": steps} for steps in (nested, with_ends)]
    assert state(alike[0]) == state(alike[1])
    branches = state({"id": "outer", "type": "parallel", "steps": nested})["body"]["branches"]
    assert [branch["kind"] for branch in branches] == ["gate", "transform", "transform", "parallel"]
    assert [branch["id"] for branch in branches] == ["g", "c", "t", "p"]


@pytest.mark.requirement("S2-21")
def test_a_failure_without_a_handler_fails_unless_what_follows_deals_with_it() -> None:
    def after(step: dict[str, Any]) -> str | None:
        return state(step, END, CHECK).get("after_failure")

    assert after(AGENT) is None
    assert after({**AGENT, "next": "end"}) is None
    assert after({**AGENT, "next": "check"}) == "go_on"
    assert after({**AGENT, "next": "check", "on_error": "end"}) is None
    assert after(PARALLEL) == "remember"
    assert after({**PARALLEL, "next": "end"}) == "remember"
    assert after({**PARALLEL, "next": "check"}) == "go_on"
    assert after({"id": "g", "type": "approval", "next": "check"}) is None


@pytest.mark.requirement("S2-21")
def test_skip_is_a_step_if_there_is_one_and_otherwise_skips_the_failure() -> None:
    skipping = {**AGENT, "on_error": "skip", "next": "end"}
    alone = state(skipping, END)
    assert alone["body"]["on_error"] == "skip"
    assert "on_error" not in alone
    named = state(skipping, END, {"id": "skip", "type": "agent", "agent": "x"})
    assert named["on_error"] == "skip"
    assert "on_error" not in named["body"]


def test_places_survive() -> None:
    text = (EXAMPLES / "smart-deploy.json").read_text()
    read_from = read_document(text, "smart-deploy.json")
    lines = text.split("\n")

    def at(*loc: str | int) -> str:
        place = read_from.position_of(("body", "states", *loc))
        return lines[place.line - 1][place.column - 1 :].rstrip(",")

    assert at(0, "name") == '"test"'
    assert at(0, "body", "target") == '"tester"'
    assert at(0, "next", 0, "to") == '"check-results"'
    assert at(1, "body", "expression") == '"context.test.success === true"'
    assert at(1, "next", 0, "to") == '"deploy"'
    assert at(1, "next", 1, "to") == '"notify-failure"'
    assert at(2) == "{"
    assert read_from.position_of(("body", "states", 2, "name")) == Position(19, 13)
    assert read_from.position_of(("body", "states", 0, "body", "target"), key=True) == Position(8, 7)


def test_the_full_form_is_the_spec_itself() -> None:
    data = {"name": "x", "body": {"kind": "transform", "expression": "1"}}
    read_from = read_document(json.dumps({"$schema": "s", **data}), "x.json")
    assert read_from.data == data
    assert (read_from.notation, read_from.file, read_from.warnings) == ("json", "x.json", [])
    assert read_from.position_of(("body", "expression")).column == 75


@pytest.mark.requirement("S2-09")
@pytest.mark.requirement("S2-24")
@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ('{"id": "a", "type": "agnet"}', "21: Unknown step type: agnet. Did you mean 'agent'? Valid types:"),
        ('{"id": "a", "type": 3}', "21: Unknown step type: 3. Valid types: agent, approval, parallel,"),
        ('{"id": "a"}', "1: Missing 'type' in step 'a'. Valid types: agent, approval,"),
        ('{"type": "approval"}', "1: Missing 'id' in step 1 of type approval"),
        (
            '{"id": "a b", "type": "approval"}',
            "8: 'id' of step 'a b' of type approval must be 1 to 128 letters,",
        ),
        ('{"id": "a", "type": "agent"}', "1: Missing 'agent' in step 'a' of type agent"),
        (
            '{"id": "a", "type": "agent", "agent": ""}',
            "39: 'agent' of step 'a' of type agent must be a non-empty",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "workflow:"}',
            "39: 'workflow:' does not name a workflow. Write workflow",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "x", "nxt": "b"}',
            "44: Unknown key 'nxt' in step 'a' of type agent.",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "x", "next": 3}',
            "52: 'next' of step 'a' of type agent must be the id",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "x", "then": "b"}',
            "44: Unknown key 'then' in step 'a' of type agent",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "x", "max_retries": 0}',
            "59: 'max_retries' of step 'a' of type",
        ),
        (
            '{"id": "a", "type": "agent", "agent": "x", "timeout_ms": 0}',
            "58: 'timeout_ms' of step 'a' of type",
        ),
        ('{"id": "a", "type": "agent", "agent": "x", "timeout_ms": true}', "58: 'timeout_ms' of step 'a' of"),
        (
            '{"id": "a", "type": "agent", "agent": "x", "input": "b"}',
            "53: 'input' of step 'a' names the unknown step 'b'",
        ),
        (
            '{"id": "input", "type": "agent", "agent": "x", "input": ["input"]}',
            "58: A step with the reserved id 'input' cannot",
        ),
        ('{"id": "a", "type": "transform"}', "1: Missing 'transform' in step 'a' of type transform"),
        ('{"id": "a", "type": "parallel"}', "1: Missing 'steps' in step 'a' of type parallel"),
        ('{"id": "a", "type": "parallel", "steps": []}', "42: No steps in step 'a'. Add at least one step."),
        (
            '{"id": "a", "type": "parallel", "steps": {}}',
            "42: 'steps' of step 'a' of type parallel must be a list",
        ),
        (
            '{"id": "a", "type": "parallel", "min_success": 2, "steps": [{"id": "b", "type": "approval"}]}',
            "48: min_success of step 'a' is 2, of 1 steps",
        ),
        (
            '{"id": "a", "type": "parallel", "steps": [{"id": "b", "type": "approval", "next": "a"}]}',
            "75: Unknown key 'next' in step 'b' of type approval. A step in a parallel step has no routes:",
        ),
        (
            '{"id": "a", "type": "condition", "condition": "1", "then": "a"}',
            "1: Missing 'else' in step 'a' of type condition. Add \"else\": \"a-step\" or null.",
        ),
        (
            '{"id": "a", "type": "condition", "condition": "1", "then": "a", "else": "a", "next": "a"}',
            "78: Unknown key 'next' in step 'a' of type condition. Route a condition with 'then' and 'else'.",
        ),
        ("5", "1: A step must be an object, got 5"),
    ],
)
def test_an_invalid_step_is_reported_with_its_position(step: str, problem: str) -> None:
    (found,) = told('{"id": "w", "steps": [\n' + step + "]}")
    assert found.startswith("2:" + problem)


@pytest.mark.requirement("S2-24")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "1:1: A workflow must be an object, got a list. " + SHAPE),
        ("3", "1:1: A workflow must be an object, got 3. " + SHAPE),
        ("{}", "1:1: A workflow must have 'steps' or 'body'. " + SHAPE),
        ('{"id": "w", "steps": []}', "1:22: No steps in the workflow. Add at least one step."),
        (
            '{"id": "w", "steps": {}}',
            "1:22: 'steps' of a workflow must be a list of steps, got an object."
            " Put the steps in brackets: [{…}, {…}].",
        ),
        (
            '{"steps": [{"id": "a", "type": "approval"}]}',
            '1:1: \'id\' of the workflow is missing. Add "id": "a-name".',
        ),
        (
            '{"id": "w", "max_iteration": 3, "steps": [{"id": "a", "type": "approval"}]}',
            "1:13: Unknown key 'max_iteration' in a workflow. Did you mean 'max_iterations'?",
        ),
        (
            '{"id": "w", "steps": [{"id": "a", "type": "approval"},\n{"id": "a", "type": "approval"}]}',
            "2:8: Duplicate step id 'a'; the first is on line 1. Rename one of them.",
        ),
    ],
)
def test_an_invalid_workflow_is_reported_with_its_position(text: str, problem: str) -> None:
    assert told(text) == [problem]


def test_an_id_in_a_parallel_step_is_taken_for_the_whole_workflow() -> None:
    again = {"id": "u", "type": "approval"}
    assert "Duplicate step id 'u'" in told(json.dumps({"id": "w", "steps": [PARALLEL, again]}))[0]


def test_all_problems_come_at_once_in_order() -> None:
    found = told('{"id": "w", "foo": 1, "steps": [{"id": "a"},\n {"type": "agent"}, 7]}')
    assert [problem.split(":")[0] for problem in found] == ["1", "1", "2", "2"]


def test_parallel_steps_stand_in_each_other_to_a_bound() -> None:
    def nest(levels: int) -> str:
        inner: dict[str, Any] = {"id": "leaf", "type": "approval"}
        for level in range(levels):
            inner = {"id": f"p{level}", "type": "parallel", "steps": [inner]}
        return json.dumps({"id": "w", "steps": [inner]})

    assert WorkflowSpec.model_validate(read_document(nest(10)).data)
    assert "deeper than 10 levels" in told(nest(11))[0]
