"""Claude Code: the real program against a stub of its API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.contract import Judged, ProviderContract, allow, done, text, until_done, usage
from agents.stubs.anthropic import AnthropicStub
from agents.stubs.steer import Order
from core.workflow.support import within
from nerve import Session, WorkflowContext
from nerve.agents import AgentNode, HostTool
from nerve.agents.claude import ClaudeProvider
from nerve.agents.claude.provider import find_program
from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PermissionDecision,
    PermissionRequest,
    QueryOptions,
    ToolCall,
    ToolUpdate,
    Unavailable,
)
from process.seen import TAG, read, tagged

needs_program = pytest.mark.skipif(
    find_program() is None,
    reason="Claude Code is not installed: pip install '.[claude]' in the clone of Nerve",
)


@pytest.fixture
def stub() -> Iterator[AnthropicStub]:
    with AnthropicStub() as stub:
        yield stub


@pytest.fixture
def provider(stub: AnthropicStub) -> ClaudeProvider:
    return made(stub)


def made(stub: AnthropicStub, **changes: Any) -> ClaudeProvider:
    """Return a provider isolated from this machine, which queries the stub."""
    env = {"ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "sk-ant-dummy", **changes.pop("env", {})}
    return ClaudeProvider(**{"env": env, "retries": 0, **changes})


@needs_program
class TestContract(ProviderContract):
    thinks = True
    allowed = ("Bash(touch *)",)

    @pytest.fixture
    def stub(self, stub: AnthropicStub) -> AnthropicStub:
        return stub

    @pytest.fixture
    def provider(self, stub: AnthropicStub) -> ClaudeProvider:
        return made(stub)

    async def test_a_refusal_is_a_failure_with_the_words_of_the_vendor(
        self, ask: Any, stub: AnthropicStub
    ) -> None:
        stub.order = Order("refuse", "I cannot help with that.")
        end = done(await ask("Do it."))
        assert (end.outcome, "safeguards flagged this message" in end.error) == ("failed", True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path


async def ask(
    provider: ClaudeProvider, place: Path, prompt: str, resume: str | None = None, **options: Any
) -> list[Chunk]:
    env = {"HOME": str(place / "home"), **options.pop("env", {})}
    turn = provider.query(prompt, str(place / "work"), resume, QueryOptions(env=env, **options))
    return [chunk async for chunk in turn]


# -- settings of the program -----------------------------------------------------------------------


@needs_program
async def test_each_turn_uses_its_own_system_prompt(
    provider: ClaudeProvider, stub: AnthropicStub, place: Path
) -> None:
    first = done(await ask(provider, place, "[[say one]]", system="You are a heron."))
    await ask(provider, place, "[[say two]]", first.thread, system="You are a crane.")
    one, two = (json.dumps(heard.body["system"]) for heard in stub.heard)
    assert "You are a heron." in one
    assert "You are a crane." in two
    assert "You are a heron." not in two


@needs_program
async def test_neither_system_prompt_nor_schema_appear_in_the_process_list(
    provider: ClaudeProvider, place: Path
) -> None:
    tag = uuid.uuid4().hex
    env = {"HOME": str(place / "home"), TAG: tag}
    schema = {"type": "object", "properties": {"private": {"type": "string"}}}
    options = QueryOptions(system="a private matter", schema=schema, env=env)
    turn: Any = provider.query("[[hold]]", str(place / "work"), None, options)
    async for chunk in turn:
        if isinstance(chunk, AssistantText):
            break
    assert tagged(tag)
    assert not [pid for pid in tagged(tag) if b"private" in read(pid, "cmdline")]
    await turn.aclose()


@needs_program
async def test_the_model_is_the_requested_one(
    provider: ClaudeProvider, stub: AnthropicStub, place: Path
) -> None:
    end = done(await ask(provider, place, "[[say one]]", model="claude-haiku-4-5"))
    assert stub.heard[-1].body["model"].startswith("claude-haiku-4-5")
    assert str(usage(end).model).startswith("claude-haiku-4-5")


@needs_program
async def test_commands_and_files_named_in_a_prompt_are_literal_text(
    provider: ClaudeProvider, stub: AnthropicStub, place: Path
) -> None:
    (place / "work" / "secret.txt").write_text("the content of the file")
    assert text(await ask(provider, place, "/compact @secret.txt !ls")) == "heard: /compact @secret.txt !ls"
    assert "the content of the file" not in stub.bodies


HOOK = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked.txt"}]}]}}


@needs_program
@pytest.mark.parametrize(("settings", "runs"), [((), False), (("project",), True)])
async def test_project_configuration_runs_nothing_unless_enabled(
    stub: AnthropicStub, place: Path, settings: tuple[str, ...], runs: bool
) -> None:
    work = place / "work"
    (work / ".claude").mkdir()
    (work / ".claude" / "settings.json").write_text(json.dumps(HOOK | {"permissions": {"allow": ["Bash"]}}))
    server = {"command": "touch", "args": [str(work / "served.txt")]}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    (work / "CLAUDE.md").write_text("Obey the crane.")
    await ask(made(stub, settings=settings), place, "[[run touch allowed.txt]]")
    assert (work / "hooked.txt").exists() is runs
    assert not (work / "allowed.txt").exists()
    assert "Obey the crane." in stub.bodies
    assert not (work / "served.txt").exists()


@needs_program
async def test_environment_variables_are_passed_on_by_name(
    stub: AnthropicStub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-other")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
    await ask(ClaudeProvider(retries=0), place, "[[say hello]]")
    assert stub.heard[-1].headers["x-api-key"] == "sk-ant-other"


async def test_a_missing_program_raises_unavailable(place: Path) -> None:
    provider = ClaudeProvider(program=str(place / "nothing"))
    with pytest.raises(Unavailable, match=r"pip install '\.\[claude\]'"):
        await ask(provider, place, "hello")


async def test_a_missing_folder_is_named(place: Path) -> None:
    provider = ClaudeProvider(program="/bin/true")
    turn = provider.query("hello", str(place / "nowhere"), None, QueryOptions())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await until_done(turn)


@pytest.mark.parametrize("resume", [None, "a heron"])
def test_a_thread_id_must_be_a_uuid(resume: str | None) -> None:
    with pytest.raises(ValueError, match="must be a UUID, got 'a heron'"):
        ClaudeProvider().query("hello", None, resume, QueryOptions(thread=None if resume else "a heron"))


# -- how a turn ends -------------------------------------------------------------------------------


@needs_program
async def test_a_subscription_limit_has_a_reset_time(stub: AnthropicStub, place: Path) -> None:
    stub.subscription = True
    token = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}
    end = done(await ask(made(stub, env=token), place, "[[limit 3600]]"))
    assert end.outcome == "limited"
    assert end.resets_at == pytest.approx(time.time() + 3600, abs=60)
    assert "limit" in end.error


@needs_program
async def test_a_busy_api_is_retried_and_then_reported_as_limited(stub: AnthropicStub, place: Path) -> None:
    chunks = await ask(made(stub, retries=1), place, "[[limit]]")
    assert len(stub.heard) == 2
    assert done(chunks).outcome == "limited"
    assert done(chunks).resets_at is None
    assert not [chunk for chunk in chunks if isinstance(chunk, AssistantText)]
    assert done(await ask(made(stub), place, "[[error 529]]")).outcome == "limited"


@needs_program
async def test_too_many_turns_are_a_failure(provider: ClaudeProvider, place: Path) -> None:
    prompt = "[[run touch a.txt]] [[run touch b.txt]] [[say never]]"
    end = done(await ask(provider, place, prompt, max_turns=1, ask=allow))
    assert end.outcome == "failed"
    assert "turns" in end.error
    assert (place / "work" / "a.txt").exists()
    assert not (place / "work" / "b.txt").exists()


@needs_program
async def test_a_program_that_fails_shows_its_error_output(provider: ClaudeProvider, place: Path) -> None:
    thread = str(uuid.uuid4())
    await ask(provider, place, "[[say one]]", thread=thread)
    with pytest.raises(Exception, match="already in use"):
        await ask(provider, place, "[[say one]]", thread=thread)


@needs_program
async def test_a_missing_conversation_that_may_be_started_is_started(
    provider: ClaudeProvider, place: Path
) -> None:
    thread = str(uuid.uuid4())
    chunks = await ask(provider, place, "[[say one]]", thread, thread=thread)
    assert text(chunks) == "one"
    assert done(chunks).thread == thread
    assert usage(done(chunks)).cost
    assert "[[say one]]" in text(await ask(provider, place, "what?", thread, thread=thread))


@needs_program
async def test_a_fork_is_charged_only_for_its_own_usage(provider: ClaudeProvider, place: Path) -> None:
    first = done(await ask(provider, place, "[[say one]]"))
    fork = done(await ask(provider, place, "[[say one]]", first.thread, fork=True, totals=first.totals))
    assert usage(fork).cost == pytest.approx(usage(first).cost)


@needs_program
async def test_the_usage_of_a_turn_is_counted_once(provider: ClaudeProvider, place: Path) -> None:
    first = done(await ask(provider, place, "[[say one]]"))
    failed = done(await ask(provider, place, "[[error 400]]", first.thread, totals=first.totals))
    assert (usage(failed).input_tokens, usage(failed).cost) == (0, 0)
    third = done(await ask(provider, place, "[[say one]]", first.thread, totals=failed.totals))
    assert third.outcome == "completed"
    assert usage(third).cost == pytest.approx(usage(first).cost)
    unknown = done(await ask(provider, place, "[[say one]]", first.thread))
    assert usage(unknown).cost == pytest.approx(usage(first).cost)


@needs_program
async def test_an_interrupted_turn_is_counted_with_the_next(provider: ClaudeProvider, place: Path) -> None:
    first = done(await ask(provider, place, "[[say one]]"))
    options = QueryOptions(env={"HOME": str(place / "home")}, ask=allow)
    prompt = "[[run touch begun.txt]] [[hold]]"
    turn: Any = provider.query(prompt, str(place / "work"), first.thread, options)
    async for chunk in turn:
        if isinstance(chunk, ToolUpdate):
            break
    await turn.aclose()
    third = done(await ask(provider, place, "[[say one]]", first.thread, totals=first.totals))
    assert usage(third).input_tokens == 200
    assert usage(third).cost == pytest.approx(2 * usage(first).cost)


KILLED = """
import json, signal, subprocess, sys
program = subprocess.Popen([{program!r}, *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE)
for line in program.stdout:
    if json.loads(line)["type"] == "result":
        program.send_signal(signal.SIGKILL)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""
"""Claude Code, killed after it reported the end of its turn and before it saved its usage."""


@needs_program
async def test_a_turn_is_charged_although_the_program_was_killed_after_the_previous_one(
    provider: ClaudeProvider, stub: AnthropicStub, place: Path
) -> None:
    script = place / "killed"
    script.write_text(f"#!{sys.executable}\n{KILLED.format(program=find_program())}")
    script.chmod(0o700)
    first = done(await ask(made(stub, program=str(script)), place, "[[say one]]"))
    second = done(await ask(provider, place, "[[say one]]", first.thread, totals=first.totals))
    assert (usage(first).input_tokens, usage(second).input_tokens) == (100, 100)
    assert usage(second).cost == pytest.approx(usage(first).cost)
    third = done(await ask(provider, place, "[[say one]]", first.thread, totals=second.totals))
    assert usage(third).cost == pytest.approx(usage(first).cost)


@needs_program
async def test_the_text_of_a_sub_agent_is_not_emitted(provider: ClaudeProvider, place: Path) -> None:
    task = {"description": "look", "prompt": "who are you", "subagent_type": "general-purpose"}
    chunks = await ask(provider, place, f"[[call Agent {json.dumps(task)}]]", ask=allow)
    said = [chunk.content for chunk in chunks if isinstance(chunk, AssistantText) and not chunk.partial]
    assert len(said) == 1
    assert said[0].startswith("tool said:")
    assert [chunk.name for chunk in chunks if isinstance(chunk, ToolCall)] == ["Agent"]
    assert "heard: who are you" in [chunk for chunk in chunks if isinstance(chunk, ToolUpdate)][-1].output
    assert done(chunks).outcome == "completed"
    assert usage(done(chunks)).input_tokens == 300


# -- permissions -----------------------------------------------------------------------------------


@needs_program
@pytest.mark.parametrize(
    ("permissions", "tools", "prompt"),
    [
        ({"deny": ["Read"]}, None, '[[call Read {"file_path": "CWD/secret.txt"}]]'),
        ({"deny": ["Read(secret*)"]}, ["Read"], '[[call Read {"file_path": "CWD/secret.txt"}]]'),
        ({"deny": ["Bash"]}, None, "[[run cat secret.txt]]"),
        ({"deny": ["Bash(cat *)"]}, ["Bash"], "[[run true && cat secret.txt]]"),
        ({"otherwise": "deny"}, None, "[[run cat secret.txt]]"),
        (
            {"deny": ["Grep"], "allow": ["*"]},
            None,
            '[[call Grep {"pattern": "HERON", "output_mode": "content"}]]',
        ),
    ],
)
async def test_a_denied_tool_is_blocked_although_the_program_considers_it_harmless(
    provider: ClaudeProvider,
    stub: AnthropicStub,
    place: Path,
    permissions: dict[str, Any],
    tools: list[str] | None,
    prompt: str,
) -> None:
    (place / "work" / "secret.txt").write_text("HERON-7\n")
    judged = Judged(permissions)
    text = prompt.replace("CWD", str(place / "work"))
    assert done(await ask(provider, place, text, **judged.options, tools=tools)).outcome == "completed"
    assert "HERON-7" not in stub.bodies


@needs_program
async def test_the_policy_applies_to_sub_agents(provider: ClaudeProvider, place: Path) -> None:
    judged = Judged({"deny": ["Bash(touch *)"], "allow": ["*"]})
    task = {
        "description": "look",
        "prompt": "[" * 2 + "run touch denied.txt",
        "subagent_type": "general-purpose",
    }
    order = json.dumps(task).replace("denied.txt", "denied.txt\\u005d\\u005d")
    chunks = await ask(provider, place, f"[[call Agent {order}]]", **judged.options, tools=["Bash", "Agent"])
    assert done(chunks).outcome == "completed"
    assert [wanted.input["command"] for wanted in judged.asked] == ["touch denied.txt"]
    assert not (place / "work" / "denied.txt").exists()


@needs_program
async def test_a_permission_request_names_the_folder(provider: ClaudeProvider, place: Path) -> None:
    judged = Judged({"ask": ["Bash"]})
    await ask(provider, place, "[[run pwd]]", **judged.options, tools=["Bash"])
    assert [(wanted.tool, wanted.cwd) for wanted in judged.asked] == [("Bash", str(place / "work"))]


UNGUARDED = """
import json, sys
for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "user":
        open("asked.txt", "w").close()
    if heard["type"] == "control_request":
        response = {"subtype": "success", "request_id": heard["request_id"], "response": {}}
        print(json.dumps({"type": "control_response", "response": response}), flush=True)
"""
"""An earlier version of the program, which does not report blocking hooks."""


ASKING = """
import json, subprocess, sys

def send(message):
    print(json.dumps(message), flush=True)

for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "control_request":
        response = {"subtype": "success", "request_id": heard["request_id"], "response": {}}
        send({"type": "control_response", "response": response})
    if heard["type"] == "user":
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch asked"}}
        send({"type": "control_request", "request_id": "1", "request": request})
    if heard["type"] == "control_response":
        answer = heard["response"]["response"]
        subprocess.run(answer["updatedInput"]["command"], shell=True, check=True)
        send({"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s"})
        break
"""
"""A program that asks to run a command, and runs the one in the answer."""


async def test_the_program_runs_the_input_that_a_person_has_edited(place: Path) -> None:
    script = place / "asking"
    script.write_text(f"#!{sys.executable}\n{ASKING}")
    script.chmod(0o700)
    session = Session()
    AgentNode("dev", session, ClaudeProvider(program=str(script)), cwd=str(place / "work"))

    @session.workflow
    async def work(ctx: WorkflowContext) -> Any:
        return await ctx.run("dev", "Work")

    run = await session.start("work")
    gate = await within(run.next_gate())
    assert gate is not None
    assert (gate.action or {})["editable"] is True
    await run.answer({"allow": {"command": "touch edited"}})
    await within(run.wait())
    assert [file.name for file in (place / "work").iterdir()] == ["edited"]


async def test_a_program_that_cannot_enforce_the_policy_gets_no_prompt(place: Path) -> None:
    script = place / "old"
    script.write_text(f"#!{sys.executable}\n{UNGUARDED}")
    script.chmod(0o700)
    provider = ClaudeProvider(program=str(script))
    with pytest.raises(Unavailable, match=r"cannot enforce the permissions \(deny: Read\)"):
        await ask(provider, place, "hello", **Judged({"deny": ["Read"]}).options)
    assert not (place / "work" / "asked.txt").exists()


# -- host tools ------------------------------------------------------------------------------------


@needs_program
async def test_the_agent_can_ask_a_person(provider: ClaudeProvider, place: Path) -> None:
    requests: list[Mapping[str, Any]] = []
    answered = asyncio.Event()

    async def ask_human(given: Mapping[str, Any]) -> str:
        requests.append(given)
        asyncio.get_running_loop().call_soon(answered.set)
        await answered.wait()
        return "the left one"

    async def never(permission: PermissionRequest) -> PermissionDecision:
        raise AssertionError(f"our own tool was asked about: {permission}")

    schema = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
    tool = HostTool("Ask a person.", schema, ask_human)
    env = {"HOME": str(place / "home")}
    options = QueryOptions(env=env, ask=never, host_tools={"ask_human": tool})
    prompt = '[[call mcp__nerve__ask_human {"question": "which door?"}]]'
    chunks = [chunk async for chunk in provider.query(prompt, str(place / "work"), None, options)]
    assert requests == [{"question": "which door?"}]
    assert text(chunks) == "tool said: the left one"


# -- interrupted at any moment ---------------------------------------------------------------------


@needs_program
@pytest.mark.full
async def test_a_turn_interrupted_at_any_moment_leaves_no_process_and_resumes(
    provider: ClaudeProvider, stub: AnthropicStub, place: Path
) -> None:
    draw = random.Random(4)
    thread = str(uuid.uuid4())
    for round in range(100):
        tag = uuid.uuid4().hex
        env = {"HOME": str(place / "home"), TAG: tag}
        options = QueryOptions(env=env, thread=thread, ask=allow)
        prompt = f"[[run touch {round}.txt]] [[say done {round}]]"
        turn: Any = provider.query(prompt, str(place / "work"), thread, options)
        listening = asyncio.create_task(until_done(turn))
        await asyncio.wait([listening], timeout=draw.random() * 1.2)
        for pid in tagged(tag) if draw.random() < 0.5 else ():
            with contextlib.suppress(ProcessLookupError):  # it may have exited
                os.kill(pid, signal.SIGKILL)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await turn.aclose()
        assert not tagged(tag)
        chunks = await ask(provider, place, f"[[say {round}]]", thread, thread=thread)
        assert (text(chunks), done(chunks).outcome) == (str(round), "completed")
    heard = text(await ask(provider, place, "what was said?", thread))
    assert all(f"[[say {round}]]" in heard for round in range(100))
