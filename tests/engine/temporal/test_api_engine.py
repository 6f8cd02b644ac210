"""API servers whose runs a Temporal cluster executes: each of them starts, shows and commands all runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import (
    open_server,
    open_servers,
    open_workers,
    wait_for_end,
    wait_for_gate,
    wait_for_run,
)
from nerve import FunctionNode, Session, WorkflowContext
from nerve.api import Api, ApiError
from nerve.api.callers import Caller
from nerve.api.conversation import ConversationMessage, conversation_messages, handle_message
from nerve.engine.temporal import api_engine
from nerve.errors import StoreInUse
from nerve.store.postgres import PostgresStore


def register(session: Session) -> None:
    async def double(context: Any) -> int:
        return int(context.input) * 2

    FunctionNode("double", session, double)

    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        doubled = (await ctx.run("double", ctx.input))["output"]
        return [doubled, await ctx.gate("Continue?", choices=["yes", "no"])]

    @session.workflow
    async def talk(ctx: WorkflowContext) -> int:
        total = 0

        async def add(number: int) -> int:
            nonlocal total
            total += number
            return total

        ctx.query("total", lambda: total)
        ctx.update("add", add)
        await ctx.receive("end")
        return total

    @session.workflow
    async def outer(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("ask", 4)


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    """The APIs of two servers."""
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        yield apis


async def test_a_run_is_started_at_one_server_and_answered_at_another(servers: list[Api]) -> None:
    first, second = servers
    person = second.as_caller(Caller("token:admin", "http", "admin"))

    async def watch(run_id: str) -> list[int]:
        return [event.seq async for event in second.hub.watch(run_id)]

    run = await first.start(workflow="ask", input=21, key="k", wait=True)
    assert (run.state, run.gates[0].prompt) == ("waiting", "Continue?")
    watching = asyncio.create_task(watch(run.run_id))
    assert (await second.start(workflow="ask", input=21, key="k")).run_id == run.run_id
    assert [gate.run_id for gate in (await second.gates()).gates] == [run.run_id]
    with pytest.raises(ApiError, match="yes"):
        await person.answer(run=run.run_id, answer="perhaps")
    answered = await person.answer(run=run.run_id, answer="yes", key="a")
    assert (answered.answer, answered.by) == ("yes", "token:admin")
    assert (await first.answer(run=run.run_id, answer="yes", key="a")).by == "token:admin"
    ended = await wait_for_end(first, run.run_id)
    assert (ended.state, ended.result) == ("completed", [42, "yes"])
    async with asyncio.timeout(10):
        assert await watching == list(range(1, ended.last_seq + 1))


async def test_a_start_that_waits_returns_the_state_in_which_the_gate_is_open(servers: list[Api]) -> None:
    starts = (servers[number % 2].start(workflow="ask", input=number, wait=True) for number in range(40))
    runs = await asyncio.gather(*starts)
    assert {(run.state, len(run.gates)) for run in runs} == {("waiting", 1)}


async def test_of_twenty_answers_at_two_servers_one_wins_and_the_others_are_told(
    servers: list[Api],
) -> None:
    run = await servers[0].start(workflow="ask", input=1, wait=True)
    outcomes = await asyncio.gather(
        *(servers[n % 2].answer(run=run.run_id, answer=("yes", "no")[n % 2]) for n in range(20)),
        return_exceptions=True,
    )
    [winner] = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    for outcome in outcomes:
        if outcome is not winner:
            assert isinstance(outcome, ApiError)
            assert (outcome.code, outcome.details["winner"]["answer"]) == ("conflict", winner.answer)
    assert (await wait_for_end(servers[1], run.run_id)).result == [2, winner.answer]


async def test_commands_show_their_effect_at_every_server_when_they_return(servers: list[Api]) -> None:
    first, second = servers
    run = await first.start(workflow="talk")
    assert (await second.update(run=run.run_id, update="add", value=2)).result == 2
    assert (await first.update(run=run.run_id, update="add", value=3, key="three")).result == 5
    assert (await first.update(run=run.run_id, update="add", value=3, key="three")).result == 5
    assert (await second.query(run=run.run_id, query="total")).result == 5
    assert (await first.pause(run=run.run_id)).state == "paused"
    assert (await second.run(run=run.run_id)).state == "paused"
    await second.resume(run=run.run_id)
    assert (await first.run(run=run.run_id)).state != "paused"
    await first.send(run=run.run_id, channel="end")
    assert (await wait_for_end(second, run.run_id)).result == 5
    with pytest.raises(ApiError, match="ended"):
        await second.pause(run=run.run_id)
    stopped = await second.start(workflow="ask", input=1, wait=True)
    assert (await first.stop(run=stopped.run_id, reason="enough")).state == "cancelled"
    assert (await second.run(run=stopped.run_id)).error == "enough"


async def test_a_gate_of_a_child_run_is_answered_through_its_parent(servers: list[Api]) -> None:
    run = await servers[0].start(workflow="outer", wait=True)
    [gate] = (await servers[1].run(run=run.run_id)).gates
    # The caller learns of the gate with its next task.
    await wait_for_run(servers[1], run.run_id, lambda shown: shown.state == "waiting")
    await servers[1].answer(run=run.run_id, gate=gate.gate_id, answer="no")
    assert (await wait_for_end(servers[0], run.run_id)).result == [8, "no"]


async def test_a_text_starts_the_workflow_that_it_names(servers: list[Api]) -> None:
    first, second = servers
    decision = await first.route(text="outer", start=True, key="k")
    again = await second.route(text="outer", start=True, key="k")
    assert decision.run.workflow == "outer"
    assert again.run.run_id == decision.run.run_id
    assert (await second.route(text="nothing like it")).run is None
    health = await first.health()
    assert str(health.owner).startswith("temporal://")


async def test_the_messages_of_a_conversation_start_a_run_and_answer_its_gate_at_every_server(
    servers: list[Api],
) -> None:
    first, second = servers
    started = await handle_message(first, "chat", "outer", "one")
    assert await handle_message(second, "chat", "outer", "one") == started
    [run] = (await second.runs(conversation="chat")).runs
    [gate] = (await wait_for_run(second, run.run_id, lambda shown: bool(shown.gates))).gates
    answered = await handle_message(second, "chat", f"/answer {gate.gate_id} yes", None)
    assert [message["text"] for message in answered.messages][-1] == "Answered: yes"
    assert (await wait_for_end(first, run.run_id)).state == "completed"
    messages = await first.read(read_conversation)
    assert [each.role for each in messages[:2]] == ["user", "assistant"]
    assert messages[0].text == "outer"


async def read_conversation(session: Session) -> list[ConversationMessage]:
    return conversation_messages(Api(session), "chat")


async def test_no_process_can_own_a_session_that_temporal_executes(
    servers: list[Api], postgresql_url: str
) -> None:
    with pytest.raises(StoreInUse, match="temporal://"):
        PostgresStore(postgresql_url)


async def test_commands_that_no_worker_begins_are_refused_in_time_and_do_not_queue_up(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_engine, "ACCEPT_TIMEOUT_S", 1.0)
    async with open_server(temporal_url, postgresql_url, tmp_path, register) as api:
        run = (await api.start(workflow="talk")).run_id

        async def add(number: int, key: str) -> str:
            try:
                await api.update(run=run, update="add", value=number, key=key)
            except ApiError as error:
                return error.code
            return "executed"

        async with asyncio.timeout(20):
            refused = await asyncio.gather(*(add(1, f"key-{number % 2}") for number in range(50)))
        assert refused == ["busy"] * 50
        monkeypatch.undo()
        async with open_workers(temporal_url, postgresql_url, register):
            assert [await add(1, f"key-{number}") for number in range(2)] == ["executed"] * 2
            assert (await api.query(run=run, query="total")).result == 2


async def test_an_answer_that_is_sent_again_gets_the_reply_to_the_first_one(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_server(temporal_url, postgresql_url, tmp_path, register) as api:
        async with open_workers(temporal_url, postgresql_url, register):
            run = (await api.start(workflow="ask", input=1, wait=True)).run_id
            await wait_for_gate(api, run)
        monkeypatch.setattr(api_engine, "ACCEPT_TIMEOUT_S", 1.0)
        with pytest.raises(ApiError) as refused:
            await api.answer(run=run, answer="yes", key="k")
        assert refused.value.code == "busy"
        monkeypatch.undo()
        # Temporal has the first one still, and hands both to the next worker.
        again = asyncio.create_task(api.answer(run=run, answer="yes", key="k"))
        async with open_workers(temporal_url, postgresql_url, register):
            assert (await again).answer == "yes"
            assert (await wait_for_end(api, run)).result == [2, "yes"]
