"""AgentNode: sends prompts, emits messages and tool calls, and reports the real outcome."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from nerve import ExecutionContext, Session
from nerve.agents import AgentNode, AssistantText, ToolCall, TurnFinished
from nerve.agents.agent_node import MAX_OUTPUT_CHARS
from nerve.api import models, queries
from nerve.core.events import MAX_SHOWN_CHARS
from nerve.core.workflow import Workflow
from nerve.errors import NodeFailed
from nerve.testing import ScriptedProvider


class Speaking:
    """Emits the given chunks, and records when its iterator is closed."""

    name = "speaking"

    def __init__(self, *chunks, forever=False):
        self.chunks, self.forever = chunks, forever
        self.asked, self.closed = asyncio.Event(), False

    async def query(self, prompt, cwd, resume, options):
        self.asked.set()
        try:
            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            if self.forever:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def asked(provider, given="Plan it", **settings):
    """Return the result of one execution, and its events."""
    heard = []
    context = ExecutionContext(input=given, event_sink=heard.append)
    result = await AgentNode("planner", provider=provider, **settings).execute(context)
    return result, [(event.event_type, event.data) for event in heard]


@pytest.mark.requirement("S3-19")
async def test_messages_and_tool_calls_are_emitted_as_they_arrive_and_the_result_names_the_thread():
    usage = {"input_tokens": 3, "output_tokens": 5}
    provider = Speaking(
        AssistantText("One."),
        ToolCall("Bash", {"command": "ls"}),
        AssistantText("Two."),
        TurnFinished("t-9", usage),
    )
    result, events = await asked(provider, model="sonnet")
    assert result.success
    assert result.output == "One.\n\nTwo."
    assert result.attributes == {
        "provider": "speaking",
        "thread": "t-9",
        "model": "sonnet",
        "tools": 1,
        "usage": {**usage, "turns": 1, "agents": 1},
    }
    assert events == [
        ("output_chunk", {"stream": "assistant", "text": "One."}),
        ("tool_call", {"name": "Bash", "input": {"command": "ls"}}),
        ("output_chunk", {"stream": "assistant", "text": "Two."}),
        ("usage", usage),
    ]


async def test_a_request_sets_folder_options_and_thread(tmp_path):
    provider = ScriptedProvider(["ok"])
    request = {"prompt": "Go on", "resume": "thread-7", "model": "opus", "cwd": str(tmp_path)}
    result, _ = await asked(provider, request, model="sonnet", system="Be brief.", cwd="/elsewhere")
    (call,) = provider.calls
    assert (call.prompt, call.resume, call.cwd) == ("Go on", "thread-7", str(tmp_path))
    assert call.options == {"model": "opus", "system": "Be brief."}
    assert result.attributes["thread"] == "thread-7"
    assert result.attributes["model"] == "opus"


@pytest.mark.parametrize("absolute", [True, False])
async def test_the_artifact_folder_exists_when_the_agent_starts(tmp_path, absolute):
    folder = tmp_path / "artifacts" / "run-1"
    seen = []
    provider = ScriptedProvider(lambda call: str(seen.append(folder.is_dir())))
    artifacts = str(folder) if absolute else "artifacts/run-1"
    await asked(provider, {"prompt": "Plan", "artifacts": artifacts, "cwd": str(tmp_path)})
    assert seen == [True]


async def test_a_folder_that_cannot_be_created_fails_the_step_before_the_query(tmp_path):
    (tmp_path / "file").write_text("")
    provider = ScriptedProvider(["never"])
    request = {"prompt": "Plan", "cwd": str(tmp_path), "artifacts": "file/x"}
    result, _ = await asked(provider, request)
    assert not result.success
    assert result.error_type == "NotADirectoryError"
    assert provider.calls == []


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        ("Just text", "Just text"),
        (["a", 1], '[\n  "a",\n  1\n]'),
        ({"topic": "é"}, '{\n  "topic": "é"\n}'),
        ({"input": "Review this"}, "Review this"),
        ({"input": {"a": 1}}, '{\n  "a": 1\n}'),
        (
            {"input": "Review", "diff": "+x", "n": 2},
            'Review\n\n## Context\n\n```json\n{\n  "diff": "+x",\n  "n": 2\n}\n```',
        ),
        ({"prompt": "p", "cwd": "/", "other": 1}, '{\n  "prompt": "p",\n  "cwd": "/",\n  "other": 1\n}'),
    ],
)
async def test_any_value_becomes_a_prompt(given, prompt):
    provider = ScriptedProvider(["ok"])
    await asked(provider, given)
    assert provider.calls[0].prompt == prompt
    assert provider.calls[0].cwd is None


@pytest.mark.parametrize("given", ["", "  \n", None, {"prompt": ""}, {"input": None}])
async def test_an_empty_prompt_is_refused_before_the_query(given):
    provider = ScriptedProvider(["never"])
    result, _ = await asked(provider, given)
    assert not result.success
    assert "'planner' received an empty prompt" in result.error
    assert provider.calls == []


async def test_a_fork_can_change_the_prompt_and_the_model():
    provider = ScriptedProvider(["ok"])
    context = ExecutionContext(input={"prompt": "old"}, overrides={"prompt": "new", "model": "opus"})
    await AgentNode("a", provider=provider, model="sonnet").execute(context)
    assert provider.calls[0].prompt == "new"
    assert provider.calls[0].options["model"] == "opus"


async def test_an_agent_that_ends_without_turn_finished_has_failed():
    result, _ = await asked(Speaking(AssistantText("I was about to")))
    assert not result.success
    assert result.error_type == "AgentEnded"
    assert result.output == "I was about to"
    assert result.attributes["thread"] is None


async def test_an_agent_that_raises_fails_with_the_cause_and_its_output():
    cause = ConnectionError("overloaded")
    provider = Speaking(AssistantText("Half"), ToolCall("Read"), cause)
    result, _ = await asked(provider)
    assert (result.success, result.error, result.error_type) == (False, "overloaded", "ConnectionError")
    assert result.cause is cause
    assert result.output == "Half"
    assert result.attributes["tools"] == 1


async def test_an_invalid_chunk_is_a_failure_that_shows_it():
    result, _ = await asked(Speaking("text"))
    assert result.error_type == "TypeError"
    assert "'text'" in result.error


async def test_chunks_after_turn_finished_are_ignored_and_the_iterator_is_closed():
    provider = Speaking(AssistantText("a"), TurnFinished("t"), AssistantText("late"))
    result, events = await asked(provider)
    assert result.output == "a"
    assert len(events) == 1
    assert provider.closed


async def test_cancelling_closes_the_iterator():
    provider = Speaking(AssistantText("a"), forever=True)
    task = asyncio.create_task(asked(provider))
    await provider.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.closed


async def test_a_timeout_closes_the_iterator(session):
    provider = Speaking(AssistantText("a"), forever=True)
    AgentNode("slow", session, provider, timeout=0.01)

    async def body(ctx):
        await ctx.run("slow", "Go")

    Workflow("body", session, body)
    with pytest.raises(TimeoutError):
        await (await session.start("body")).wait()
    assert provider.closed


async def test_long_output_is_stored_in_full_as_a_blob_and_shown_in_part(tmp_path):
    long = "".join(map(str, range(100_000)))
    provider = Speaking(AssistantText(long), ToolCall("Write", {"text": long}), TurnFinished("t"))
    async with Session(store=tmp_path / "n.db") as session:
        AgentNode("dev", session, provider)

        async def body(ctx):
            return len((await ctx.run("dev", "Go"))["output"])

        Workflow("body", session, body)
        run = await session.start("body")
        assert await run.wait() == len(long)
    async with Session(store=tmp_path / "n.db") as session:
        Workflow("body", session, body)
        run = session.get_workflow_run(run.run_id)
        said, used = (event for event in run.events if event.event_type in ("output_chunk", "tool_call"))
        kept = MAX_SHOWN_CHARS - len("assistant")
        shown = {"stream": "assistant", "text": long[:kept], "cut_characters": len(long) - kept}
        assert said.data == shown
        assert len(json.dumps(used.data)) < MAX_SHOWN_CHARS + 1000
        assert used.data["cut_characters"] > len(long) - MAX_SHOWN_CHARS
        request = models.ListEventsRequest(run=run.run_id, after=said.seq - 1, limit=2, whole=True)
        whole = await queries.events(session, request)
        assert whole.events[0].data == {"stream": "assistant", "text": long}
        assert whole.events[1].data["input"] == {"text": long}
    with closing(sqlite3.connect(tmp_path / "n.db")) as store:
        sizes = [size for (size,) in store.execute("SELECT length(data) FROM blobs")]
    assert sum(size > len(long) for size in sizes) >= 2


async def test_a_text_beyond_the_journal_limit_is_truncated_and_marked(monkeypatch):
    monkeypatch.setattr("nerve.agents.turn_output.MAX_ENTRY_CHARS", 50)
    long = "x" * 55
    provider = Speaking(AssistantText(long), ToolCall("Write", {"text": long}), TurnFinished("t"))
    _, events = await asked(provider)
    assert events[0][1] == {"stream": "assistant", "text": long[:50], "dropped_characters": 5}
    assert events[1][1]["input"]["dropped_characters"] > 0


async def test_an_answer_beyond_the_limit_is_truncated_and_marked():
    half = "x" * (MAX_OUTPUT_CHARS // 2)
    result, _ = await asked(
        Speaking(AssistantText(half), AssistantText(half), AssistantText("abc"), TurnFinished("t"))
    )
    assert result.output == f"{half}\n\n{half}"
    assert result.attributes["dropped_characters"] == 3


async def test_a_failed_agent_is_an_error_in_a_run_and_not_a_completed_node(session):
    AgentNode("planner", session, ScriptedProvider([RuntimeError("no credit")]))

    async def body(ctx):
        await ctx.run("planner", "Plan")

    Workflow("body", session, body)
    run = await session.start("body")
    with pytest.raises(NodeFailed, match="no credit"):
        await run.wait()
    assert [event.event_type for event in run.events if event.path] == ["node_started", "node_error"]


async def test_a_completed_agent_is_not_queried_again_after_a_restart(tmp_path):
    async def body(ctx):
        plan = await ctx.run("planner", "Plan")
        return [plan["output"], await ctx.gate("Good?")]

    first, second = ScriptedProvider(["a plan"]), ScriptedProvider([])
    async with Session("test", tmp_path / "nerve.db") as session:
        AgentNode("planner", session, first)
        Workflow("body", session, body)
        run = await session.start("body")
        await run.next_gate()
    async with Session("test", tmp_path / "nerve.db") as session:
        AgentNode("planner", session, second)
        Workflow("body", session, body)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await run.wait() == ["a plan", "yes"]
        chunks = [event.data for event in run.events if event.event_type == "output_chunk"]
        assert chunks == [{"stream": "assistant", "text": "a plan"}]
        assert run.view.nodes["/planner"].state == "completed"
    assert second.calls == []


async def test_the_usage_of_an_agent_is_counted(session):
    AgentNode("planner", session, ScriptedProvider([["ok", {"usage": {"tokens": 12, "cost": 0.5}}]]))

    async def body(ctx):
        return (await ctx.run("planner", "Plan"))["output"]

    Workflow("body", session, body)
    run = await session.start("body")
    assert await run.wait() == "ok"
    assert (run.view.usage.tokens, run.view.usage.cost) == (12, 0.5)


def test_an_agent_without_a_provider_is_refused():
    with pytest.raises(ValueError, match="provider must have a query"):
        AgentNode("a")
