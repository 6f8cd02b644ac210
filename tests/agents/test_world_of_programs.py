"""The world of an agent with the real programs: Claude Code and Codex against stubs of their APIs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.contract import Judged, done, text
from agents.stubs.anthropic import AnthropicStub
from agents.stubs.openai import OpenAIStub
from agents.stubs.server import StubServer
from agents.stubs.steer import Order
from agents.test_claude import made as claude_provider
from agents.test_claude import needs_program
from agents.test_codex import missing as missing_codex
from agents.test_codex import settings as codex_settings
from core.workflow.support import within
from nerve import Session
from nerve.agents import AgentNode
from nerve.agents.codex import CodexProvider
from nerve.agents.provider import Chunk, Provider, QueryOptions, ToolCall, ToolUpdate
from nerve.ui.event_lines import format_event
from process.seen import TAG, read, tagged

SERVER = str(Path(__file__).parent / "stubs" / "mcp_server.py")
needs_codex = pytest.mark.skipif(bool(missing_codex()), reason=missing_codex() or "installed")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for path in (folder, tmp_path / "home", folder / ".claude/skills/greet", folder / ".agents/skills/sing"):
        path.mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("Obey the crane. @more.md\n")
    (folder / "more.md").write_text("Mind the heron.\n")
    (folder / "AGENTS.md").write_text("Obey the stork.\n")
    for skill in (".claude/skills/greet", ".agents/skills/sing"):
        name = Path(skill).name
        front = f"name: {name}\ndescription: How to {name}: politely"
        (folder / skill / "SKILL.md").write_text(f"---\n{front}\n---\nDo it.\n")
    return folder


@pytest.fixture(
    params=[pytest.param("claude", marks=needs_program), pytest.param("codex", marks=needs_codex)]
)
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def stub(kind: str) -> Iterator[StubServer]:
    with AnthropicStub() if kind == "claude" else OpenAIStub() as stub:
        yield stub


@pytest.fixture
def provider(kind: str, stub: Any) -> Provider:
    return claude_provider(stub) if kind == "claude" else CodexProvider(**codex_settings(stub))


async def ask(provider: Provider, work: Path, prompt: str, **options: Any) -> list[Chunk]:
    env = {"HOME": str(work.parent / "home"), **options.pop("env", {})}
    if isinstance(provider, CodexProvider):
        env["CODEX_HOME"] = str(work.parent / "home")
    permissions = options.get("permissions")
    if permissions is not None:  # as `prepare_options` does
        able = provider.capabilities
        rules = permissions.with_mode_rules(able.edit_tools, able.read_tools, str(work))
        options["permissions"] = rules
    turn = provider.query(prompt, str(work), None, QueryOptions(env=env, **options))
    chunks = [chunk async for chunk in turn]
    assert done(chunks).outcome == "completed", done(chunks).error
    return chunks


async def test_the_effort_reaches_the_api(kind: str, provider: Provider, stub: Any, work: Path) -> None:
    await ask(provider, work, "[[say hello]]", effort="low")
    field = "output_config" if kind == "claude" else "reasoning"
    assert stub.heard[-1].body[field]["effort"] == "low"


async def test_instruction_files_are_read_unless_switched_off(
    kind: str, provider: Provider, stub: Any, work: Path
) -> None:
    told = ["Obey the crane", "Mind the heron"] if kind == "claude" else ["Obey the stork"]
    await ask(provider, work, "[[say hello]]")
    assert all(words in stub.bodies for words in told)
    stub.heard.clear()
    await ask(provider, work, "[[say hello]]", instructions=False)
    assert not any(words in stub.bodies for words in told)


async def test_skills_are_listed_unless_switched_off(provider: Provider, stub: Any, work: Path) -> None:
    await ask(provider, work, "[[say hello]]", system="Be brief.")
    assert "Be brief." in stub.bodies
    assert stub.bodies.count("How to greet: politely") == stub.bodies.count("How to sing: politely") == 1
    assert "greet/SKILL.md" in stub.bodies
    stub.heard.clear()
    await ask(provider, work, "[[say hello]]", skills=["sing"])
    assert "How to greet" not in stub.bodies
    assert "How to sing" in stub.bodies
    stub.heard.clear()
    await ask(provider, work, "[[say hello]]", skills=False)
    assert not any(words in stub.bodies for words in ("How to greet", "How to sing"))
    with pytest.raises(ValueError, match=r"Skill not found: sings\. Did you mean 'sing'\?"):
        await ask(provider, work, "[[say hello]]", skills=["sings"])


@needs_program
async def test_claude_code_gives_tasks_to_the_subagents_of_a_step(work: Path) -> None:
    task = {"description": "count", "prompt": "Count three", "subagent_type": "counter"}
    agent = {"description": "Counts.", "prompt": "Count the herons.", "tools": ["Bash"], "max_turns": 3}
    with AnthropicStub() as stub:
        chunks = await ask(
            claude_provider(stub),
            work,
            f"[[call Agent {json.dumps(task)}]]",
            subagents={"counter": agent},
            **Judged({"allow": ["Agent", "Bash(echo *)"], "otherwise": "deny"}).options,
        )
    own, *inner = [heard.body for heard in stub.heard if "tools" in heard.body]
    assert "counter: Counts." in json.dumps(own)
    [asked, *_] = [body for body in inner if "Count the herons." in json.dumps(body["system"])]
    assert [tool["name"] for tool in asked["tools"]] == ["Bash"]
    assert "heard: Count three" in text(chunks)  # the answer of the subagent is the result of the tool


async def test_a_hook_of_the_step_runs_and_those_of_the_project_do_not(
    provider: Provider, stub: Any, work: Path
) -> None:
    theirs = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch theirs.txt"}]}]}}
    (work / ".claude/settings.json").write_text(json.dumps(theirs))
    hooks = {"PreToolUse": [{"matcher": "Bash", "command": "cat > hooked.txt", "timeout": 10}]}
    await ask(provider, work, "[[run true]]", hooks=hooks, **Judged({"otherwise": "allow"}).options)
    assert json.loads((work / "hooked.txt").read_text())["tool_input"]["command"] == "true"
    assert not (work / "theirs.txt").exists()


async def test_a_hook_works_beside_permissions_that_are_enforced(provider: Provider, work: Path) -> None:
    hooks = {"PreToolUse": [{"command": "touch hooked.txt"}]}
    policy = Judged({"deny": ["Bash(touch *)"], "otherwise": "allow"})
    await ask(provider, work, "[[run touch denied.txt]]", hooks=hooks, **policy.options)
    assert (work / "hooked.txt").exists()
    assert not (work / "denied.txt").exists()


async def test_an_mcp_server_of_the_step_is_used_and_its_secrets_are_no_arguments(
    kind: str, provider: Provider, stub: Any, work: Path
) -> None:
    tag = f"world-{kind}-{work.parent.name}"
    server = {"command": sys.executable, "args": [SERVER], "env": {"DOCS_KEY": "heron-7-secret"}}
    arguments = b""

    async def look(request: Any) -> Any:
        nonlocal arguments
        arguments = b"".join(read(pid, "cmdline") for pid in tagged(tag))
        return await judged.decide(request)

    judged = Judged({"otherwise": "allow", "ask": ["mcp__docs__*", "mcp__docs"]})
    options = {"permissions": judged.permissions, "ask": look}
    order = '[[call mcp__docs__lookup {"word": "crane"}]]'
    chunks = await ask(provider, work, order, mcp={"docs": server}, env={TAG: tag}, **options)
    assert "crane means heron-7-secret" in text(chunks)
    assert arguments
    assert b"heron-7" not in arguments
    [call] = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    [update] = [c for c in chunks if isinstance(c, ToolUpdate) and c.status == "completed"]
    assert (call.id, "crane means" in update.output) == (update.id, True)


EDIT = {
    "claude": '[[call Write {{"file_path": "{path}", "content": "hello"}}]]',
    "codex": "[[run apply_patch <<'EOF'\n"
    "*** Begin Patch\n*** Add File: {path}\n+hello\n*** End Patch\nEOF\n]]",
}


@pytest.mark.parametrize(
    ("mode", "may_edit", "may_run", "asked"),
    [
        ("ask", False, False, True),
        ("edits", True, False, True),
        ("all", True, True, False),
        ("read", False, False, False),
    ],
)
async def test_a_permission_mode_decides_what_needs_no_question(
    mode: str, may_edit: bool, may_run: bool, asked: bool, kind: str, provider: Provider, work: Path
) -> None:
    from nerve.agents.provider import PermissionDecision

    questions: list[str] = []
    policy = Judged({"mode": mode})

    async def refuse(request: Any) -> PermissionDecision:
        rule = options["permissions"].find_rule(*request.tool_uses())
        if rule.verdict in ("allow", "deny"):
            return PermissionDecision(rule.verdict == "allow", "no")
        questions.append(request.tool)
        return PermissionDecision(False, "no")

    able = provider.capabilities
    rules = policy.permissions.with_mode_rules(able.edit_tools, able.read_tools, str(work))
    options = {"permissions": rules, "ask": refuse}
    edit = EDIT[kind].format(path=work / "new.txt" if kind == "claude" else "new.txt")
    turn = [edit, "[[run touch ran.txt]]"]
    for prompt in turn:
        await ask(provider, work, prompt, **options)
    assert ((work / "new.txt").exists(), (work / "ran.txt").exists()) == (may_edit, may_run)
    assert bool(questions) is asked


# -- tools of Nerve ------------------------------------------------------------------------------------


def search_docs(words: str, limit: int = 3) -> list[str]:
    """Search the manual."""
    return [f"{words} {n}" for n in range(limit)]


ORDER = '[[call mcp__nerve__search_docs {"words": "crane", "limit": 2}]]'


async def start(provider: Provider, work: Path, prompt: str, *tools: Any, **settings: Any) -> Any:
    """Start a run with one agent."""
    session = Session(project=work)
    env = {"HOME": str(work.parent / "home"), "CODEX_HOME": str(work.parent / "home")}
    AgentNode("dev", session, provider, cwd=str(work), env=env, tools=tools, **settings)
    return await session.start("dev", prompt)


async def tool_events(run: Any) -> list[dict[str, Any]]:
    return [event.data for event in await run.history() if event.event_type == "tool_call"]


async def test_a_python_function_is_a_tool_of_the_program(provider: Provider, work: Path) -> None:
    run = await start(provider, work, ORDER, search_docs)
    assert "crane 0" in str(await within(run.wait(), 60))
    call, update = await tool_events(run)
    assert (call["name"], call["input"]) == ("search_docs", {"words": "crane", "limit": 2})
    assert (update["status"], json.loads(update["text"])) == ("completed", ["crane 0", "crane 1"])


async def test_a_failed_tool_is_an_error_for_the_program(provider: Provider, work: Path) -> None:
    def search_docs(words: str, limit: int) -> str:
        raise ValueError("the manual is lost")

    run = await start(provider, work, ORDER, search_docs)
    assert "the manual is lost" in str(await within(run.wait(), 60))
    assert (await tool_events(run))[-1]["status"] == "failed"


async def test_permissions_decide_about_a_tool(provider: Provider, work: Path) -> None:
    permissions = {"deny": ["search_docs"], "otherwise": "deny"}
    run = await start(provider, work, ORDER, search_docs, permissions=permissions)
    assert "it denies search_docs" in str(await within(run.wait(), 60))


async def test_a_tool_can_ask_a_person(provider: Provider, work: Path) -> None:
    run = await start(
        provider, work, '[[call mcp__nerve__ask_human {"question": "Which bird?"}]]', "ask_human"
    )
    gate = await within(run.next_gate(), 60)
    assert "Which bird?" in gate.prompt
    await run.answer("the crane")
    assert "the crane" in str(await within(run.wait(), 60))


async def test_stopping_a_run_cancels_its_tool(provider: Provider, work: Path) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def search_docs(words: str, limit: int) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return words

    run = await start(provider, work, ORDER, search_docs)
    await within(started.wait(), 60)
    await within(run.stop(), 60)
    assert cancelled.is_set()


# -- two programs ----------------------------------------------------------------------------------


@needs_program
@needs_codex
@pytest.mark.parametrize("limited", ["claude", "codex"])
async def test_a_line_names_the_program_that_has_answered_and_why_the_other_has_not(
    limited: str, work: Path
) -> None:
    with AnthropicStub() as anthropic, OpenAIStub() as openai:
        stubs = {"claude": anthropic, "codex": openai}
        stubs[limited].order = Order("overloaded", "529")
        programs = {"claude": claude_provider(anthropic), "codex": CodexProvider(**codex_settings(openai))}
        [other] = programs.keys() - {limited}
        run = await start(programs[limited], work, "[[say it is done]]", fallback=programs[other])
        await within(run.wait(), 60)
    lines = [line for event in run.events if (line := format_event(event))]
    assert any(f"✓ it is done ({other} instead of {limited}, " in line for line in lines), lines
    [waiting] = [line for line in lines if f"{limited} overload until" in line]
    assert "The server is overloaded. Please try again later." in waiting
