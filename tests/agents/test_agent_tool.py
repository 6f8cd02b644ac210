"""Python functions as tools: schemas, results, errors, permissions, and the record in the step."""

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.test_conversation import Agent, says
from core.workflow.support import until, within
from nerve import ExecutionContext, Session
from nerve.agents import AgentNode
from nerve.agents.agent_tool import AgentTool
from nerve.agents.command_provider import CommandProvider
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import HostTool, ToolFailed
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

FLOW = """
name: flow
description: d
nodes:
  - {id: go, prompt: Go., provider: scripted, tools: [search_docs]%s}
"""


@dataclass
class Page:
    title: str
    score: float = 1.0


def search_docs(words: str, limit: int = 3) -> list[Page]:
    """Search the manual."""
    return [Page(f"{words} {n}") for n in range(limit)]


def called(name, **given):
    return {"tool": name, "input": given}


async def run_flow(answer, *, more="", tool=search_docs, timeout=None):
    """Return the run of a flow whose agent answers with calls, and the tool events of its step."""
    session = Session(providers={"scripted": ScriptedProvider([answer])})
    session.tool(tool, id="search_docs", timeout=timeout)
    session.load(FLOW % more, "yaml")
    return await session.start("flow")


async def tool_events(run):
    return [event.data for event in await run.history() if event.event_type == "tool_call"]


def test_the_schema_is_that_of_the_signature():
    tool = AgentTool(search_docs)
    assert (tool.name, tool.description) == ("search_docs", "Search the manual.")
    assert tool.schema == {
        "type": "object",
        "properties": {"words": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
        "required": ["words"],
        "additionalProperties": False,
    }


async def test_a_call_is_recorded_in_its_step_with_its_result():
    run = await run_flow([called("search_docs", words="crane", limit=1), "done"])
    assert await within(run.wait()) == "done"
    call, update = await tool_events(run)
    assert (call["name"], call["input"]) == ("search_docs", {"words": "crane", "limit": 1})
    assert (update["id"], update["status"]) == (call["id"], "completed")
    assert json.loads(update["text"]) == [{"title": "crane 0", "score": 1.0}]
    [done] = [event.data for event in await run.history() if event.event_type == "node_completed"]
    assert done["result"]["attributes"]["tools"] == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"word": "x"}, "Unknown parameter 'word' of tool 'search_docs'. Did you mean 'words'?"),
        ({}, "Parameter 'words' of tool 'search_docs' is missing"),
        ({"words": 3}, "Parameter 'words' of tool 'search_docs' must be a valid string, got 3 of type int"),
        ({"words": "x", "limit": -1}, "ValueError: limit must not be negative"),
    ],
)
async def test_a_mistake_goes_back_to_the_agent(given, told):
    def search(words: str, limit: int = 3) -> list[str]:
        if limit < 0:
            raise ValueError("limit must not be negative")
        return []

    run = await run_flow([called("search_docs", **given), "I was wrong"], tool=search)
    assert await within(run.wait()) == "I was wrong"
    _, update = await tool_events(run)
    assert (update["status"], update["text"]) == ("failed", told)


async def test_a_tool_that_takes_too_long_is_an_error_for_the_agent():
    async def search(words: str) -> str:
        await asyncio.sleep(60)
        return words

    run = await run_flow([called("search_docs", words="x"), "done"], tool=search, timeout=0.05)
    assert await within(run.wait()) == "done"
    [_, update] = await tool_events(run)
    assert update["text"] == "The tool 'search_docs' took longer than 0.05 seconds"


async def test_stopping_the_run_cancels_the_call():
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def search(words: str) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return words

    run = await run_flow([called("search_docs", words="x")], tool=search)
    await within(started.wait())
    await within(run.stop())
    assert cancelled.is_set()
    [_, update] = await tool_events(run)
    assert (update["status"], update["text"]) == ("failed", "cancelled")


async def test_a_sync_function_does_not_block_the_engine():
    release = threading.Event()
    run = await run_flow([called("search_docs", words="x"), "done"], tool=lambda words: release.wait(20))
    await until(lambda: asyncio.get_running_loop().time() and run.view.nodes.get("/go") is not None)
    before = time.monotonic()
    await asyncio.sleep(0)
    assert time.monotonic() - before < 15
    release.set()
    assert await within(run.wait()) == "done"


@pytest.mark.parametrize(
    ("permissions", "told"),
    [
        ("{deny: [search_docs]}", "Not allowed: the workflow does not allow it: it denies search_docs"),
        ("{deny: ['search_*']}", "Not allowed: the workflow does not allow it: it denies search_*"),
        ("{otherwise: deny}", None),
        ("{mode: read}", None),
    ],
)
async def test_permissions_apply(permissions, told):
    calls = []

    def search(words: str) -> str:
        calls.append(words)
        return "found"

    answer = [called("search_docs", words="x"), "done"]
    run = await run_flow(answer, more=f", permissions: {permissions}", tool=search)
    assert await within(run.wait()) == "done"
    update = (await tool_events(run))[-1]
    assert (calls, update["status"], update["text"]) == (
        (["x"], "completed", "found") if told is None else ([], "failed", told)
    )


async def test_a_person_is_asked_and_can_edit_the_call():
    answer = [called("search_docs", words="x"), "done"]
    run = await run_flow(answer, more=", permissions: {ask: [search_docs]}", tool=lambda words: f"<{words}>")
    gate = await within(run.next_gate())
    assert "go (scripted) wants to use search_docs" in gate.prompt
    await run.answer({"allow": {"words": "y"}})
    assert await within(run.wait()) == "done"
    assert (await tool_events(run))[-1]["text"] == "<y>"


async def test_a_secret_in_a_result_is_not_in_the_journal(monkeypatch):
    monkeypatch.setenv("DOCS_TOKEN", "very-secret-1")
    answer = [called("search_docs", words="very-secret-1"), "done"]
    run = await run_flow(answer, tool=lambda words: f"found {words}")
    await within(run.wait())
    call, update = await tool_events(run)
    assert (call["input"], update["text"]) == ({"words": "[DOCS_TOKEN]"}, "found [DOCS_TOKEN]")


async def test_an_agent_node_takes_functions():
    agent = ScriptedProvider([[called("search_docs", words="x", limit=1), "done"]])
    node = AgentNode("dev", None, agent, tools=["Read", search_docs])
    result = await node.execute(ExecutionContext(input="Go."))
    assert (result.output, result.attributes["tools"]) == ("done", 1)
    assert agent.calls[0].options["tools"] == ["Read", "search_docs"]


async def test_ask_human_can_be_named_as_a_tool():
    agent = ScriptedProvider([[called("ask_human", question="Which one?"), "done"]])
    session = Session()
    AgentNode("dev", session, agent, tools=["ask_human"])
    run = await session.start("dev", "Go.")
    assert "Which one?" in (await within(run.next_gate())).prompt
    await run.answer("the first")
    await within(run.wait())


async def test_a_provider_that_cannot_call_tools_refuses_them():
    session = Session(providers={"scripted": Agent(says)})
    session.tool(search_docs)
    session.load(FLOW % "", "yaml")
    message = "Provider 'agent' cannot call the tool 'search_docs' of Nerve"
    with pytest.raises(InvalidDefinition, match=message):
        await session.start("flow")
    node = AgentNode("dev", None, Agent(says), tools=[search_docs])
    assert message in (await node.execute(ExecutionContext(input="Go."))).error


@pytest.mark.parametrize("name", ["", "a b", "ask_human"])
def test_a_name_that_agents_cannot_use_is_refused(name):
    with pytest.raises(ValueError, match="A tool needs a name of letters"):
        AgentTool(lambda: None, name or "é")


async def test_the_server_answers_the_messages_of_a_client():
    started = asyncio.Event()

    async def call(arguments):
        started.set()
        if arguments.get("fail"):
            raise ToolFailed("no")
        if arguments.get("wait"):
            await asyncio.sleep(60)
        return "yes"

    server = McpToolServer({"x": HostTool("An x.", {"type": "object"}, call)})

    def message(id, method, **params):
        return server.handle_message({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    assert (await message(1, "tools/list"))["result"]["tools"][0]["description"] == "An x."
    good = (await message(2, "tools/call", name="x", arguments={}))["result"]
    assert good == {"content": [{"type": "text", "text": "yes"}]}
    bad = (await message(3, "tools/call", name="x", arguments={"fail": True}))["result"]
    assert bad == {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert "error" in await message(4, "tools/call", name="y", arguments={})
    started.clear()
    running = asyncio.create_task(message(5, "tools/call", name="x", arguments={"wait": True}))
    await within(started.wait())
    await server.handle_message({"method": "notifications/cancelled", "params": {"requestId": 5}})
    with pytest.raises(asyncio.CancelledError):
        await running


MCP_COMMAND = """
import json, os, subprocess
servers = json.load(open(os.environ["NERVE_MCP_CONFIG"]))["mcpServers"]
for name, tool in (("nerve", "search_docs"), ("docs", "lookup")):
    argv = [servers[name]["command"], *servers[name]["args"]]
    server = subprocess.Popen(argv, stdin=-1, stdout=-1, env={**os.environ, **servers[name].get("env", {})})
    arguments = {"words": "crane", "word": "crane", "limit": 1}
    arguments = {key: arguments[key] for key in (["words", "limit"] if name == "nerve" else ["word"])}
    params = {"name": tool, "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    server.stdin.write(json.dumps(call).encode() + b"\\n")
    server.stdin.flush()
    print(json.loads(server.stdout.readline())["result"]["content"][0]["text"])
    server.stdin.close()
    server.stdout.close()
    server.wait()
"""


async def test_a_command_finds_its_servers_in_a_file():
    stub = str(Path(__file__).parent / "stubs" / "mcp_server.py")
    docs = {"command": sys.executable, "args": [stub], "env": {"DOCS_KEY": "a bird"}}
    provider = CommandProvider([sys.executable, "-c", MCP_COMMAND], mcp=True)
    session = Session()
    AgentNode("dev", session, provider, tools=[search_docs], mcp={"docs": docs})
    run = await session.start("dev", "Go.")
    page, meaning = str(await within(run.wait(), 30)).splitlines()
    assert json.loads(page) == [{"title": "crane 0", "score": 1.0}]
    assert meaning == "crane means a bird"
    assert [event.get("name") or event["status"] for event in await tool_events(run)] == [
        "search_docs",
        "completed",
    ]
