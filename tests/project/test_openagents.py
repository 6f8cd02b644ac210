"""A project of OpenAgents: its workflows and agents are found, with the permissions of its agents."""

import json
from pathlib import Path

import pytest

from nerve import Session
from nerve.notations.workflow_files import discover
from nerve.project.agent_files import discover_agents
from nerve.testing import ScriptedProvider

AGENT = """---
description: Plans features
mode: subagent
temperature: 0.1
tools:
  read: true
  write: false
  bash: false
permission:
  edit: ask
  bash:
    "git log *": allow
---
You plan.
"""
WORKFLOW = {
    "id": "feature",
    "steps": [
        {"id": "plan", "type": "agent", "agent": "plan", "next": "build"},
        {"id": "build", "type": "agent", "agent": "build"},
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "agents/plan.md": AGENT,
        "agents/build.md": "---\nmode: subagent\n---\nYou build.\n",
        "workflows/feature.json": json.dumps(WORKFLOW),
    }.items():
        file = tmp_path / ".openagents" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_agents_have_the_permissions_of_their_front_matter(project: Path) -> None:
    found = discover_agents(project)
    assert found.problems == []
    agent = found.get("plan")
    assert agent is not None
    assert agent.tools is None
    assert agent.settings.permissions == {
        "deny": ["write", "Write", "edit", "bash", "Bash", "execute"],
        "ask": ["edit", "Edit", "MultiEdit", "apply_patch"],
        "allow": ["bash(git log *)", "Bash(git log *)", "execute(git log *)"],
    }


async def test_a_workflow_runs_with_the_agents_of_the_project(project: Path) -> None:
    provider = ScriptedProvider(["the plan", "built"], "claude")
    async with Session(project=project, providers={"claude": provider}) as session:
        [workflow] = discover(project).workflows
        run = await session.start(session.load(workflow.path).name, "dark mode")
        await run.wait()
    assert run.state.value == "completed"
    assert [call.options["system"].strip() for call in provider.calls] == ["You plan.", "You build."]
