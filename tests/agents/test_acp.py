"""ACP agents: a small test agent, and Claude's adapter if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.contract import Judged, ProviderContract, allow, done, text, usage
from agents.stubs.anthropic import AnthropicStub
from agents.stubs.chat import ChatStub
from nerve.agents.acp import AcpProvider
from nerve.agents.acp.client import Unasked
from nerve.agents.provider import (
    AssistantText,
    Chunk,
    HostTool,
    PermissionRequest,
    QueryOptions,
    ToolCall,
    ToolUpdate,
    TurnUsage,
    Unavailable,
)
from process.seen import eventually

pytest.importorskip(
    "acp", reason="agent-client-protocol is not installed: pip install '.[acp]' in the clone of Nerve"
)

OPENCODE = shutil.which("opencode", path=f"{sys.prefix}/opencode/node_modules/.bin:{os.environ['PATH']}")
"""OpenCode, as `make test-agents` installs it, or on the PATH."""
MCP_SERVER = str(Path(__file__).parent / "stubs" / "mcp_server.py")
AGENT = str(Path(__file__).parent / "stubs" / "acp_agent.py")


class TestSmallAgent(ProviderContract):
    thinks = True
    allowed = ("execute",)

    @pytest.fixture
    def stub(self) -> Iterator[ChatStub]:
        with ChatStub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: ChatStub) -> AcpProvider:
        return AcpProvider([sys.executable, AGENT, f"{stub.url}/v1"])

    async def test_a_running_cost_total_is_reported_as_the_cost_of_the_turn(self, ask: Any) -> None:
        first = done(await ask("[[say one]]"))
        second = done(await ask("[[run true]]", resume=first.thread, totals=first.totals, ask=allow))
        assert usage(first) == TurnUsage(100, 12, 20, None, pytest.approx(0.0005), "heron")
        assert usage(second).cost == pytest.approx(0.001)
        failed = done(await ask("[[error 400]]", resume=first.thread, totals=second.totals))
        assert failed.totals == second.totals
        assert second.totals["cost"] == pytest.approx(0.0015)

    async def test_the_agents_own_name_of_a_tool_also_allows_it(self, ask: Any, cwd: Path) -> None:
        await ask("[[run touch allowed.txt]]", tools=["shell"])
        assert (cwd / "allowed.txt").exists()

    async def test_a_mode_is_set(self, ask: Any, provider: AcpProvider, cwd: Path) -> None:
        provider.mode = "yolo"
        await ask("[[run touch allowed.txt]]")
        assert (cwd / "allowed.txt").exists()

    @pytest.mark.parametrize(
        "policy", [{"deny": ["execute(touch *)"]}, {"ask": ["shell"]}, {"otherwise": "deny"}]
    )
    async def test_an_agent_that_skips_a_required_permission_request_is_stopped(
        self, policy: dict[str, Any], ask: Any, provider: AcpProvider
    ) -> None:
        provider.mode = "yolo"
        with pytest.raises(Unasked, match=r"used execute\(touch done.txt\) without asking"):
            await ask("[[run touch done.txt]] [[say done]]", **Judged(policy).options)

    async def test_a_policy_on_tools_that_agents_use_without_asking_is_refused(
        self, ask: Any, provider: AcpProvider
    ) -> None:
        judged = Judged({"deny": ["read(secrets/*)"]})
        with pytest.raises(
            ValueError, match=r"'acp' cannot enforce the permissions \(deny: read\(secrets/\*\)\)"
        ):
            await ask("[[say hello]]", **judged.options)
        provider.asks = (*provider.asks, "read")
        assert text(await ask("[[say hello]]", **judged.options)) == "hello"

    async def test_a_model_is_selected_from_those_the_agent_offers(self, ask: Any) -> None:
        assert usage(done(await ask("[[say one]]", model="stork"))).model == "stork"
        end = done(await ask("[[say one]]", model="ostrich"))
        assert (end.outcome, "there is no model ostrich" in end.error) == ("failed", True)

    async def test_the_effort_is_set_if_the_agent_offers_it(self, ask: Any, cwd: Path) -> None:
        first = done(await ask("[[say one]]", effort="high"))
        assert first.outcome == "completed"
        end = done(await ask("[[say one]]", effort="max"))
        assert (end.outcome, "cannot honour effort 'max': it offers low, high" in end.error) == (
            "failed",
            True,
        )

    async def test_mcp_servers_and_tools_of_nerve_are_given_to_the_agent(self, ask: Any) -> None:
        server = {"command": sys.executable, "args": [MCP_SERVER]}
        chunks = await ask('[[call mcp__docs__lookup {"word": "crane"}]]', mcp={"docs": server}, ask=allow)
        assert "crane means nothing" in text(chunks)

        async def find(arguments: Any) -> str:
            return f"<{arguments['word']}>"

        tools = {"find": HostTool("Find it.", {"type": "object"}, find, is_recorded=True)}
        policy = Judged({"otherwise": "deny"})
        chunks = await ask('[[call mcp__nerve__find {"word": "crane"}]]', host_tools=tools, **policy.options)
        assert "<crane>" in text(chunks)
        assert not policy.asked

    async def test_the_system_prompt_precedes_the_first_prompt(self, ask: Any, stub: Any) -> None:
        first = await ask("[[say yes]]", system="You know birds.")
        await ask("[[say yes]]", system="You know birds.", resume=done(first).thread)
        assert stub.heard[0].body["messages"][0]["content"] == "You know birds.\n[[say yes]]"
        assert stub.heard[1].body["messages"][-1]["content"] == "[[say yes]]"

    async def test_a_tool_call_is_emitted_when_its_input_is_known(self, ask: Any) -> None:
        chunks = await ask("[[run echo one]]", ask=allow)
        tools = [chunk for chunk in chunks if isinstance(chunk, ToolCall | ToolUpdate)]
        assert [type(chunk) for chunk in tools] == [ToolCall, ToolUpdate]
        assert (tools[0].name, tools[0].input) == ("execute", {"command": "echo one"})

    async def test_a_question_shows_what_will_run(self, ask: Any, cwd: Path) -> None:
        requests: list[PermissionRequest] = []

        async def look(permission: PermissionRequest) -> Any:
            requests.append(permission)
            return await allow(permission)

        await ask("[[run echo one]]", ask=look)
        shown = {"command": "echo one"}
        assert requests == [PermissionRequest("execute", shown, "`echo one`", str(cwd), ("shell",))]

    async def test_forking_a_thread_is_refused_with_an_error(self, ask: Any) -> None:
        first = done(await ask("[[say noted]]"))
        end = done(await ask("[[say yes]]", resume=first.thread, fork=True))
        assert (end.outcome, end.thread) == ("failed", first.thread)

    async def test_a_lost_thread_that_may_be_started_is_started_again(self, ask: Any) -> None:
        lost = str(uuid.uuid4())
        chunks = await ask("[[say hello]]", resume=lost, thread=lost)
        assert text(chunks) == "hello"
        assert done(chunks).thread != lost

    async def test_a_rate_limit_has_the_reset_time_the_agent_reports(self, ask: Any) -> None:
        assert done(await ask("[[limit 3600]]")).resets_at
        assert done(await ask("[[limit ]]")).resets_at is None


class TestAgentThatLoads:
    """The agent cannot resume a session but only load it, which replays all of it; and it prints a banner."""

    async def test_earlier_messages_of_a_resumed_session_are_not_emitted_again(self, tmp_path: Path) -> None:
        with ChatStub() as stub:
            provider = AcpProvider([sys.executable, AGENT, f"{stub.url}/v1", "--load", "--rude"])
            options = QueryOptions(env={"HOME": str(tmp_path)})

            async def ask(prompt: str, thread: str | None = None) -> list[Chunk]:
                return [chunk async for chunk in provider.query(prompt, str(tmp_path), thread, options)]

            first = await ask("[[say noted]] the bird is a heron")
            second = await ask("which bird?", done(first).thread)
        assert text(second) == "heard: [[say noted]] the bird is a heron | which bird?"
        assert len([c for c in second if isinstance(c, AssistantText) and not c.partial]) == 1


class TestClaudeAgentAcp(ProviderContract):
    """The real adapter, npm package @agentclientprotocol/claude-agent-acp; it needs Node 22."""

    allowed = ("Bash",)

    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path) -> None:
        self.sessions = tmp_path / "home" / ".claude" / "projects"

    async def until_held(self, turn: Any, stub: Any) -> str:
        """Wait longer, because the adapter emits its first output before it stores the session."""
        thread = await super().until_held(turn, stub)
        await eventually(lambda: any(self.sessions.glob(f"*/{thread}.jsonl")))
        return thread

    @pytest.fixture
    def stub(self) -> Iterator[AnthropicStub]:
        with AnthropicStub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: AnthropicStub) -> AcpProvider:
        program = shutil.which("claude-agent-acp")
        if program is None:
            pytest.skip(
                "claude-agent-acp is not installed: npm install @agentclientprotocol/claude-agent-acp"
            )
        env = {
            "ANTHROPIC_BASE_URL": stub.url,
            "ANTHROPIC_API_KEY": "sk-ant-only-for-a-stub",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
        }
        return AcpProvider([program], env)


needs_opencode = pytest.mark.skipif(
    OPENCODE is None, reason="OpenCode is not installed: npm install opencode-ai"
)


def opencode_provider(stub: AnthropicStub, home: Path) -> AcpProvider:
    stub.tool = "bash"
    server = {"baseURL": f"{stub.url}/v1", "apiKey": "sk-ant-only-for-a-stub"}
    config = {
        "provider": {"anthropic": {"options": server, "models": {"stub": {}}}},
        "model": "anthropic/stub",
        "autoupdate": False,
        "permission": {"bash": "allow"},
    }
    env = {"HOME": str(home), "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return AcpProvider([str(OPENCODE), "acp"], env)


@needs_opencode
async def test_opencode_reads_the_files_that_its_capabilities_name(tmp_path: Path) -> None:
    skills = ".nerve", ".archon", ".claude", ".agents", ".opencode"
    for name in ("AGENTS.md", "CLAUDE.md"):
        (tmp_path / name).write_text(f"Obey the crane of {name}.\n")
    for folder in skills:
        path = tmp_path / folder / f"skills/skill-of-{folder[1:]}/SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {path.parent.name}\ndescription: Sing like {folder}.\n---\nSing.\n")
    with AnthropicStub() as stub:
        provider = opencode_provider(stub, tmp_path)
        _ = [chunk async for chunk in provider.query("[[say hi]]", str(tmp_path), None, QueryOptions())]
        read = {name for name in ("AGENTS.md", "CLAUDE.md") if f"crane of {name}" in stub.bodies}
        listed = {folder for folder in skills if f"Sing like {folder}." in stub.bodies}
    assert (read, listed) == ({"AGENTS.md"}, {".claude", ".agents", ".opencode"})


@needs_opencode
async def test_the_commands_of_opencode_are_in_the_journal(tmp_path: Path) -> None:
    with AnthropicStub() as stub:
        provider = opencode_provider(stub, tmp_path)
        turn = provider.query("[[run echo one]]", str(tmp_path), None, QueryOptions())
        chunks = [chunk async for chunk in turn]
    [call] = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    assert call.input["command"] == "echo one"
    updates = [chunk for chunk in chunks if isinstance(chunk, ToolUpdate)]
    assert "".join(chunk.output for chunk in updates if chunk.status == "running") in ("", "one\n")
    assert updates[-1].output == "one\n"
    assert text(chunks) == "tool said: one\n"


# -- failures before a turn ------------------------------------------------------------------------


async def test_a_missing_agent_raises_unavailable() -> None:
    with pytest.raises(Unavailable, match="no-such-agent"):
        _ = [
            chunk async for chunk in AcpProvider(["no-such-agent"]).query("hello", None, None, QueryOptions())
        ]


async def test_a_program_that_exits_immediately_is_a_failure() -> None:
    provider = AcpProvider(["bash", "-c", "echo no licence >&2; exit 3"])
    with pytest.raises(Exception, match="no licence"):
        _ = [chunk async for chunk in provider.query("hello", None, None, QueryOptions())]


async def test_an_agent_of_another_version_is_refused(tmp_path: Path) -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 2}})
    provider = AcpProvider(["bash", "-c", f"read; echo '{hello}'; cat"])
    said = [chunk async for chunk in provider.query("hello", str(tmp_path), None, QueryOptions())]
    assert done(said).outcome == "failed"
    assert "version 2" in done(said).error


async def test_an_agent_that_requires_authentication_lists_its_methods(tmp_path: Path) -> None:
    hello = {"protocolVersion": 1, "authMethods": [{"id": "by-key", "name": "Key"}]}
    refusal = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Authentication required"}}
    first = json.dumps({"jsonrpc": "2.0", "id": 0, "result": hello})
    script = f"read; echo '{first}'; read; echo '{json.dumps(refusal)}'; cat"
    turn = AcpProvider(["bash", "-c", script]).query("hello", str(tmp_path), None, QueryOptions())
    end = done([chunk async for chunk in turn])
    assert end.outcome == "failed"
    assert "by-key" in end.error


def test_an_agent_that_forgets_its_sessions_cannot_be_resumed() -> None:
    assert AcpProvider(["gemini", "--acp"]).capabilities.resume
    assert not AcpProvider(["gemini", "--acp"], resume=False).capabilities.resume


@pytest.mark.parametrize("command", ["gemini --acp", []])
def test_a_command_must_be_a_list(command: Any) -> None:
    with pytest.raises(ValueError, match="a list"):
        AcpProvider(command)


async def test_a_named_variable_of_the_environment_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_KEY", "grey")
    monkeypatch.setenv("STORK_KEY", "white")
    file = tmp_path / "env"
    provider = AcpProvider(["bash", "-c", f"env > {file}; exit 3"], {"OWN": "1"}, pass_env=["HERON_KEY"])
    with pytest.raises(Exception, match="ended"):
        _ = [chunk async for chunk in provider.query("hello", None, None, QueryOptions(env={"MORE": "2"}))]
    lines = file.read_text().splitlines()
    assert {"HERON_KEY=grey", "OWN=1", "MORE=2"} <= set(lines)
    assert "STORK_KEY=white" not in lines
