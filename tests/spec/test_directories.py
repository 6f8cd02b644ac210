"""The working directory of prompts, calls, commands and agents, in every notation."""

import json
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.agents import AgentNode
from nerve.core.nodes import BashNode, FunctionNode, Graph
from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition
from spec.support import outcome, problems

LISP = """
(workflow "flow"
  (roles (writer :agent-kind "claude"))
  (state "go"
    (send-prompt :agent writer :template "write" :cwd "sub" :tag "t")
    (wait (transcript-response :request-id "t"))
    (call "claude" :input "ask" :cwd "sub")
    (terminal)))
"""
JSON_STEPS = """
{"id": "flow", "description": "", "steps": [{"id": "a", "type": "agent", "agent": "claude", "cwd": "sub"}]}
"""
YAML_NODES = """
name: flow
description: A flow.
nodes:
  - id: a
    prompt: ask
    cwd: sub
"""


def make_session(project: Path) -> tuple[Session, ScriptedProvider]:
    (project / "sub").mkdir()
    (project / "commands").mkdir()
    provider = ScriptedProvider(lambda call: "done")
    return Session(providers={"claude": provider}, project=project), provider


def directories(provider: ScriptedProvider) -> list[Path]:
    return [Path(call.cwd or "") for call in provider.calls]


@pytest.mark.parametrize("kind", [{"kind": "call", "target": "claude"}, {"kind": "prompt", "text": "ask"}])
@pytest.mark.parametrize("cwd", ["sub", "{{ input }}"])
async def test_an_agent_works_in_the_directory_of_its_step(
    tmp_path: Path, kind: dict[str, Any], cwd: str
) -> None:
    session, provider = make_session(tmp_path)
    await outcome(session, {**kind, "cwd": cwd}, "sub")
    assert directories(provider) == [tmp_path / "sub"]


@pytest.mark.parametrize(
    ("text", "notation"), [(LISP, "lisp"), (JSON_STEPS, "json"), (YAML_NODES, "yaml")], ids=str
)
async def test_every_notation_sets_the_directory(tmp_path: Path, text: str, notation: str) -> None:
    session, provider = make_session(tmp_path)
    run = await session.start(session.load(text, notation).name, "go")
    await run.wait()
    assert set(directories(provider)) == {tmp_path / "sub"}


async def test_the_directory_of_a_call_is_that_of_everything_in_it(tmp_path: Path) -> None:
    session, provider = make_session(tmp_path)
    graph = Graph("both", session)
    graph.add_step(AgentNode("coder", session, provider), "a")
    graph.add_step(BashNode("where", session, "pwd"), "b", ["a"])
    assert (
        await outcome(session, {"kind": "call", "target": "both", "cwd": "sub"}, "hi") == f"{tmp_path}/sub\n"
    )
    assert directories(provider) == [tmp_path / "sub"]


async def test_a_function_reads_the_directory_of_its_step(tmp_path: Path) -> None:
    session, _ = make_session(tmp_path)
    FunctionNode("where", session, lambda context: str(context.folder))
    assert await outcome(session, {"kind": "call", "target": "where", "cwd": "sub"}) == "sub"


@pytest.mark.parametrize("kind", [{"kind": "call", "target": "claude"}, {"kind": "prompt", "text": "ask"}])
async def test_a_directory_from_a_template_must_be_inside_the_project(
    tmp_path: Path, kind: dict[str, Any]
) -> None:
    session, provider = make_session(tmp_path)
    with pytest.raises(WorkflowFailed, match="outside"):
        await outcome(session, {**kind, "cwd": "{{ input }}"}, "../..")
    assert provider.calls == []


async def test_an_agent_in_a_directory_that_does_not_exist_is_not_started(tmp_path: Path) -> None:
    session, provider = make_session(tmp_path)
    with pytest.raises(WorkflowFailed, match=r"does not exist: .*missing\. Create it"):
        await outcome(session, {"kind": "prompt", "text": "ask", "cwd": "missing"})
    assert provider.calls == []


async def test_a_call_of_a_workflow_cannot_have_a_directory(tmp_path: Path) -> None:
    session, _ = make_session(tmp_path)
    session.load(json.dumps({"name": "child", "body": {"kind": "transform", "expression": "1"}}), "json")
    with pytest.raises(WorkflowFailed, match="calls the workflow 'child', which cannot have a cwd"):
        await outcome(session, {"kind": "call", "target": "child", "cwd": "sub"})


def test_a_json_step_that_calls_a_workflow_cannot_have_a_directory() -> None:
    step = {"id": "a", "type": "agent", "agent": "workflow:child", "cwd": "sub"}
    source = json.dumps({"id": "flow", "description": "", "steps": [step]})
    with pytest.raises(InvalidDefinition, match="'cwd' of step 'a' is for an agent, not for a workflow"):
        Session().load(source, "json")


def test_the_expressions_of_a_directory_are_checked() -> None:
    for node in ({"kind": "call", "target": "claude"}, {"kind": "prompt", "text": "ask"}):
        assert problems({**node, "cwd": "{{ steps.missing.output }}"}) != []
