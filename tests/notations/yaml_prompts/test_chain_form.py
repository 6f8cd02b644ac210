"""Chains of prompts: what a file with `steps:` stands for, and what is wrong with one."""

from typing import Any

import pytest

from nerve.notations.yaml_prompts import read_document
from nerve.spec.checker import check_document
from nerve.text.source import Document, InvalidDefinition, Position

HEAD = "name: feature\ndescription: Build it.\n"


def chain(text: str) -> list[Any]:
    document = read_document(HEAD + text, "feature.yaml")
    assert document.data["body"]["kind"] == "sequence"
    return list(document.data["body"]["steps"])


def problems(text: str) -> str:
    with pytest.raises(InvalidDefinition) as raised:
        read_document(text, "feature.yaml")
    return str(raised.value)


@pytest.mark.requirement("S3-04")
def test_a_chain_becomes_a_sequence_of_prompts() -> None:
    document = read_document(
        HEAD
        + "provider: codex\nmodel: gpt\nsteps:\n  - step: plan\n  - step: implement\n    clearContext: true\n"
    )
    assert document.notation == "yaml"
    assert document.data == {
        "name": "feature",
        "description": "Build it.",
        "provider": "codex",
        "model": "gpt",
        "body": {
            "kind": "sequence",
            "steps": [
                {"kind": "prompt", "id": "plan", "file": "plan"},
                {"kind": "prompt", "id": "implement", "file": "implement", "thread": "fresh"},
            ],
        },
    }
    assert check_document(document).errors == []


@pytest.mark.requirement("S3-04")
def test_the_provider_is_claude_unless_the_file_says_otherwise() -> None:
    document = read_document(HEAD + "steps: [{step: plan}]\n")
    assert document.data["provider"] == "claude"
    assert "model" not in document.data


@pytest.mark.requirement("S3-16")
@pytest.mark.parametrize(
    ("key", "thread"),
    [
        ("clearContext: true", "fresh"),
        ("clearContext: false", "shared"),
        ("thread: fresh", "fresh"),
        ("thread: review", "review"),
    ],
)
def test_a_step_names_the_conversation_it_continues(key: str, thread: str) -> None:
    assert chain(f"steps:\n  - step: plan\n    {key}\n")[0]["thread"] == thread


def test_a_step_that_comes_again_has_a_name_of_its_own() -> None:
    steps = chain("steps: [{step: test}, {step: fix}, {step: test}, {step: test}]\n")
    assert [step["id"] for step in steps] == ["test", "fix", "test-2", "test-3"]
    assert [step["file"] for step in steps] == ["test", "fix", "test", "test"]


def test_a_step_whose_name_is_not_an_id_gets_one() -> None:
    steps = chain("steps: [{step: 01-plan}, {step: plan.v2}, {step: plan, id: first}]\n")
    assert [step["id"] for step in steps] == ["step-01-plan", "plan-v2", "first"]
    assert [step["file"] for step in steps] == ["01-plan", "plan.v2", "plan"]


@pytest.mark.requirement("S3-32")
def test_a_step_may_carry_what_every_node_may() -> None:
    document = read_document(
        HEAD
        + """steps:
  - step: plan
    description: Think first.
    provider: codex
    model: big
    agent: planner
    role: planner
    args: {depth: 3}
    when: inputs.plan
    retry: 3
    timeout: 600
    idle_timeout: 60
    effect: once
    on_error: skip
    expect: plan.md
  - step: implement
    when: true
    retry: {attempts: 2, delay: 1}
    expect: [report.md, {command: make test}, {condition: output != ''}]
    on_error: {step: repair, clearContext: true}
inputs:
  plan: boolean
""",
    )
    plan, implement = document.data["body"]["steps"]
    assert plan == {
        "kind": "prompt",
        "id": "plan",
        "file": "plan",
        "description": "Think first.",
        "provider": "codex",
        "model": "big",
        "agent": "planner",
        "role": "planner",
        "args": {"depth": 3},
        "when": "inputs.plan",
        "retry": {"attempts": 3},
        "timeout": 600,
        "idle_timeout": 60,
        "effect": "once",
        "on_error": "skip",
        "expect": [{"file": "{{ run.artifacts }}/plan.md"}],
    }
    assert implement["when"] == "true"
    assert implement["expect"] == [
        {"file": "{{ run.artifacts }}/report.md"},
        {"command": "make test"},
        {"condition": "output != ''"},
    ]
    assert implement["on_error"] == {"kind": "prompt", "id": "repair", "file": "repair", "thread": "fresh"}
    assert check_document(document).errors == []


def test_inputs_limits_context_and_metadata_are_the_workflows() -> None:
    document = read_document(
        HEAD
        + """steps: [{step: plan}]
inputs:
  topic:
  depth: integer
  style: {type: string, default: short, choices: [short, long]}
limits: {steps: 10, cost: 1.5}
context: {a: 1}
metadata: {team: core}
"""
    )
    assert document.data["inputs"] == {
        "topic": {},
        "depth": {"type": "integer"},
        "style": {"type": "string", "default": "short", "choices": ["short", "long"]},
    }
    assert document.data["limits"] == {"steps": 10, "cost": 1.5}
    assert document.data["context"] == {"a": 1}
    assert document.data["metadata"] == {"team": "core"}
    assert check_document(document).errors == []


@pytest.mark.requirement("S3-05")
@pytest.mark.requirement("S3-29")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("description: x\nsteps: [{step: a}]\n", "feature.yaml:1:1: 'name' is missing"),
        ("name: 3\ndescription: x\nsteps: [{step: a}]\n", "feature.yaml:1:7: 'name' must be a string, got 3"),
        ("name: ''\ndescription: x\nsteps: [{step: a}]\n", "feature.yaml:1:8: 'name' is empty"),
        ("name: x\nsteps: [{step: a}]\n", "feature.yaml:1:1: 'description' is missing"),
        (
            "name: x\ndescription: [y]\nsteps: [{step: a}]\n",
            ":2:14: 'description' must be a string, got a list",
        ),
        (HEAD, "'steps' is missing"),
        (HEAD + "steps:\n", "feature.yaml:3:7: 'steps' is empty"),
        (HEAD + "steps: []\n", "feature.yaml:3:8: 'steps' is empty"),
        (HEAD + "steps: plan\n", "feature.yaml:3:8: 'steps' must be a list, got 'plan'"),
        (HEAD + "steps:\n  - plan\n", "feature.yaml:4:5: A step must be a mapping, got 'plan'"),
        (HEAD + "steps:\n  - clearContext: true\n", "feature.yaml:4:5: 'step' is missing"),
        (HEAD + "steps:\n  - step:\n", "feature.yaml:4:10: 'step' must be a string, got nothing"),
        (HEAD + "steps:\n  - step: 7\n", "feature.yaml:4:11: 'step' must be a string, got 7"),
        (HEAD + "steps:\n  - step: {a: 1}\n", "feature.yaml:4:11: 'step' must be a string, got a mapping"),
        (
            HEAD + "steps:\n  - step: a\n    clearContext: yes\n",
            ":5:19: 'clearContext' must be true or false",
        ),
        (
            HEAD + "steps:\n  - step: a\n    clearContext: true\n    thread: x\n",
            "'clearContext: true' and 'thread' exclude",
        ),
        (HEAD + "steps:\n  - step: a\n    clearcontext: true\n", "Did you mean 'clearContext'?"),
        (
            HEAD + "steps:\n  - step: a\n    retries: 3\n",
            ":5:5: Unknown key 'retries'. Did you mean 'retry'?",
        ),
        (HEAD + "steps:\n  - step: a\n    inputs: {}\n", "Write 'args'"),
        (HEAD + "steps:\n  - step: a\n    depends_on: [b]\n", "write 'nodes' instead of 'steps'"),
        (HEAD + "stpes:\n  - step: a\n", ":3:1: Unknown key 'stpes'. Did you mean 'steps'?"),
        (HEAD + "steps: [{step: a}]\ninputs: [a]\n", ":4:9: 'inputs' must be a mapping, got a list"),
        (HEAD + "steps: [{step: a}]\ninputs: {a: text}\n", "The input 'a' must be a type or a mapping"),
        (HEAD + "steps: [{step: a}]\nprovider: 3\n", ":4:11: 'provider' must be a string, got 3"),
        (HEAD + "steps: [{step: a}]\nnodes: []\n", ":4:1: A workflow must have only one of steps, nodes"),
        (HEAD + "steps:\n  - step: a\n    expect: ../x\n", ":5:13: The file '../x' leads out"),
        (HEAD + "steps:\n  - step: a\n    expect: [/etc/passwd]\n", "leads out of the artifacts"),
        (HEAD + "steps:\n  - step: a\n    expect: ['']\n", "must have 1 to 512 characters"),
        (HEAD + "steps:\n  - step: a\n    expect: [3]\n", ":5:14: 'expect' must be a file or a check, got 3"),
        ("", "feature.yaml:1:1: The file is empty"),
        ("- a\n", "A workflow must be a mapping, got a list"),
        ("hello\n", "A workflow must be a mapping, got 'hello'"),
        ("name: [\n", "This is not YAML"),
    ],
)
def test_an_invalid_file_is_reported_with_position_and_fix(text: str, expected: str) -> None:
    assert expected in problems(text)


@pytest.mark.requirement("D3-6")
def test_a_missing_step_name_never_becomes_a_name() -> None:
    assert "undefined" not in problems(HEAD + "steps:\n  - clearContext: true\n  - step: null\n")


@pytest.mark.requirement("D3-1")
@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/etc/passwd", "a/b", "CON", "-x", "x\\y", "é"])
def test_a_step_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    assert "is not a valid file name" in problems(HEAD + f"steps:\n  - step: '{name}'\n")


def test_all_problems_of_a_file_are_reported_in_order() -> None:
    told = problems("nane: x\nsteps:\n  - step:\n  - stpe: a\n  - step: ../a\n").splitlines()
    assert [line.split(":")[1] for line in told] == ["1", "1", "3", "4", "5"]


def test_places_lead_back_to_the_file() -> None:
    document = read_document(
        HEAD + "steps:\n  - step: plan\n    retry: 3\n    expect: [a.md, 'b.md']\n", "f.yaml"
    )
    assert isinstance(document, Document)
    step = ("body", "steps", 0)
    assert document.position_of(("name",)) == Position(1, 7)
    assert document.position_of(("body",)) == Position(3, 1)
    assert document.position_of(step) == Position(4, 5)
    assert document.position_of((*step, "file")) == Position(4, 11)
    assert document.position_of((*step, "retry", "attempts")) == Position(5, 12)
    assert document.position_of((*step, "retry"), key=True) == Position(5, 5)
    assert document.position_of((*step, "expect", 0, "file")) == Position(6, 14)
    assert document.position_of((*step, "expect", 1)) == Position(6, 21)


def test_a_value_that_the_models_reject_is_reported_with_its_position() -> None:
    text = HEAD + "steps:\n  - step: plan\n    timeout: soon\n    retry: {attempt: 3}\n    on_error: ignore\n"
    told = [str(problem) for problem in check_document(read_document(text, "f.yaml")).errors]
    assert any(line.startswith("f.yaml:5:14:") for line in told)
    assert any(line.startswith("f.yaml:6:13: Unknown key 'attempt'") for line in told)
    assert any(line.startswith("f.yaml:7:15:") for line in told)
