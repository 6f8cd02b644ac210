"""docs/reference/nodes.md: it has every kind and key of the spec, and its examples are one workflow."""

import json
import re

import pytest

from docs.pages import FENCE, page, section
from nerve.notations import json_steps, lisp, yaml_prompts
from nerve.spec import models
from nerve.spec.models import KINDS, NodeBase, WorkflowSpec

PAGE = page("docs/reference/nodes.md")
OBJECTS = {
    "escalation": models.EscalationSpec,
    "workspace": models.WorkspaceSpec,
    "retry": models.RetrySpec,
    "expect": models.ExpectSpec,
    "permissions": models.PermissionsSpec,
    "mcp-server": models.McpServerSpec,
    "hook": models.HookSpec,
    "step-limits": models.StepLimitsSpec,
    "condition": models.ConditionSpec,
    "state": models.StateSpec,
    "transition": models.TransitionSpec,
    "input": models.InputSpec,
    "limits": models.LimitsSpec,
}


def parts(title: str) -> dict[str, str]:
    """Return the text below each heading of the third level in a section."""
    texts = section(PAGE, title).split("\n### ")[1:]
    return {text.split("\n")[0]: text for text in texts}


def rows(text: str) -> dict[str, str]:
    """Return the default of every key in the table of a text."""
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cell[0].strip("| `"): cell[2] for cell in cells}


def written_default(model: type[models.SpecModel], key: str) -> str:
    field = model.model_fields[key]
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, models.SpecModel):
        return "none"
    if default in ("", [], {}):
        return "empty"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def expected(model: type[models.SpecModel], without: set[str]) -> dict[str, str]:
    return {key: written_default(model, key) for key in model.model_fields if key not in without}


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_a_kind_is_listed_with_its_default(kind: str) -> None:
    assert rows(parts("Kinds")[kind]) == expected(KINDS[kind], {*NodeBase.model_fields, "kind"})


def test_every_kind_is_listed() -> None:
    assert list(parts("Kinds")) == list(KINDS)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_key_of_an_object_is_listed_with_its_default(name: str) -> None:
    assert rows(parts("Other objects")[name]) == expected(OBJECTS[name], set())


def test_every_key_of_a_workflow_and_of_every_node_is_listed() -> None:
    assert rows(section(PAGE, "The workflow")) == expected(WorkflowSpec, set())
    assert rows(section(PAGE, "Keys of every node")) == expected(NodeBase, set())


def test_the_examples_are_the_same_workflow_in_every_notation() -> None:
    texts = {fence[1]: fence[2] for fence in FENCE.finditer(PAGE)}
    readers = {
        "json": json_steps.read_document,
        "yaml": yaml_prompts.read_document,
        "lisp": lisp.read_document,
    }
    specs = [WorkflowSpec.model_validate(read(texts[name]).data) for name, read in readers.items()]
    assert specs[0] == specs[1] == specs[2]
    assert re.findall(r"^```(\w+)$", PAGE, re.MULTILINE) == list(readers)
