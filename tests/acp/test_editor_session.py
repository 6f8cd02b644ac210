"""Nerve as an agent of editors, used by the client of the official library."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from acp.agent.connection import AgentSideConnection

import acp
from acp import schema
from nerve import BashNode, Session
from nerve.acp.project_agent import ProjectAcpAgent
from nerve.acp.run_updates import diff_contents
from nerve.agents import AgentNode
from nerve.api import Api
from nerve.client import Client
from nerve.testing.scripted import ScriptedProvider

WORKFLOW = """
name: change
description: Change a file.
body:
  kind: sequence
  workspace: worktree
  steps:
    - {kind: bash, id: edit, command: "echo changed > file.txt"}
    - {kind: gate, id: keep, prompt: "Keep it?", choices: ["yes", "no"]}
"""
FORM = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


class Editor:
    """An editor: it keeps the updates, and answers permission requests with `choose`."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.choose: Callable[[list[str]], str | None] = lambda options: options[0]
        self.holds = False

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, options))
        if self.holds:
            await asyncio.Event().wait()
        choice = self.choose([option.option_id for option in options])
        if choice is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        selected = schema.AllowedOutcome(outcome="selected", option_id=choice)
        return schema.RequestPermissionResponse(outcome=selected)

    def on_connect(self, conn: Any) -> None: ...

    @property
    def text(self) -> str:
        chunks = (update for update in self.updates if isinstance(update, schema.AgentMessageChunk))
        return "".join(chunk.content.text for chunk in chunks)  # type: ignore[union-attr]

    @property
    def plan(self) -> dict[str, str]:
        [*_, plan] = (update for update in self.updates if isinstance(update, schema.AgentPlanUpdate))
        return {entry.content: entry.status for entry in plan.entries}

    @property
    def calls(self) -> list[tuple[str | None, str | None]]:
        kinds = (schema.ToolCallStart, schema.ToolCallProgress)
        return [(update.title, update.status) for update in self.updates if isinstance(update, kinds)]

    def commands(self) -> list[str]:
        found = (each for each in self.updates if isinstance(each, schema.AvailableCommandsUpdate))
        return [command.name for update in found for command in update.available_commands]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    commit = ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"]
    for arguments in (["init", "--quiet"], commit):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
async def session(repository: Path) -> AsyncIterator[Session]:
    agent = ScriptedProvider([[{"tool": "Bash", "input": {"command": "ls"}}, "All is well."]])
    session = Session(project=repository, providers={"claude": agent})
    AgentNode("look", session, "claude")
    BashNode("fail", session, "echo trouble >&2; exit 3")
    session.load(WORKFLOW)

    @session.workflow
    async def hello(ctx):
        """Say hello."""
        return f"hello {ctx.input}"

    @session.workflow
    async def review(ctx):
        await ctx.run("look", "Look around.")
        return "reviewed"

    @session.workflow
    async def broken(ctx):
        return (await ctx.run("fail"))["output"]

    @session.workflow
    async def name(ctx):
        return await ctx.gate("Which name?")

    @session.workflow
    async def form(ctx):
        return await ctx.gate("How many?", form=FORM)

    @session.workflow
    async def both(ctx):
        return await asyncio.gather(
            ctx.gate("First?", choices=["a", "b"]), ctx.gate("Second?", choices=["c", "d"])
        )

    @session.workflow
    async def listen(ctx):
        return await ctx.receive("end")

    yield session
    await session.close()


class Connected:
    """An editor with a session."""

    def __init__(self, editor: Editor, connection: Any, session_id: str) -> None:
        self.editor, self.connection, self.session_id = editor, connection, session_id

    async def prompt(self, text: str) -> str:
        blocks = [acp.text_block(text)]
        async with asyncio.timeout(60):
            response = await self.connection.prompt(session_id=self.session_id, prompt=blocks)
        return str(response.stop_reason)


@contextlib.asynccontextmanager
async def connect(session: Session, loaded: str | None = None) -> AsyncIterator[Connected]:
    """Connect an editor over a pair of sockets, as if it had started a new process of the agent."""
    client = Client(Api(session), via="acp")

    async def open_project(folder: Path) -> Client:
        return client

    ends = socket.socketpair()
    (reader, writer), (other_reader, other_writer) = [await asyncio.open_connection(sock=end) for end in ends]
    editor = Editor()
    agent: Any = ProjectAcpAgent(open_project)
    serving = AgentSideConnection(agent, writer, reader)
    connection: Any = acp.connect_to_agent(editor, other_writer, other_reader)  # type: ignore[arg-type]
    try:
        await connection.initialize(protocol_version=1)
        if loaded is None:
            loaded = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
        else:
            await connection.load_session(cwd="/", session_id=loaded, mcp_servers=[])
        yield Connected(editor, connection, str(loaded))
    finally:
        await connection.close()
        await serving.close()
        for each in (writer, other_writer):
            each.close()


@pytest.fixture
async def connected(session: Session) -> AsyncIterator[Connected]:
    async with connect(session) as connected:
        yield connected


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not happened")


async def test_the_workflows_are_the_commands(connected: Connected) -> None:
    await until(connected.editor.commands)
    assert {"hello", "change", "follow", "answer", "stop"} <= {*connected.editor.commands()}
    assert await connected.prompt("/hello Ann") == "end_turn"
    assert "✓ hello has completed.\n\nhello Ann" in connected.editor.text


async def test_a_prompt_goes_to_the_router(connected: Connected, session: Session) -> None:
    await connected.prompt("%hello Ann")
    [run] = (await Client(Api(session)).runs()).runs
    assert (run.workflow, run.started_via) == ("hello", "router")
    assert "✓ hello has completed." in connected.editor.text


async def test_steps_tool_calls_and_messages_are_shown(connected: Connected) -> None:
    await connected.prompt("/review")
    assert connected.editor.plan == {"look": "completed"}
    calls = connected.editor.calls
    assert calls[0] == ("look", "in_progress")
    assert ("Bash", "in_progress") in calls
    assert calls[-1] == (None, "completed")
    assert "All is well." in connected.editor.text


async def test_a_failed_step_and_its_run_are_shown(connected: Connected) -> None:
    await connected.prompt("/broken")
    assert connected.editor.calls[-1] == (None, "failed")
    assert "✗ broken: " in connected.editor.text
    assert "trouble" in connected.editor.text


async def test_a_gate_is_a_permission_request_and_a_change_is_a_diff(connected: Connected) -> None:
    assert await connected.prompt("/change") == "end_turn"
    [(call, options)] = connected.editor.asked
    assert call.title == "Keep it?"
    assert [(each.option_id, each.kind) for each in options] == [("yes", "allow_once"), ("no", "reject_once")]
    assert connected.editor.plan == {"edit": "completed", "keep": "completed"}
    progress = [each for each in connected.editor.updates if isinstance(each, schema.ToolCallProgress)]
    assert connected.editor.calls == [("edit", "in_progress"), (None, "completed"), (None, None)]
    [diff] = [part for each in progress if each.kind == "edit" for part in each.content or ()]
    assert isinstance(diff, schema.FileEditToolCallContent)
    assert (diff.path, diff.old_text, diff.new_text) == ("file.txt", None, "changed")


async def test_several_gates_are_asked_at_once(connected: Connected) -> None:
    await connected.prompt("/both")
    assert {call.title for call, _ in connected.editor.asked} == {"First?", "Second?"}
    assert '["a", "c"]' in connected.editor.text.replace("\n", "").replace("  ", "")


async def test_a_gate_that_is_answered_elsewhere_ends_the_question(
    connected: Connected, session: Session
) -> None:
    connected.editor.holds = True
    turn = asyncio.create_task(connected.prompt("/change"))
    await until(lambda: connected.editor.asked)
    client = Client(Api(session))
    [gate] = await client.all_gates()
    await client.answer(gate=gate.gate_id, run=gate.run_id, answer="yes")
    assert await turn == "end_turn"
    assert "✓ change has completed." in connected.editor.text


async def test_a_question_that_is_closed_stays_open_in_the_run(connected: Connected) -> None:
    connected.editor.choose = lambda options: None
    assert await connected.prompt("/change") == "end_turn"
    assert "Not answered. Later: /follow, or nerve answer " in connected.editor.text
    connected.editor.choose = lambda options: options[0]
    assert await connected.prompt("/follow") == "end_turn"
    assert "✓ change has completed." in connected.editor.text


async def test_a_gate_without_choices_is_answered_by_the_next_message(connected: Connected) -> None:
    await connected.prompt("/name")
    assert "Which name?\n\nSend the answer as the next message, or: nerve answer " in connected.editor.text
    await connected.prompt("heron")
    assert "✓ name has completed.\n\nheron" in connected.editor.text


async def test_a_form_is_answered_by_json_and_wrong_json_is_refused(connected: Connected) -> None:
    await connected.prompt("/form")
    assert 'The answer is JSON, such as: {"count":1}' in connected.editor.text.replace('": ', '":')
    await connected.prompt("many")
    assert "✓" not in connected.editor.text
    await connected.prompt('{"count": 7}')
    assert "✓ form has completed." in connected.editor.text


async def test_cancel_stops_the_run(connected: Connected, session: Session) -> None:
    turn = asyncio.create_task(connected.prompt("/listen"))
    client = Client(Api(session))
    for _ in range(1000):
        runs = (await client.runs()).runs
        if runs and runs[0].state == "waiting":
            break
        await asyncio.sleep(0.01)
    await connected.connection.cancel(session_id=connected.session_id)
    assert await turn == "cancelled"
    [run] = (await client.runs()).runs
    assert (run.state, run.error) == ("cancelled", "cancelled in the editor")


async def test_a_session_is_loaded_after_a_restart(session: Session) -> None:
    async with connect(session) as first:
        await first.prompt("/hello Ann")
        first.editor.choose = lambda options: None
        await first.prompt("/change")
    async with connect(session, first.session_id) as second:
        users = [each for each in second.editor.updates if isinstance(each, schema.UserMessageChunk)]
        assert [each.content.text for each in users] == ["/hello Ann", "/change"]  # type: ignore[union-attr]
        assert "hello Ann" in second.editor.text
        assert "change is waiting. /follow shows it, and asks what it waits for." in second.editor.text
        assert second.editor.asked == []
        await second.prompt("/follow")
        assert "✓ change has completed." in second.editor.text


async def test_errors_are_messages(connected: Connected) -> None:
    assert await connected.prompt("/gone") == "end_turn"
    assert "Unknown command '/gone'. Known: /answer, " in connected.editor.text
    await connected.prompt("/answer x")
    assert "Usage: /answer GATE TEXT" in connected.editor.text
    await connected.prompt("/follow")
    assert "No run of this session is open." in connected.editor.text
    with pytest.raises(acp.RequestError, match="Session 'gone' not found"):
        await connected.connection.prompt(session_id="gone", prompt=[acp.text_block("x")])


def test_a_patch_is_shown_as_old_and_new_text() -> None:
    patch = (
        "diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n"
        "@@ -1,2 +1,2 @@ def f():\n keep\n-old\n+new\n@@ -9 +9,2 @@\n last\n+more\n"
        "diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-all\n"
        "diff --git a/x.bin b/x.bin\nBinary files a/x.bin and b/x.bin differ\n"
    )
    assert [(each.path, each.old_text, each.new_text) for each in diff_contents(patch)] == [
        ("a.py", "keep\nold", "keep\nnew"),
        ("a.py", "last", "last\nmore"),
        ("gone.py", "all", ""),
    ]


async def test_an_editor_starts_the_command_in_a_folder(tmp_path: Path) -> None:
    project, env = tmp_path / "project", {**os.environ}

    def nerve(*arguments: str, cwd: Path = tmp_path) -> None:
        command = [sys.executable, "-m", "nerve", *arguments]
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=120)

    await asyncio.to_thread(nerve, "init", "project")
    try:
        editor: Any = Editor()
        agent = acp.spawn_agent_process(editor, sys.executable, "-m", "nerve", "acp", cwd=tmp_path, env=env)
        async with agent as (connection, process):
            await connection.initialize(protocol_version=1)
            with pytest.raises(acp.RequestError, match="nerve init"):
                await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            opened = await connection.new_session(cwd=str(project), mcp_servers=[])
            prompt = [acp.text_block("/greet Ann")]
            await connection.prompt(session_id=opened.session_id, prompt=prompt)
            assert "✓ greet has completed." in editor.text
        assert process.returncode is not None
    finally:
        await asyncio.to_thread(nerve, "server", "stop", cwd=project)
