"""Claude Code and Codex as hosts of `nerve mcp`, with the files that `nerve init --with` writes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.stubs.anthropic import AnthropicStub
from agents.stubs.openai import OpenAIStub
from agents.stubs.server import StubServer
from agents.test_claude import needs_program
from agents.test_codex import missing as missing_codex
from nerve.agents.claude.provider import find_program
from nerve.agents.codex.executable import find_executable

needs_codex = pytest.mark.skipif(bool(missing_codex()), reason=missing_codex() or "installed")
WORKFLOW = """
name: ask
body:
  kind: sequence
  steps:
    - {kind: bash, id: print, command: "echo printed-by-the-workflow"}
    - {kind: gate, id: well, prompt: "Well?", choices: ["yes", "no"]}
"""
START = '[[call mcp__nerve__start_run {"workflow": "ask", "label": "mine", "wait": 60}]]'
LOGS = '[[call mcp__nerve__run_logs {"run": "mine"}]]'
ANSWER = '[[call mcp__nerve__answer_gate {"gate": "well", "answer": "yes"}]]'


class AgentHost:
    """A program in a project of its own, with a fresh home and no variables of this machine."""

    def __init__(self, kind: str, stub: StubServer, folder: Path) -> None:
        self.kind, self.stub, self.project = kind, stub, folder / "project"
        home = folder / "home"
        home.mkdir()
        self.env = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        keys = {"ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
        self.env |= keys if kind == "claude" else {"CODEX_HOME": str(home / "codex"), "STUB_KEY": "sk-stub"}
        (home / "codex").mkdir()
        trust = f'[projects."{self.project}"]\ntrust_level = "trusted"\n'
        (home / "codex/config.toml").write_text(trust)

    def nerve(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "nerve", *arguments]
        cwd = self.project if self.project.is_dir() else self.project.parent
        return subprocess.run(
            command, cwd=cwd, env=self.env, check=True, capture_output=True, text=True, timeout=120
        ).stdout

    def ask(self, prompt: str) -> str:
        """Run the program with a prompt until it ends, and return all requests to its API as one text."""
        command = self._claude_command(prompt) if self.kind == "claude" else self._codex_command(prompt)
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self.stub.bodies

    def _claude_command(self, prompt: str) -> list[str]:
        program = find_program()
        assert program is not None
        options = ["--mcp-config", ".mcp.json", "--allowedTools", "mcp__nerve"]
        return [str(program), "-p", prompt, *options]

    def _codex_command(self, prompt: str) -> list[str]:
        provider = {"name": "stub", "base_url": f"{self.stub.url}/v1", "env_key": "STUB_KEY"}
        settings: dict[str, Any] = {
            "model": "stub-model",
            "model_provider": "stub",
            **{f"model_providers.stub.{key}": value for key, value in provider.items()},
            "model_providers.stub.wire_api": "responses",
            "mcp_servers.nerve.default_tools_approval_mode": "approve",
            "mcp_servers.nerve.required": True,
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={json.dumps(value)}")]
        return [find_executable(None), "exec", "--skip-git-repo-check", *options, prompt]


@pytest.fixture(
    params=[pytest.param("claude", marks=needs_program), pytest.param("codex", marks=needs_codex)]
)
def host(request: Any, tmp_path: Path) -> Iterator[AgentHost]:
    with AnthropicStub() if request.param == "claude" else OpenAIStub() as stub:
        host = AgentHost(request.param, stub, tmp_path)
        host.nerve("init", "project", "--with", request.param, "--mcp")
        (host.project / ".nerve/workflows/ask.yaml").write_text(WORKFLOW)
        yield host
        host.nerve("server", "stop")


def test_an_agent_knows_the_skill_and_runs_a_workflow(host: AgentHost) -> None:
    heard = host.ask(f"{START} {LOGS} {ANSWER}")
    assert "Runs and follows the workflows of this project with Nerve." in heard
    assert "printed-by-the-workflow" in heard
    assert "an agent must not approve its own work" in heard
    run = json.loads(host.nerve("status", "mine", "--json"))
    assert (run["state"], run["started_via"]) == ("waiting", "mcp")
