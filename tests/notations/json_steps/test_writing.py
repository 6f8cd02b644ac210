"""The spec written as JSON, and as steps where steps can say it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nerve.notations.json_steps import read_document, write_document, write_steps
from nerve.spec.models import WorkflowSpec
from notations.json_steps.files import workflow, written

EXAMPLES = Path(__file__).parents[3] / "examples/workflows/json"


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return WorkflowSpec.model_validate(data).model_dump(mode="json", exclude_defaults=True)


def spec(**body: Any) -> dict[str, Any]:
    return {"name": "x", "body": body}


@pytest.mark.parametrize("seed", range(300))
def test_the_full_form_reads_back_as_it_was(seed: int) -> None:
    data = plain(read_document(written(random.Random(seed), workflow(random.Random(seed)))).data)
    assert read_document(write_document(data)).data == data


@pytest.mark.parametrize("seed", range(300))
def test_steps_read_and_written_are_the_same_workflow(seed: int) -> None:
    data = read_document(written(random.Random(seed), workflow(random.Random(seed)))).data
    text, cannot = write_steps(data)
    assert cannot == []
    assert plain(read_document(text).data) == plain(data)


@pytest.mark.parametrize("name", ["feature-dev", "comprehensive-test", "smart-deploy"])
def test_the_examples_are_written_as_they_were(name: str) -> None:
    text = (EXAMPLES / f"{name}.json").read_text(encoding="utf-8")
    again, cannot = write_steps(read_document(text).data)
    assert cannot == []
    assert json.loads(again) == json.loads(text)


def test_the_full_form_is_for_people() -> None:
    assert write_document(spec(kind="transform", expression="'ü'")) == (
        '{\n  "name": "x",\n  "body": {\n    "kind": "transform",\n    "expression": "\'ü\'"\n  }\n}\n'
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            spec(kind="sequence", steps=[]),
            "the body is of kind sequence; only a machine can be written as steps",
        ),
        (
            spec(
                kind="machine", states=[{"name": "a", "body": {"kind": "bash", "command": "ls", "id": "a"}}]
            ),
            "'a' of kind bash cannot be written as a step",
        ),
        (
            spec(kind="machine", states=[{"name": "a"}]),
            "'a' of kind nothing cannot be written as a step",
        ),
        (
            spec(kind="machine", states=[{"name": "a", "body": {"kind": "call", "id": "a", "target": "x"}}]),
            "body.states[0].body.input is not set, but steps set it",
        ),
        (
            spec(kind="machine", states=[{"name": "a", "body": {"kind": "gate", "id": "a", "when": "true"}}]),
            "body.states[0].body.when cannot be expressed with steps",
        ),
        (
            spec(kind="machine", states=[{"name": "a b", "body": {"kind": "gate", "id": "a b"}}]),
            "'id' of step 'a b' of type approval must be 1 to 128 letters, digits, '_', '-' and '.', the"
            " first a letter, digit or '_', got 'a b'",
        ),
    ],
)
def test_values_that_steps_cannot_express_are_reported(data: dict[str, Any], told: str) -> None:
    assert told in write_steps(data)[1]


def test_the_start_is_written_first() -> None:
    states = [
        {"name": name, "body": {"kind": "transform", "id": name, "expression": "1"}} for name in ("a", "b")
    ]
    limits = {"iterations": 100, "errors": 10, "wall_time": 300}
    text, cannot = write_steps({**spec(kind="machine", states=states, start="b"), "limits": limits})
    assert cannot == []
    assert [step["id"] for step in json.loads(text)["steps"]] == ["b", "a"]
