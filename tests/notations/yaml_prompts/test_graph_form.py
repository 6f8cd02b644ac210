"""Graphs: what a file with `nodes:` stands for."""

from typing import Any

import pytest

from nerve.notations.yaml_prompts import read_document
from nerve.spec.checker import check_document
from nerve.text.source import InvalidDefinition

HEAD = "name: review\ndescription: Review it.\n"


def graph(text: str) -> list[Any]:
    document = read_document(HEAD + text, "review.yaml")
    assert document.data["body"]["kind"] == "graph"
    assert check_document(document).errors == []
    return list(document.data["body"]["steps"])


def one(text: str) -> Any:
    return graph(f"nodes:\n  - id: it\n{text}")[0]


@pytest.mark.requirement("S3-32")
def test_nodes_become_a_graph() -> None:
    steps = graph(
        """nodes:
  - id: diff
    bash: git diff
  - id: security
    prompt: Look for holes in {{ steps.diff.output }}
    depends_on: [diff]
    model: opus
  - id: style
    command: style-review
    depends_on: diff
    context: shared
  - id: ask
    approval: Merge it?
    depends_on: [security, style]
    timeout: 3600
"""
    )
    assert steps == [
        {"kind": "bash", "id": "diff", "command": "git diff"},
        {
            "kind": "prompt",
            "id": "security",
            "depends_on": ["diff"],
            "text": "Look for holes in {{ steps.diff.output }}",
            "model": "opus",
            "thread": "fresh",
        },
        {"kind": "prompt", "id": "style", "depends_on": ["diff"], "file": "style-review", "thread": "shared"},
        {
            "kind": "gate",
            "id": "ask",
            "depends_on": ["security", "style"],
            "prompt": "Merge it?",
            "choices": ["approve", "reject"],
            "reject": ["reject"],
            "timeout": 3600,
        },
    ]


def test_a_gate_has_its_own_answers() -> None:
    gate = one(
        "    gate: {message: Which?, choices: [a, b, none], reject: [none], default: a}\n    timeout: 5\n"
    )
    assert gate == {
        "kind": "gate",
        "id": "it",
        "prompt": "Which?",
        "choices": ["a", "b", "none"],
        "reject": ["none"],
        "default": "a",
        "timeout": 5,
    }
    assert one("    gate:\n") == {"kind": "gate", "id": "it"}
    assert one("    approval: {prompt: Go?, choices: [yes, no], reject: [no]}\n")["choices"] == ["yes", "no"]


def test_a_gate_may_have_a_form() -> None:
    gate = one("    gate: {prompt: How many?, form: {type: object, properties: {n: {type: integer}}}}\n")
    assert gate["form"] == {"type": "object", "properties": {"n": {"type": "integer"}}}
    approval = one("    approval: {prompt: How many?, form: {type: object}}\n")
    assert "choices" not in approval


def test_a_script_gets_the_variables_of_a_prompt_by_its_environment() -> None:
    node = one('    bash: echo "$USER_MESSAGE" > "${ARTIFACTS_DIR}/x"\n    env: {A: b, USER_MESSAGE: mine}\n')
    assert node["env"] == {"USER_MESSAGE": "mine", "ARTIFACTS_DIR": "{{ run.artifacts }}", "A": "b"}
    assert "env" not in one("    bash: echo $HOME $USER_MESSAGES\n")


def test_a_node_may_have_another_instead_when_it_fails() -> None:
    node = one("    bash: make\n    retry: 2\n    on_error: {command: repair, context: shared}\n")
    assert node["on_error"] == {"kind": "prompt", "file": "repair", "thread": "shared"}
    assert node["retry"] == {"attempts": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes:\n", "'nodes' is empty"),
        ("nodes: {a: 1}\n", "'nodes' must be a list"),
        ("nodes:\n  - plan\n", ":4:5: A node must be a mapping"),
        ("nodes:\n  - prompt: x\n", ":4:5: 'id' is missing"),
        ("nodes:\n  - id: a\n", ":4:5: The node has no action"),
        ("nodes:\n  - id: a\n    prompt: x\n    bash: y\n", "The node has prompt and bash"),
        ("nodes:\n  - id: a\n    prompt:\n", "'prompt' must be a string, got nothing"),
        ("nodes:\n  - id: a\n    command: ../x\n", ":5:14: '../x' is not a valid file name"),
        ("nodes:\n  - id: a\n    bash: [x]\n", "'bash' must be a string, got a list"),
        ("nodes:\n  - id: a\n    bash: x\n    model: y\n", ":6:5: Unknown key 'model'"),
        ("nodes:\n  - id: a\n    prompt: x\n    dependson: [y]\n", "Did you mean 'depends_on'?"),
        ("nodes:\n  - id: a\n    prompt: x\n    context: old\n", ":6:14: 'context' must be fresh or shared"),
        (
            "nodes:\n  - id: a\n    prompt: x\n    context: fresh\n    thread: y\n",
            "'context' and 'thread' exclude each other",
        ),
        ("nodes:\n  - id: a\n    gate: 3\n", ":5:11: 'gate' must be a question, got 3"),
        ("nodes:\n  - id: a\n    gate: {promt: x}\n", "Did you mean 'prompt'?"),
        ("nodes:\n  - id: a\n    bash: x\nstep: []\n", ":6:1: Unknown key 'step'"),
    ],
)
def test_an_invalid_graph_is_reported_with_position_and_fix(text: str, expected: str) -> None:
    with pytest.raises(InvalidDefinition) as raised:
        read_document(HEAD + text, "review.yaml")
    assert expected in str(raised.value)


def test_what_a_node_depends_on_must_be_there() -> None:
    document = read_document(HEAD + "nodes:\n  - id: a\n    bash: x\n    depends_on: [b]\n", "review.yaml")
    assert any("review.yaml:6:18:" in str(problem) for problem in check_document(document).errors)


def test_every_unknown_key_is_reported_once() -> None:
    with pytest.raises(InvalidDefinition) as raised:
        read_document(
            HEAD + "wibble: 1\nnods:\n  - id: a\n    aproval: Merge it?\n    wobble: 1\n", "review.yaml"
        )
    told = [problem.message.split(".")[0] for problem in raised.value.problems]
    assert told == [f"Unknown key '{key}'" for key in ("wibble", "nods", "aproval", "wobble")]
