"""Steering: user messages to a running agent."""

import asyncio

import pytest

from agents.test_conversation import Agent, says
from core.workflow.support import until, within
from nerve import FunctionNode, Session
from nerve.agents import AgentNode, AssistantText, Capabilities, ThreadStarted, TurnFinished
from nerve.api import Api
from nerve.client import Client


class Working:
    """Turns that end when the test releases them; messages received during a turn are part of its answer."""

    name = "working"

    def __init__(self, **can):
        self.capabilities = Capabilities(**can)
        self.prompts, self.go = [], asyncio.Event()

    async def query(self, prompt, cwd, resume, options):
        self.prompts.append(prompt)
        yield ThreadStarted("t")
        heard = (
            [await options.steering.get()] if options.steering is not None and len(self.prompts) == 1 else []
        )
        await self.go.wait()
        yield AssistantText(f"{prompt}, {heard}")
        yield TurnFinished("t")


async def started(agent):
    session = Session()
    AgentNode("dev", session, agent)

    @session.workflow
    async def body(ctx):
        return (await ctx.run("dev", "Build it"))["output"]

    run = await session.start("body")
    await until(lambda: agent.prompts)
    return session, run


async def test_a_provider_that_can_steer_receives_a_message_during_its_turn():
    agent = Working(resume=True, steer=True)
    _, run = await started(agent)
    assert await run.steer("Use tabs", by="kim") == "/dev"
    agent.go.set()
    assert await within(run.wait()) == "Build it, ['Use tabs']"
    [event] = [event for event in run.events if event.event_type == "steered"]
    assert (event.path, event.data) == ("/dev", {"text": "Use tabs", "by": "kim"})


async def test_other_providers_receive_a_message_in_the_next_turn_of_the_step():
    agent = Working(resume=True)
    _, run = await started(agent)
    await run.steer("Use tabs")
    await run.steer("And no semicolons", "/dev")
    agent.go.set()
    assert await within(run.wait()) == "Use tabs\n\nAnd no semicolons, []"
    assert agent.prompts == ["Build it", "Use tabs\n\nAnd no semicolons"]
    assert run.view.usage.turns == 2


async def test_an_agent_without_conversations_rejects_steering():
    agent = Working()
    _, run = await started(agent)
    with pytest.raises(RuntimeError, match="steps with a listening agent: none"):
        await run.steer("Use tabs")
    agent.go.set()
    await within(run.wait())


async def test_steering_a_finished_step_or_a_non_agent_is_refused():
    session, go = Session(), asyncio.Event()

    async def work(context):
        await go.wait()

    FunctionNode("work", session, work)
    AgentNode("dev", session, Agent(says))

    @session.workflow
    async def body(ctx):
        await ctx.run("dev", "x")
        await ctx.run("work")

    run = await session.start("body")
    await until(lambda: "/work" in run.view.nodes)
    for path in (None, "/work", "/dev"):
        with pytest.raises(RuntimeError, match="Cannot steer"):
            await run.steer("Use tabs", path)
    go.set()
    await within(run.wait())
    with pytest.raises(RuntimeError, match="Cannot steer the run"):
        await run.steer("Use tabs")


async def test_the_api_steers_once_per_key():
    agent = Working(resume=True)
    session, run = await started(agent)
    for _ in range(2):
        reply = await Client(Api(session)).steer(run=run.run_id, text="Use tabs", key="k")
        assert (reply.path, reply.text) == ("/dev", "Use tabs")
    agent.go.set()
    assert await within(run.wait()) == "Use tabs, []"


async def test_a_message_at_the_end_of_a_turn_is_received(monkeypatch: pytest.MonkeyPatch):
    agent = Working(resume=True)
    session, run = await started(agent)
    journal = session.engine.executors[run.run_id].journal
    written_upto = journal.wait_durable

    async def slowly(seq):
        agent.go.set()
        for _ in range(100):
            await asyncio.sleep(0)
        await written_upto(seq)

    monkeypatch.setattr(journal, "wait_durable", slowly)
    await run.steer("Use tabs")
    await within(run.wait())
    assert agent.prompts == ["Build it", "Use tabs"]


async def test_an_agent_receives_a_message_when_it_is_on_disk(monkeypatch: pytest.MonkeyPatch):
    agent = Working(resume=True, steer=True)
    session, run = await started(agent)
    executor = session.engine.executors[run.run_id]
    queue = executor.call_runner.running_leaves["/dev"].steering
    received, is_written, put_nowait = [], asyncio.Event(), queue.put_nowait
    written_upto = executor.journal.wait_durable

    async def later(seq):
        await is_written.wait()
        await written_upto(seq)

    monkeypatch.setattr(queue, "put_nowait", lambda text: (received.append(text), put_nowait(text)))
    monkeypatch.setattr(executor.journal, "wait_durable", later)
    steering = asyncio.ensure_future(run.steer("Use tabs"))
    # It may be written before anyone looks; the agent gets it only when the engine knows that.
    await until(
        lambda: (
            "steered"
            in {
                *(recorded.type for recorded in executor.journal.pending_rows),
                *(event.event_type for event in run.events),
            }
        )
    )
    assert received == []
    is_written.set()
    await steering
    assert received == ["Use tabs"]
    agent.go.set()
    await within(run.wait())


async def test_messages_before_a_crash_are_repeated_after_it(tmp_path):
    def session_with(agent):
        session = Session(store=tmp_path / "n.db")
        AgentNode("dev", session, agent)

        @session.workflow
        async def body(ctx):
            return (await ctx.run("dev", "Build it"))["output"]

        return session

    first, second = Working(resume=True), Working(resume=True)
    async with session_with(first) as session:
        run = await session.start("body")
        await until(lambda: first.prompts)
        await run.steer("Use tabs")
        await run.steer("No semicolons")
    second.go.set()
    async with session_with(second) as session:
        [run] = await session.recover()
        await within(run.wait())
    [prompt] = second.prompts
    assert prompt.startswith("You were interrupted")
    expected_prompt = (
        "Build it\n\nWhile you worked on it, you also received these messages:\n\nUse tabs\n\nNo semicolons"
    )
    assert prompt.endswith(expected_prompt)
