"""Conversations with an agent: resuming, structured answers, permissions, limits, and restarts."""

import asyncio
import time

import pytest

from core.workflow.support import until, within
from nerve import ExecutionContext, Retry, Session
from nerve.agents import (
    AgentNode,
    AssistantText,
    Capabilities,
    PermissionRequest,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
)
from nerve.agents.provider import AgentEnded
from nerve.agents.turn_output import MAX_OUTPUT_CHARS, MAX_TOOL_PART_CHARS, PARTIAL_INTERVAL_S
from nerve.errors import NodeFailed
from nerve.process import child_env
from nerve.process.orphans import find_orphans
from nerve.testing import ScriptedProvider
from nerve.ui.event_lines import format_event

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


class Agent:
    """A provider whose turns are functions of (prompt, resume, options) that yield chunks."""

    name = "agent"
    capabilities = Capabilities(resume=True, fork=True, names_threads=True, permissions=True)

    def __init__(self, *turns):
        self.turns, self.calls = list(turns), []

    async def query(self, prompt, cwd, resume, options):
        self.calls.append((prompt, resume, options))
        turn = self.turns[min(len(self.calls), len(self.turns)) - 1]
        async for chunk in turn(prompt, resume, options):
            yield chunk


async def says(prompt, resume, options):
    yield AssistantText("fine")
    yield TurnFinished(resume or options.thread or "t")


def saying(*chunks):
    async def turn(prompt, resume, options):
        for chunk in chunks:
            yield chunk

    return turn


async def executed(node, given="Do it"):
    return await node.execute(ExecutionContext(input=given))


async def test_calls_of_one_agent_share_a_conversation():
    session = Session()
    agent = Agent(says)
    AgentNode("dev", session, agent)

    @session.workflow
    async def twice(ctx):
        await ctx.run("dev", "one")
        await ctx.run("dev", "two")

    await (await session.start("twice")).wait()
    (_, first, options), (_, second, _) = agent.calls
    assert first is None
    assert second == options.thread


async def test_a_fresh_agent_starts_a_new_conversation_and_a_forking_one_copies_it():
    session = Session()
    fresh, forking = Agent(says), Agent(says)
    AgentNode("fresh", session, fresh, thread="fresh")
    AgentNode("forking", session, forking, thread="fork")

    @session.workflow
    async def twice(ctx):
        for name in ("fresh", "forking"):
            await ctx.run(name, "one")
            await ctx.run(name, "two")

    await (await session.start("twice")).wait()
    assert [resume for _, resume, _ in fresh.calls] == [None, None]
    assert [options.fork for _, _, options in forking.calls] == [False, True]


async def test_the_thread_id_is_on_disk_before_the_conversation_starts(tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        seen = []

        async def look(prompt, resume, options):
            rows = session.engine.store.events(run.run_id)
            seen.extend(row.data for row in rows if row.type == "agent_thread")
            yield TurnFinished(options.thread)

        AgentNode("dev", session, Agent(look))

        @session.workflow
        async def body(ctx):
            await asyncio.sleep(0)
            return (await ctx.run("dev", "x"))["attributes"]["thread"]

        run = await session.start("body")
        thread = await run.wait()
        assert len(seen) == 1
        assert thread in seen[0]


async def test_an_interrupted_step_resumes_its_own_conversation_after_a_restart(tmp_path):
    started = asyncio.Event()

    async def hangs(prompt, resume, options):
        yield ThreadStarted(options.thread)
        started.set()
        await asyncio.Event().wait()

    def register(session, agent):
        AgentNode("dev", session, agent)

        @session.workflow
        async def body(ctx):
            return (await ctx.run("dev", "Build it"))["output"]

    first, second = Agent(hangs), Agent(says)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, first)
        await session.start("body")
        await within(started.wait())
    async with Session(store=tmp_path / "n.db") as session:
        register(session, second)
        [run] = await session.recover()
        assert await within(run.wait()) == "fine"
    prompt, resume, _ = second.calls[0]
    assert resume == first.calls[0][2].thread
    assert prompt.startswith("You were interrupted")
    assert "Build it" in prompt


async def test_an_answer_that_does_not_match_the_schema_is_retried_with_the_problem():
    provider = ScriptedProvider(["no json", '{"ok": 1}', '```json\n{"ok": true}\n```'])
    node = AgentNode("judge", provider=provider, output_schema=SCHEMA)
    result = await executed(node)
    assert result.output == {"ok": True}
    prompts = [call.prompt for call in node.provider.calls]
    assert "JSON Schema" in prompts[0]
    assert "is not JSON" in prompts[1]
    assert "1 is not of type 'boolean' at ['ok']" in prompts[2]


async def test_an_answer_that_never_matches_fails_after_three_attempts():
    node = AgentNode("judge", provider=ScriptedProvider(lambda call: "nope"), output_schema=SCHEMA)
    result = await executed(node)
    assert (result.success, result.error_type) == (False, "SchemaMismatch")
    assert len(node.provider.calls) == 3


async def test_an_answer_that_is_nested_too_deep_is_retried() -> None:
    provider = ScriptedProvider(["[" * 300 + "]" * 300, "[1]"])
    result = await executed(AgentNode("judge", provider=provider, output_schema={"type": "array"}))
    assert result.output == [1]
    assert "more than 100 levels of nesting" in provider.calls[1].prompt


def test_an_invalid_schema_is_refused():
    with pytest.raises(ValueError, match="output_schema is not a valid JSON Schema"):
        AgentNode("judge", provider=ScriptedProvider([]), output_schema={"type": "nonsense"})


async def asking(prompt, resume, options):
    decision = await options.ask(PermissionRequest("Bash", {"command": "rm -rf build"}, "to clean up"))
    yield AssistantText(f"{decision.allow} {decision.message}".strip())
    yield TurnFinished(options.thread)


@pytest.mark.parametrize(
    ("permissions", "said"),
    [
        ({"allow": ["Bash(rm *)"]}, "True"),
        ({"deny": ["Bash"], "allow": ["*"]}, "False the workflow does not allow it: it denies Bash"),
        ({"otherwise": "deny"}, "False the workflow does not allow it"),
    ],
)
async def test_permissions_decide_by_pattern(permissions, said):
    node = AgentNode("dev", provider=Agent(asking), permissions=permissions)
    assert (await executed(node)).output == said


async def test_a_permission_request_opens_a_gate_that_shows_exactly_what_will_run():
    session = Session()
    AgentNode("dev", session, Agent(asking))

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "x"))["output"]

    run = await session.start("body")
    gate = await within(run.next_gate())
    assert "rm -rf build" in gate.prompt
    assert gate.choices == ["allow", "deny"]
    event = next(event for event in run.events if event.event_type == "gate_waiting")
    assert event.data["action"]["input"] == {"command": "rm -rf build"}
    assert len(event.data["action"]["hash"]) == 64
    await run.answer("allow")
    assert await within(run.wait()) == "True"


async def test_a_gate_opened_by_an_agent_reopens_after_a_restart(tmp_path):
    def register(session):
        AgentNode("dev", session, Agent(asking))

        @session.workflow
        async def body(ctx):
            return (await ctx.run("dev", "x"))["output"]

    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        run = await session.start("body")
        await within(run.next_gate())
    async with Session(store=tmp_path / "n.db") as session:
        register(session)
        [run] = await session.recover()
        assert [gate.path for gate in run.pending_gates] in (
            [],
            ["/dev/permission[2]"],
        )  # never the first one
        await until(lambda: [gate.path for gate in run.pending_gates] == ["/dev/permission[2]"])
        await run.answer("deny")
        assert await within(run.wait()) == "False a person denied permission"


async def test_an_agent_that_failed_or_was_interrupted_is_never_a_success():
    for outcome, kind in (("failed", "AgentFailed"), ("interrupted", "Interrupted")):
        node = AgentNode(
            "dev",
            provider=Agent(saying(AssistantText("half"), TurnFinished("t", outcome=outcome, error="why"))),
        )
        result = await executed(node)
        assert (result.success, result.error_type, result.error, result.output) == (
            False,
            kind,
            "why",
            "half",
        )


async def test_a_rate_limit_blocks_all_steps_of_the_provider_until_it_ends():
    session = Session()
    soon = time.time() + 0.2
    agent = Agent(saying(TurnFinished("t", outcome="limited", resets_at=soon)), says)
    AgentNode("one", session, agent, workspace="shared")
    AgentNode("two", session, agent, workspace="shared")

    @session.workflow
    async def body(ctx):
        return (await ctx.run(ctx.input, "x"))["output"]

    first = await session.start("body", "one")
    await until(lambda: session.provider_slots.rate_limits.limited)
    second = await session.start("body", "two")
    assert await within(first.wait()) == "fine"
    assert await within(second.wait()) == "fine"
    assert time.time() >= soon
    reported = [
        event.data
        for run in (first, second)
        for event in run.events
        if event.event_type == "provider_limited"
    ]
    assert [data["provider"] for data in reported] == ["agent", "agent"]
    assert reported[0]["message"].startswith("held: agent limit until ")
    assert session.provider_slots.rate_limits.limited == {}


async def test_the_fallback_is_used_while_the_provider_is_limited():
    limited = Agent(saying(TurnFinished("t", outcome="limited", resets_at=time.time() + 60)))
    node = AgentNode("dev", provider=limited, fallback=ScriptedProvider(["from the other"]))
    result = await executed(node)
    assert (result.output, result.attributes["provider"]) == ("from the other", "scripted")


async def test_concurrent_agents_never_exceed_the_slots():
    session = Session(slots={"agent": 2})
    working, most = 0, 0

    async def counts(prompt, resume, options):
        nonlocal working, most
        working += 1
        most = max(most, working)
        for _ in range(5):
            await asyncio.sleep(0)
        working -= 1
        yield TurnFinished(options.thread)

    AgentNode("dev", session, Agent(counts), thread="fresh", workspace="shared")

    @session.workflow
    async def body(ctx):
        await ctx.run_parallel([("dev", str(n)) for n in range(6)])

    await within((await session.start("body")).wait())
    assert most == 2


async def test_usage_shows_whether_its_cost_is_reported_or_unknown():
    turn = saying(TurnFinished("t", TurnUsage(10, 5, 2, 1, cost=0.5, model="m")))
    result = await executed(AgentNode("dev", provider=Agent(turn)))
    assert result.attributes["usage"] == {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_tokens": 2,
        "cache_write_tokens": 1,
        "cost": 0.5,
        "model": "m",
        "cost_source": "reported",
        "turns": 1,
        "agents": 1,
    }
    unknown = saying(TurnFinished("t", TurnUsage(10, 5, model="a-model-of-ours")))
    result = await executed(AgentNode("dev", provider=Agent(unknown)))
    assert result.attributes["usage"]["cost_source"] == "unknown"
    assert "cost" not in result.attributes["usage"]


async def test_conversation_totals_are_passed_to_the_next_turn(tmp_path):
    async def counting(prompt, resume, options):
        yield TurnFinished(resume or options.thread, totals={"cost": options.totals.get("cost", 0) + 1})

    def register(session, agent):
        AgentNode("dev", session, agent)

        @session.workflow
        async def body(ctx):
            await ctx.run("dev", "one")
            await ctx.gate("go on?")
            await ctx.run("dev", "two")

    async with Session(store=tmp_path / "n.db") as session:
        register(session, Agent(counting))
        run = await session.start("body")
        await within(run.next_gate())
    agent = Agent(counting)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, agent)
        [run] = await session.recover()
        await run.answer("yes")
        await within(run.wait())
    assert agent.calls[0][2].totals == {"cost": 1}


async def test_a_provider_can_be_named_and_an_unknown_one_lists_the_available_ones():
    session = Session(providers={"claude": ScriptedProvider(["hi"])})
    node = AgentNode("dev", session, "claude")
    assert (await node.execute(ExecutionContext(session, "x"))).output == "hi"
    result = await AgentNode("other", session, "clod").execute(ExecutionContext(session, "x"))
    assert "Unknown provider 'clod'. Available: acp, claude, codex," in result.error


async def spending(session, times=3):
    AgentNode("dev", session, Agent(saying(TurnFinished("t", TurnUsage(10, 5, cost=0.5)))), thread="fresh")

    @session.workflow
    async def body(ctx):
        for _ in range(times):
            await ctx.run("dev", "x")
        return "done"


@pytest.mark.parametrize(
    ("budget", "raised"),
    [
        ({"turns": 2}, {"turns": 3}),
        ({"agents": 2}, {"agents": 9}),
        ({"tokens": 30}, {"tokens": 99}),
        ({"cost": 1}, {"cost": 2}),
    ],
)
async def test_an_exhausted_budget_holds_the_run_and_raising_it_resumes(budget, raised):
    session = Session()
    await spending(session)
    run = await session.start("body", limits=budget)
    await until(lambda: run.held is not None)
    name = next(iter(budget))
    assert run.held["message"].startswith("Run budget exhausted: ")
    assert f" {'USD' if name == 'cost' else name}. Raise it with " in run.held["message"]
    await run.resume(limits=raised)
    assert await within(run.wait()) == "done"


async def test_the_daily_budget_holds_every_run_even_after_a_restart(tmp_path):
    async with Session(store=tmp_path / "n.db", budget={"cost": 1}) as session:
        await spending(session, times=2)
        assert await within((await session.start("body")).wait()) == "done"
        run = await session.start("body")
        await until(lambda: run.held is not None)
        assert "Daily session budget exhausted: 1 of 1 USD" in run.held["message"]
    async with Session(store=tmp_path / "n.db", budget={"cost": 1}) as session:
        await spending(session, times=2)
        other = await session.start("body")
        await until(lambda: other.held is not None)
        session.budget = {"cost": 5}
        await other.resume()
        assert await within(other.wait()) == "done"


async def test_child_runs_spend_the_rest_of_their_parents_budget():
    session = Session()
    await spending(session, times=2)

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("body")
        return await ctx.run_workflow("body")

    run = await session.start("parent", limits={"turns": 3})
    await until(lambda: run.held is not None)
    assert "3 of 3 turns" in run.held["message"]
    assert (run.held["purse"], run.held["path"]) == (run.run_id, "/dev[2]")
    assert run.held["run_id"] != run.run_id


async def test_an_agent_can_ask_a_person():
    async def asks(prompt, resume, options):
        answer = await options.host_tools["ask_human"].call({"question": "Which one?", "choices": ["a", "b"]})
        yield AssistantText(f"they said {answer}")
        yield TurnFinished(options.thread)

    session = Session()
    agent = Agent(asks)
    agent.capabilities = Capabilities(names_threads=True, host_tools=True)
    AgentNode("dev", session, agent)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "x"))["output"]

    run = await session.start("body")
    gate = await within(run.next_gate())
    assert (gate.prompt, gate.choices) == ("dev asks:\n\nWhich one?", ["a", "b"])
    await run.answer("b")
    assert await within(run.wait()) == "they said b"


async def test_a_retried_step_resumes_its_conversation_and_counts_every_turn_once():
    async def crashes(prompt, resume, options):
        yield ThreadStarted(options.thread)
        raise ConnectionError("the program was killed")

    async def fails(prompt, resume, options):
        yield TurnFinished(resume, TurnUsage(10, 5), outcome="failed", error="busy", totals={"cost": 1})

    async def ends(prompt, resume, options):
        assert options.totals == {"cost": 1}
        yield AssistantText("fine")
        yield TurnFinished(resume, TurnUsage(20, 7), totals={"cost": 3})

    session = Session()
    agent = Agent(crashes, fails, ends)
    AgentNode("dev", session, agent, retry=Retry(attempts=5, delay=0))

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "Build it"))["attributes"]

    result = await within((await session.start("body")).wait())
    (_, first, options), (prompt, second, _), (_, third, _) = agent.calls
    assert (first, second, third) == (None, options.thread, options.thread)
    assert prompt.startswith("You were interrupted")
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (30, 12)
    assert result["thread"] == options.thread


async def test_a_later_step_of_an_interrupted_conversation_tells_the_agent(tmp_path):
    started = asyncio.Event()

    async def hangs(prompt, resume, options):
        started.set()
        await asyncio.Event().wait()
        yield TurnFinished(resume)

    def register(session, agent):
        AgentNode("dev", session, agent)

        @session.workflow
        async def body(ctx):
            await ctx.run("dev", "one")
            return (await ctx.run("dev", "two"))["output"]

    first, second = Agent(says, hangs), Agent(says)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, first)
        await session.start("body")
        await within(started.wait())
    async with Session(store=tmp_path / "n.db") as session:
        register(session, second)
        [run] = await session.recover()
        assert await within(run.wait()) == "fine"
    [(prompt, resume, options)] = second.calls
    assert resume == options.thread == first.calls[0][2].thread
    assert prompt.startswith("You were interrupted")
    assert prompt.endswith("two")


async def test_an_interrupted_fork_is_resumed_and_not_forked_again(tmp_path):
    started = asyncio.Event()

    async def hangs(prompt, resume, options):
        yield ThreadStarted("the-copy")
        started.set()
        await asyncio.Event().wait()

    def register(session, agent):
        AgentNode("dev", session, agent, thread="fork")

        @session.workflow
        async def body(ctx):
            await ctx.run("dev", "one")
            return (await ctx.run("dev", "two"))["output"]

    first, second = Agent(says, hangs), Agent(says)
    async with Session(store=tmp_path / "n.db") as session:
        register(session, first)
        await session.start("body")
        await within(started.wait())
    async with Session(store=tmp_path / "n.db") as session:
        register(session, second)
        [run] = await session.recover()
        await within(run.wait())
    assert [options.fork for _, _, options in first.calls] == [False, True]
    assert [(resume, options.fork) for _, resume, options in second.calls] == [("the-copy", False)]


async def test_an_agent_without_conversations_gets_the_full_prompt_each_time():
    session = Session()
    agent = Agent(
        says,
        saying(AssistantText("no json"), TurnFinished("t")),
        saying(AssistantText('{"ok": true}'), TurnFinished("t")),
    )
    agent.capabilities = Capabilities()
    AgentNode("dev", session, agent)
    AgentNode("judge", session, agent, output_schema=SCHEMA)

    @session.workflow
    async def body(ctx):
        await ctx.run("dev", "one")
        await ctx.run("judge", "Is it good?")
        return (await ctx.run("dev", "two"))["output"]

    run = await session.start("body")
    await within(run.wait())
    assert [resume for _, resume, _ in agent.calls] == [None] * 4
    assert agent.calls[2][0].startswith("Is it good?\n\nYour answer does not match the schema")
    assert [event.data["message"] for event in run.events if event.event_type == "log"] == [
        "agent does not store conversations: the agent starts without the earlier conversation"
    ]


async def test_an_agent_that_waits_for_a_person_releases_its_slot():
    session = Session(slots={"agent": 1})
    AgentNode("asks", session, Agent(asking))
    AgentNode("works", session, Agent(says))

    @session.workflow
    async def body(ctx):
        return (await ctx.run(ctx.input, "x"))["output"]

    waiting = await session.start("body", "asks")
    await within(waiting.next_gate())
    working = await session.start("body", "works")
    assert await within(working.wait()) == "fine"
    await waiting.answer("allow")
    assert await within(waiting.wait()) == "True"


async def test_partial_messages_are_throttled_and_the_full_message_is_emitted():
    pieces = [AssistantText(str(n), partial=True) for n in range(500)]
    session = Session()
    AgentNode("dev", session, Agent(saying(*pieces, AssistantText("all of it"), TurnFinished("t"))))

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "x"))["output"]

    run = await session.start("body")
    assert await within(run.wait()) == "all of it"
    streams = [event.data["stream"] for event in run.events if event.event_type == "output_chunk"]
    assert streams[-1] == "assistant"
    assert 1 <= streams.count("partial") < 50


async def test_a_conversation_is_not_resumed_while_an_orphan_agent_is_running():
    session = Session()
    agent = Agent(says)
    AgentNode("dev", session, agent)

    @session.workflow
    async def twice(ctx):
        await ctx.run("dev", "one")
        return (await ctx.run("dev", "two"))["output"]

    orphan = await asyncio.create_subprocess_exec("sleep", "600", env=child_env({"NERVE_OWNER": "1.nobody"}))
    try:
        await until(lambda: str(orphan.pid) in find_orphans())
        run = await session.start("twice")
        await until(lambda: agent.calls)
        done, _ = await asyncio.wait([waiting := asyncio.ensure_future(run.wait())], timeout=0.2)
        assert not done
        assert [prompt for prompt, _, _ in agent.calls] == ["one"]
    finally:
        orphan.kill()
        await orphan.wait()
    assert await within(waiting) == "fine"


def in_workflow(session, agent, **settings):
    AgentNode("dev", session, agent, **settings)

    @session.workflow
    async def body(ctx):
        return await ctx.run("dev", "x")


async def test_parts_of_a_message_are_emitted_although_the_agent_pauses():
    paused, goes_on = asyncio.Event(), asyncio.Event()

    async def pausing(prompt, resume, options):
        yield AssistantText("one ", partial=True)
        yield AssistantText("two", partial=True)
        paused.set()
        await goes_on.wait()
        yield AssistantText("one two")
        yield TurnFinished("t")

    session = Session()
    in_workflow(session, Agent(pausing))
    run = await session.start("body")

    def partial_text():
        chunks = [event.data for event in run.events if event.event_type == "output_chunk"]
        return "".join(data["text"] for data in chunks if data["stream"] == "partial")

    await until(lambda: partial_text() == "one two")
    goes_on.set()
    await within(run.wait())


async def test_the_output_of_a_chatty_tool_makes_few_events_without_secrets(monkeypatch):
    monkeypatch.setenv("STUB_TOKEN", secret := "heron-and-stork-0815")
    halves = [ToolUpdate("1", "running", secret[:7]), ToolUpdate("1", "running", secret[7:])]
    lines = [ToolUpdate("1", "running", f"{number}\n") for number in range(100_000)]
    done = [ToolUpdate("1", "completed", "all of it"), AssistantText("counted"), TurnFinished("t")]
    session = Session()
    in_workflow(session, Agent(saying(ToolCall("shell", {}, "1"), *halves, *lines, *halves, *done)))
    began = time.monotonic()
    run = await session.start("body")
    await within(run.wait())
    most = 2 + (time.monotonic() - began) / PARTIAL_INTERVAL_S
    updates = [event.data for event in run.events if event.event_type == "tool_call"][1:]
    running = [data for data in updates if data["status"] == "running"]
    assert 1 <= len(running) <= most
    assert all(len(data["text"]) <= MAX_TOOL_PART_CHARS for data in running)
    assert updates[-1] == {"id": "1", "status": "completed", "text": "all of it"}
    assert secret not in str([event.data for event in run.events])


async def test_an_agent_that_is_killed_keeps_the_message_it_was_writing():
    async def killed(prompt, resume, options):
        yield ThreadStarted("t")
        yield AssistantText("The heron ", partial=True)
        yield AssistantText("stands in", partial=True)
        raise AgentEnded("claude ended during its turn")

    session = Session()
    in_workflow(session, Agent(killed))
    run = await session.start("body")
    with pytest.raises(NodeFailed, match=r"ended during its turn. It had written: …The heron stands in"):
        await within(run.wait())
    chunks = [event.data for event in run.events if event.event_type == "output_chunk"]
    assert chunks[-1] == {"stream": "assistant", "text": "The heron stands in"}


@pytest.mark.parametrize(
    ("chunks", "words"), [([], "It had not written anything."), ([AssistantText("yes")], "its last message")]
)
async def test_the_error_of_a_killed_agent_says_if_it_had_written_something(chunks, words):
    result = await executed(AgentNode("dev", provider=Agent(saying(*chunks))))
    assert result.error_type == "AgentEnded"
    assert words in result.error


async def test_an_answer_that_is_too_long_is_shortened_with_a_warning():
    session = Session()
    in_workflow(session, Agent(saying(AssistantText("x" * (MAX_OUTPUT_CHARS + 5)), TurnFinished("t"))))
    run = await session.start("body")
    result = await within(run.wait())
    assert len(result["output"]) == MAX_OUTPUT_CHARS
    [log] = [event.data for event in run.events if event.event_type == "log"]
    assert (log["level"], "longer than 1,000,000 characters" in log["message"]) == ("warning", True)


async def test_the_line_of_a_step_names_the_provider_that_has_answered():
    session = Session()
    full = Agent(saying(TurnFinished("t", outcome="limited", error="Too many requests")))
    in_workflow(session, full, fallback=ScriptedProvider(["from the other"]))
    run = await session.start("body")
    await within(run.wait())
    lines = [line for event in run.events if (line := format_event(event))]
    assert any("✓ from the other (scripted instead of agent, " in line for line in lines)
    assert any(line.endswith(": Too many requests") for line in lines)


@pytest.mark.parametrize(
    ("on_idle", "written", "expected"),
    [
        (
            "finish",
            [AssistantText("half"), AssistantText(" an answer", partial=True)],
            (True, "half\n\n an answer"),
        ),
        ("finish", [], (True, "")),
        ("finish_with_text", [AssistantText("half")], (True, "half")),
        ("finish_with_text", [], (False, "TimeoutError")),
        ("fail", [AssistantText("half")], (False, "TimeoutError")),
    ],
)
async def test_what_a_silent_agent_has_written_can_be_its_answer(on_idle, written, expected):
    is_closed = False

    async def fall_silent(prompt, resume, options):
        nonlocal is_closed
        try:
            for chunk in written:
                yield chunk
            await asyncio.Event().wait()
        finally:
            is_closed = True

    session = Session()
    AgentNode("dev", session, Agent(fall_silent), idle_timeout=0.2)

    @session.workflow
    async def body(ctx):
        try:
            return [True, (await ctx.run("dev", {"prompt": "Do it", "on_idle": on_idle})).output]
        except TimeoutError as error:
            return [False, type(error).__name__]

    run = await session.start("body")
    assert tuple(await within(run.wait())) == expected
    assert is_closed


@pytest.mark.parametrize("ending", ["cancel", "timeout"])
async def test_only_silence_ends_a_turn_early(ending):
    async def fall_silent(prompt, resume, options):
        yield AssistantText("half")
        await asyncio.Event().wait()

    timeouts = {"timeout": 0.2, "idle_timeout": 60} if ending == "timeout" else {"idle_timeout": 60}
    session = Session()
    AgentNode("dev", session, Agent(fall_silent), **timeouts)

    @session.workflow
    async def body(ctx):
        return await ctx.run("dev", {"prompt": "Do it", "on_idle": "finish"})

    run = await session.start("body")
    if ending == "cancel":
        await until(lambda: any(event.event_type == "output_chunk" for event in run.events))
        await run.cancel()
    with pytest.raises((Exception, asyncio.CancelledError)):
        await within(run.wait())
    assert run.state.value == ("cancelled" if ending == "cancel" else "failed")
