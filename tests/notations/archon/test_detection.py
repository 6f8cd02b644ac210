"""A file is one of Archon or one of Nerve: what only one of the two knows decides, and then the folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve.notations import open_document, yaml_keys
from nerve.notations.archon import is_archon_source, workflow
from nerve.notations.archon.detection import KEYS_OF_BOTH
from nerve.notations.yaml_prompts import forms
from nerve.text.yaml_reader import load_yaml
from notations.archon.support import nodes_of

OWN_KEYS = {*forms.node_keys([]), *yaml_keys.STEP_KEYS} - {"id", "step"}
OWN_WORKFLOW_KEYS = {*yaml_keys.WORKFLOW_KEYS, "workspace"} - {"name", "description"}
WORKFLOW_FORMS = {"nodes", "steps", "prompt"}

OF_NERVE, OF_ARCHON = ".nerve/workflows/flow.yaml", ".archon/workflows/flow.yaml"


def is_archon(file: str, node: str = "", header: str = "") -> bool:
    action = "" if node.startswith(("prompt:", "bash:", "command:")) else "prompt: x, "
    text = f"name: flow\ndescription: x\n{header}\nnodes:\n  - {{id: a, {action}{node}}}\n"
    source: Any = load_yaml(text, file)
    return is_archon_source(source, file)


def forms_of(key: str) -> Iterator[str]:
    """Yield a key with values that are valid in Nerve."""
    values = {
        "mcp": ["[search]", "{search: {command: x}}"],
        "retry": ["3", "{attempts: 3}"],
        "skills": ["[review]"],
        "hooks": ["{PreToolUse: [{matcher: Write}]}"],
        "approval": ["Good?", "{message: Good?}", "{prompt: Good?, choices: [a, b]}"],
        "effort": ["high"],
    }
    yield from (f"{key}: {value}" for value in values.get(key, ["60"]))


@pytest.mark.parametrize("key", sorted(OWN_KEYS))
def test_a_file_of_nerve_with_one_key_of_a_node_is_ours(key: str) -> None:
    for node in forms_of(key):
        assert not is_archon(OF_NERVE, node)


@pytest.mark.parametrize("key", sorted(OWN_WORKFLOW_KEYS))
def test_a_file_of_nerve_with_one_key_of_a_workflow_is_ours(key: str) -> None:
    assert not is_archon(OF_NERVE, header=f"{key}: x")


@pytest.mark.parametrize("key", sorted(OWN_KEYS - workflow.KNOWN_NODE_KEYS - KEYS_OF_BOTH))
def test_a_key_of_a_node_that_only_nerve_knows_makes_a_file_ours(key: str) -> None:
    assert not is_archon(OF_ARCHON, f"{key}: x")


@pytest.mark.parametrize("key", sorted(OWN_WORKFLOW_KEYS - workflow.KNOWN_WORKFLOW_KEYS))
def test_a_key_of_a_workflow_that_only_nerve_knows_makes_a_file_ours(key: str) -> None:
    assert not is_archon(OF_ARCHON, header=f"{key}: x")


@pytest.mark.parametrize("key", sorted(workflow.KNOWN_NODE_KEYS - OWN_KEYS - KEYS_OF_BOTH - {"id"}))
def test_a_key_of_a_node_that_only_archon_knows_makes_a_file_archons(key: str) -> None:
    assert is_archon(OF_NERVE, f"{key}: x")


@pytest.mark.parametrize(
    "key", sorted(workflow.KNOWN_WORKFLOW_KEYS - {*yaml_keys.WORKFLOW_KEYS} - WORKFLOW_FORMS - OWN_KEYS)
)
def test_a_key_of_a_workflow_that_only_archon_knows_makes_a_file_archons(key: str) -> None:
    assert is_archon(OF_NERVE, header=f"{key}: x")


@pytest.mark.parametrize(
    ("node", "is_of_archon"),
    [
        ("mcp: servers.json", True),
        ("mcp: [search]", False),
        ("retry: {max_attempts: 2}", True),
        ("retry: {attempts: 2}", False),
        ("retry: 2", False),
        ("approval: {message: Good?, on_reject: {prompt: Change it}}", True),
        ("approval: {prompt: Good?}", False),
        ("approval: Good?", False),
    ],
)
def test_a_key_of_both_decides_by_its_value(node: str, is_of_archon: bool) -> None:
    assert {is_archon(file, node) for file in (OF_NERVE, OF_ARCHON, "flow.yaml")} == {is_of_archon}


def test_a_file_of_nerve_with_skills_keeps_its_workspace_and_its_seconds(tmp_path: Path) -> None:
    path = tmp_path / OF_NERVE
    path.parent.mkdir(parents=True)
    path.write_text(
        "name: flow\ndescription: x\nworkspace: worktree\n"
        "nodes:\n  - {id: a, prompt: x, skills: [review], idle_timeout: 60}\n"
    )
    document, _ = open_document(path, tmp_path)
    [node] = nodes_of(document.data)
    assert (document.dialect, document.data["body"]["workspace"]) == (None, "worktree")
    assert (node["skills"], node["idle_timeout"]) == (["review"], 60)
