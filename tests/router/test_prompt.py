"""What an agent is asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.router import Candidate, build_router_prompt
from nerve.router.prompt import answer_schema
from nerve.spec.models import InputSpec

REVIEW = Candidate("code-review", "Reviews a change.\n  Use it before merging.")
SHIP = Candidate(
    "ship",
    "Ships a version",
    {
        "number": InputSpec(type="integer", required=True, description="Which\nversion"),
        "where": InputSpec(choices=["test", "live"]),
        "hosts": InputSpec(type="array"),
    },
)


@pytest.mark.requirement("S3-12")
def test_without_workflows_the_prompt_is_the_message_itself() -> None:
    assert build_router_prompt("hello {there}", []) == "hello {there}"


@pytest.mark.requirement("S3-12")
def test_the_prompt_has_the_workflows_the_quoted_request_and_how_to_answer() -> None:
    prompt = build_router_prompt("look at my change", [REVIEW, SHIP])
    head, _, rest = prompt.partition("## Available Workflows")
    offered, _, rest = rest.partition("## User Request")
    request, _, instructions = rest.partition("## Instructions")
    assert head.startswith("# Router\n")
    assert offered.strip().splitlines() == [
        "- **code-review**: Reviews a change. Use it before merging.",
        "- **ship**: Ships a version",
    ]
    assert request.strip() == '"look at my change"'
    assert "exactly: WORKFLOW: {workflow-name}" in instructions
    for fact in ("summary", "conversation", "ask", "confident", "match"):
        assert fact in instructions


@pytest.mark.requirement("S3-12")
def test_the_prompt_is_the_fixed_one() -> None:
    assert (
        build_router_prompt("ship it", [REVIEW])
        == """\
# Router

You route user requests to the appropriate workflow.

## Available Workflows

- **code-review**: Reviews a change. Use it before merging.

## User Request

"ship it"

## Instructions

Analyze the user's request carefully.

If a workflow matches:
1. Respond with exactly: WORKFLOW: {workflow-name}
2. Then write a clear summary of the user's intent for the workflow agents.

If no workflow matches:
- Respond conversationally to help the user directly.
- You can ask clarifying questions or provide information.

IMPORTANT: Only output "WORKFLOW: name" if you're confident the request matches a workflow.
The workflow name must exactly match one from the Available Workflows list."""
    )


def test_the_prompt_for_a_structured_answer_lists_the_inputs() -> None:
    prompt = build_router_prompt("ship it", [REVIEW, SHIP], form=True)
    assert "  - input `number` (integer, required): Which version\n" in prompt
    assert '  - input `where` (string, one of ["test", "live"])\n' in prompt
    assert "WORKFLOW:" not in prompt


@given(st.text(), st.text())
def test_whatever_is_written_stands_in_the_prompt_as_it_is(text: str, description: str) -> None:
    for braces in ("", "{workflows}", "{text}", "{instructions}"):
        prompt = build_router_prompt(text + braces, [Candidate("x", description + braces)])
        assert f'"{text}{braces}"\n\n## Instructions' in prompt
        assert prompt.count("# Router\n\nYou route") == 1 + (text + description).count(
            "# Router\n\nYou route"
        )


def test_the_schema_is_closed_and_every_key_is_required() -> None:
    schema = answer_schema([REVIEW, SHIP, Candidate("other", "", {"number": InputSpec(type="string")})])
    assert schema["required"] == ["workflow", "inputs", "intent", "reply", "question"]
    assert schema["properties"]["workflow"]["enum"] == ["code-review", "ship", "other", None]
    inputs = schema["properties"]["inputs"]
    assert inputs["properties"] == {
        "number": {"type": ["integer", "string", "null"]},
        "where": {"type": ["string", "null"]},
        "hosts": {"type": ["string", "null"]},
    }
    for each in (schema, inputs):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])
    json.dumps(schema)


@pytest.mark.parametrize("name", ["", "two words", "a\nb"])
def test_a_workflow_is_offered_under_a_name_that_fits_into_a_line(name: str) -> None:
    with pytest.raises(ValueError, match="whitespace"):
        Candidate(name)
