"""Threads: which provider resumes which one, and what a fallback is told."""

import asyncio
import time

import pytest

from agents.test_conversation import Agent, saying, says
from core.workflow.support import until, within
from nerve import Session
from nerve.agents import AgentNode, AssistantText, Capabilities, ThreadStarted, TurnFinished, TurnUsage
from spec.support import loaded

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def named(name, *turns, **can):
    agent = Agent(*turns)
    agent.name = name
    agent.capabilities = Capabilities(**{"resume": True, "fork": True, "names_threads": True} | can)
    return agent


def limited(seconds):
    async def refuses(prompt, resume, options):
        yield TurnFinished(resume or options.thread, outcome="limited", resets_at=time.time() + seconds)

    return refuses


def steps(session, *prompts, pause=0.0):
    @session.workflow
    async def body(ctx):
        for prompt in prompts:
            last = await ctx.run("dev", prompt)
            if pause:
                await ctx.sleep(pause)
        return last["attributes"]


async def test_each_provider_resumes_its_own_conversation():
    session = Session()
    first, other = named("first", says, limited(0.2), says), named("other", says)
    AgentNode("dev", session, first, fallback=other)
    steps(session, "one", "two", "three", pause=0.3)
    result = await within((await session.start("body")).wait())
    own = first.calls[0][2].thread
    assert [resume for _, resume, _ in first.calls] == [None, own, own]
    assert [resume for _, resume, _ in other.calls] == [None]
    assert (result["provider"], result["thread"]) == ("first", own)


async def test_the_fallback_resumes_its_own_conversation():
    session = Session()
    first, other = named("first", says, limited(60)), named("other", says)
    AgentNode("dev", session, first, fallback=other)
    steps(session, "one", "two", "three")
    await within((await session.start("body")).wait())
    assert [resume for _, resume, _ in other.calls] == [None, other.calls[0][2].thread]
    assert [prompt for prompt, _, _ in other.calls] == ["two", "three"]


async def test_a_prompt_of_a_file_resumes_the_conversation_of_its_provider():
    first, other = named("first", says, limited(0.2), says), named("other", says)
    session = Session(providers={"first": first, "other": other})
    prompts = [
        {"kind": "prompt", "id": name, "text": name, "provider": "first", "fallback": "other"}
        for name in ("one", "two", "three")
    ]
    pause = {"kind": "bash", "id": "pause", "command": "sleep 0.3"}
    loaded(session, {"kind": "sequence", "steps": [prompts[0], prompts[1], pause, prompts[2]]})
    await within((await session.start("flow")).wait())
    own = first.calls[0][2].thread
    assert [resume for _, resume, _ in first.calls] == [None, own, own]


async def test_a_fallback_gets_the_full_task_if_the_limit_occurs_on_a_retry():
    first = named("first", saying(AssistantText("no json"), TurnFinished("t")), limited(60))
    other = named("other", saying(AssistantText('{"ok": true}'), TurnFinished("u")))
    session = Session()
    AgentNode("dev", session, first, fallback=other, output_schema=SCHEMA)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "Count the frogs."))["output"]

    assert await within((await session.start("body")).wait()) == {"ok": True}
    [(prompt, _, _)] = other.calls
    assert prompt.startswith("Count the frogs.\n\nYour answer does not match the schema")
    assert prompt.count("JSON Schema") == 1


async def test_a_fallback_gets_the_full_task_if_the_limit_occurs_on_a_steering_message():
    started, go = asyncio.Event(), asyncio.Event()

    async def works(prompt, resume, options):
        yield ThreadStarted(options.thread)
        started.set()
        await go.wait()
        yield TurnFinished(options.thread)

    first, other = named("first", works, limited(60)), named("other", says)
    session = Session()
    AgentNode("dev", session, first, fallback=other)
    steps(session, "Count the frogs.")
    run = await session.start("body")
    await within(started.wait())
    await run.steer("And the toads.")
    go.set()
    await within(run.wait())
    [(prompt, _, _)] = other.calls
    assert prompt.startswith("Count the frogs.")
    assert prompt.count("And the toads.") == 1


async def test_an_interrupted_fallback_resumes_its_own_conversation(tmp_path):
    started = asyncio.Event()

    async def hangs(prompt, resume, options):
        yield ThreadStarted(options.thread)
        started.set()
        await asyncio.Event().wait()

    def opened(*agents):
        session = Session(store=tmp_path / "n.db")
        AgentNode("dev", session, agents[0], fallback=agents[1])
        steps(session, "Build it.")
        return session

    cut = named("other", hangs)
    async with opened(named("first", limited(60)), cut) as session:
        await session.start("body")
        await within(started.wait())
    other = named("other", says)
    async with opened(named("first", says), other) as session:
        [run] = await session.recover()
        await within(run.wait())
    [(prompt, resume, options)] = other.calls
    assert resume == options.thread == cut.calls[0][2].thread
    assert prompt.startswith("You were interrupted")
    assert prompt.endswith("Build it.")


class Counting(Agent):
    """Counts a dollar per turn, over the conversation and the one it was forked from."""

    def __init__(self, **can):
        super().__init__(self.answers)
        self.capabilities = Capabilities(**{"resume": True, "fork": True, "names_threads": True} | can)
        self.cost, self.names = {}, 0

    async def answers(self, prompt, resume, options):
        self.names += 1
        thread = resume if resume and not options.fork else options.thread or f"made-{self.names}"
        self.cost[thread] = self.cost.get(resume or thread, 0) + 1.0
        yield ThreadStarted(thread)
        used = TurnUsage(1, 1, cost=self.cost[thread] - options.totals.get("cost", 0))
        yield TurnFinished(thread, used, totals={"cost": self.cost[thread]})


def costs(run):
    return [event.data["cost"] for event in run.events if event.event_type == "usage"]


def logs(run):
    return [event.data["message"] for event in run.events if event.event_type == "log"]


def as_often(session, agent):
    AgentNode("dev", session, agent)

    @session.workflow
    async def body(ctx):
        for number in range(ctx.input):
            last = await ctx.run("dev", str(number))
        return last["attributes"]


@pytest.mark.parametrize("names", [True, False])
async def test_a_forked_run_forks_the_conversation_and_is_charged_for_its_own_turns(names):
    session, agent = Session(), Counting(names_threads=names)
    as_often(session, agent)
    run = await session.start("body", 2)
    original = (await within(run.wait()))["thread"]
    fork = await session.fork(run.run_id, input=4)
    result = await within(fork.wait())
    requests = [(resume, options.fork) for _, resume, options in agent.calls[2:]]
    assert requests == [(original, True), (result["thread"], False)]
    assert result["thread"] != original
    assert costs(fork) == [1.0] * 4
    assert fork.view.usage.cost == 2.0
    assert logs(fork) == []


async def test_a_forked_run_is_not_charged_for_later_turns_of_the_original():
    session, agent = Session(), Counting()
    as_often(session, agent)
    run = await session.start("body", 3)
    original = (await within(run.wait()))["thread"]
    for number in range(2):
        fork = await session.fork(run.run_id, "/dev[2]")
        await within(fork.wait())
        assert costs(fork) == [1.0] * 3
        assert [(resume, options.fork) for _, resume, options in agent.calls[3 + number :]] == [
            (original, True)
        ]
        expected_log = "the conversation continued in the previous run; the fork includes those messages"
        assert logs(fork) == [expected_log]
    again = await session.fork(fork.run_id, "/dev[2]")
    await within(again.wait())
    assert costs(again) == [1.0] * 3


async def test_a_forked_run_starts_a_new_conversation_and_logs_it_if_the_provider_cannot_fork():
    session, agent = Session(), Counting(fork=False)
    AgentNode("dev", session, agent)
    steps(session, "one", "two")
    run = await session.start("body")
    await within(run.wait())
    fork = await session.fork(run.run_id, "/dev[2]")
    await within(fork.wait())
    assert [(resume, options.fork) for _, resume, options in agent.calls[2:]] == [(None, False)]
    assert costs(fork)[-1] == 1.0
    expected_log = (
        "agent cannot fork the conversation of the previous run: "
        "the agent starts without the earlier conversation"
    )
    assert logs(fork) == [expected_log]


async def test_a_forked_run_has_its_own_budget():
    session, agent = Session(), Counting()
    AgentNode("dev", session, agent)
    steps(session, "one", "two")
    run = await session.start("body", limits={"turns": 2})
    await within(run.wait())
    fork = await session.fork(run.run_id, "/dev[2]")
    await within(fork.wait())
    assert fork.view.usage.turns == 1


async def test_a_fork_has_its_thread_id_on_disk_before_it_starts(tmp_path):
    seen = []

    async def look(prompt, resume, options):
        rows = session.engine.store.events(run.run_id)
        seen.append([row.data for row in rows if row.type == "agent_thread"][-1])
        thread = options.thread or resume
        yield ThreadStarted(thread)
        yield TurnFinished(thread)

    async with Session(store=tmp_path / "n.db") as session:
        agent = named("agent", look)
        AgentNode("dev", session, agent, thread="fork")
        steps(session, "one", "two")
        run = await session.start("body")
        result = await within(run.wait())
    (_, _, first), (_, resume, second) = agent.calls
    assert (resume, second.fork) == (first.thread, True)
    assert result["thread"] == second.thread != first.thread
    assert second.thread in seen[1]


async def test_a_fork_interrupted_before_it_existed_is_forked_again(tmp_path):
    queried = asyncio.Event()

    async def hangs(prompt, resume, options):
        queried.set()
        await asyncio.Event().wait()
        yield ThreadStarted(options.thread)

    def opened(agent):
        session = Session(store=tmp_path / "n.db")
        AgentNode("dev", session, agent, thread="fork")
        steps(session, "one", "two")
        return session

    first, second = named("agent", says, hangs), named("agent", says)
    async with opened(first) as session:
        await session.start("body")
        await within(queried.wait())
    async with opened(second) as session:
        [run] = await session.recover()
        await within(run.wait())
        assert run.view.usage.turns == 3
    [(_, resume, options)] = second.calls
    assert (resume, options.fork) == (first.calls[0][2].thread, True)


@pytest.mark.parametrize(
    "usage",
    [
        TurnUsage(0, 0, 0, 0, cost=0.0, model="m"),
        TurnUsage(model="m"),
        {"input_tokens": 0, "output_tokens": 0},
        None,
    ],
)
async def test_a_refused_turn_does_not_count_whatever_usage_it_reports(usage):
    session = Session()
    agent = Agent(saying(TurnFinished("t", usage, outcome="limited", resets_at=time.time() + 0.1)), says)
    AgentNode("dev", session, agent, limits={"turns": 1})
    steps(session, "one")
    run = await session.start("body", limits={"turns": 1})
    result = await within(run.wait())
    assert result["usage"]["turns"] == run.view.usage.turns == 1
    assert [event.data for event in run.events if event.event_type == "usage"] == []


async def test_a_turn_limited_after_its_first_output_is_charged():
    session = Session()
    half = (
        AssistantText("I"),
        TurnUsage(10, 1),
        TurnFinished("t", outcome="limited", resets_at=time.time() + 0.1),
    )
    AgentNode("dev", session, Agent(saying(*half), says))
    steps(session, "one")
    run = await session.start("body")
    assert (await within(run.wait()))["usage"]["turns"] == 2
    await until(lambda: run.is_complete)
