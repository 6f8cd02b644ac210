"""The texts of ready-made workflows: complete, checked, and copied under any name."""

import pytest

from nerve.notations import read_source
from nerve.ready_made import describe_ready_made, read_ready_made, ready_made_names
from nerve.spec import models
from nerve.spec.checker import check_document
from nerve.spec.walk import walk_spec

NAMES = ready_made_names()
EDITORS = ("reproduce", "fix", "implement", "correct", "change")
"""The steps whose agents edit; all others only read."""


def read_spec(text: str) -> models.WorkflowSpec:
    spec = check_document(read_source(text, "flow.yaml")).spec
    assert spec is not None
    return spec


@pytest.mark.parametrize("name", NAMES)
def test_every_agent_has_a_budget_a_timeout_and_permissions(name: str) -> None:
    spec = read_spec(read_ready_made(name))
    assert (spec.name, spec.description) == (name, describe_ready_made(name))
    assert spec.limits is not None
    assert spec.limits.cost is not None
    agents = [node.spec for node in walk_spec(spec.body) if isinstance(node.spec, models.PromptSpec)]
    assert agents
    for agent in agents:
        assert agent.limits is not None, agent.id
        assert agent.timeout is not None, agent.id
        assert agent.permissions is not None, agent.id
        assert agent.permissions.mode == ("edits" if agent.id in EDITORS else "read"), agent.id


@pytest.mark.parametrize("new_name", ["mine", "21", "true"])
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_the_new_name(name: str, new_name: str) -> None:
    text = read_ready_made(name, new_name)
    assert read_spec(text).name == new_name
    assert f"nerve run {name} " not in text
    assert f"nerve run {new_name} " in text
