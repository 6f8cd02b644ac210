"""What the tests of the command line share."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nerve_processes
from nerve.cli import execute_command_line

Nerve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, empty at first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def nerve(scratch: Path) -> Nerve:
    """`nerve …` in a pipe."""
    return nerve_processes.done


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a few workflows, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.fixture
def do(project: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`nerve …` in this process and in the project."""

    def do(*arguments: str) -> Said:
        capfd.readouterr()
        code = execute_command_line(list(arguments))
        told = capfd.readouterr()
        return Said(code, told.out, told.err)

    return do


FILES = {
    ".nerve/workflows/ship.json": """{
  "name": "ship",
  "inputs": {
    "count": {"type": "integer", "required": true},
    "dry": {"type": "boolean", "default": false},
    "dev_tags": {"type": "array"},
    "label": {"type": "string", "default": "none"},
    "level": {"type": "string", "choices": ["low", "high"], "default": "low"}
  },
  "body": {"kind": "sequence", "steps": [
    {"kind": "bash", "id": "build", "command": "echo built >> effects; echo built {{ inputs.count }}"},
    {"kind": "gate", "id": "approve", "prompt": "Ship it?", "choices": ["yes", "no"], "reject": ["no"]},
    {"kind": "call", "id": "tell", "target": "notifier", "input": "{{ input }}"},
    {"kind": "transform", "expression": "({inputs: inputs, said: given})"}
  ]}
}
""",
    ".nerve/workflows/shout.yaml": """name: shout
description: Says it loudly
body:
  kind: sequence
  steps:
    - {kind: bash, id: say, command: "echo loud"}
""",
    ".nerve/workflows/parent.yaml": """name: parent
description: Calls another
body:
  kind: sequence
  steps:
    - {kind: workflow, id: child, workflow: asking}
    - {kind: transform, expression: "'child said ' + given"}
""",
    ".nerve/workflows/asking.yaml": """name: asking
description: Asks
body:
  kind: sequence
  steps:
    - {kind: gate, id: colour, prompt: "Which colour?"}
""",
    "nodes.py": """
from nerve.testing import ScriptedProvider

def register(session):
    session.providers["notifier"] = ScriptedProvider(lambda call: f"told {call.prompt}")
""",
    "plan.yaml": """name: plan
description: An agent that asks before it does something
provider: careful
nodes: [{id: plan, prompt: Plan it}]
""",
    "careful.py": """
from nerve.agents.provider import AssistantText, Capabilities, TurnFinished, PermissionRequest

class Careful:
    name = "careful"
    capabilities = Capabilities(permissions=True, host_tools=True)

    async def query(self, prompt, cwd, resume, options):
        may = await options.ask(PermissionRequest("Bash", {"command": "make"}))
        yield AssistantText("made" if may.allow else "left")
        yield TurnFinished("t")

class Curious(Careful):
    async def query(self, prompt, cwd, resume, options):
        yield AssistantText("it is " + await options.host_tools["ask_human"].call({"question": "Which one?"}))
        yield TurnFinished("t")

def register(session):
    session.providers |= {"careful": Careful(), "curious": Curious()}
""",
    "flows.py": """
def register(session):
    @session.workflow
    async def greet(ctx):
        print("noise")
        return f"{await ctx.gate('Who?')} {ctx.params}"

    @session.workflow
    async def fail(ctx):
        raise ValueError("no luck")
""",
}
