"""Chains of runs through the API: lookups, commands and streams follow a run that continued as new."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest

from nerve.api import Api
from nerve.client import Client
from nerve.engine.retention import delete_expired_runs


@pytest.fixture(autouse=True)
def chain(api: Api) -> None:
    """Define a workflow `asks` that asks once in each run of its chain."""

    @api.session.workflow
    async def asks(ctx: Any) -> Any:
        answer = await ctx.gate("Go on?")
        if answer == "stop":
            return ctx.input
        ctx.continue_as_new(answer)


async def continue_chain(api: Api, run: str, *answers: str) -> str:
    """Answer the gates of a chain, and return its current run when that asks."""
    found = api.session.get_workflow_run(run)
    assert found is not None
    for answer in answers:
        await found.next_gate()
        await api.answer(run=run, answer=answer)
    await found.next_gate()
    return found.current.run_id


async def test_a_run_shows_the_runs_before_and_after_it(api: Api) -> None:
    first = (await api.start(workflow="asks", label="v1")).run_id
    last = await continue_chain(api, first, "a", "b")
    shown = await api.run(run=first)
    assert (shown.state, shown.result, shown.continued_from) == ("completed", None, None)
    middle = await api.run(run=shown.continued_as)
    assert (middle.continued_from, middle.continued_as) == (first, last)
    listed = {run.run_id: run for run in (await api.runs()).runs}
    assert listed[first].continued_as == listed[last].continued_from == middle.run_id
    api.session.engine.run_handles.clear()
    listed = {run.run_id: run for run in (await api.runs()).runs}
    assert listed[first].continued_as == listed[last].continued_from == middle.run_id


async def test_the_label_names_the_current_run_also_after_the_end(api: Api) -> None:
    first = (await api.start(workflow="asks", label="v1")).run_id
    last = await continue_chain(api, first, "a")
    assert (await api.run(run="v1")).run_id == last
    await api.answer(run=first, answer="stop")
    found = api.session.get_workflow_run(first)
    assert found is not None
    assert await found.wait() == "a"
    assert (await api.run(run="v1")).run_id == last


async def test_commands_on_the_first_run_apply_to_the_current_one(api: Api) -> None:
    first = (await api.start(workflow="asks")).run_id
    last = await continue_chain(api, first, "a")
    assert (await api.pause(run=first)).run_id == last
    assert (await api.resume(run=first)).run_id == last
    stopped = await api.stop(run=first, reason="enough")
    assert (stopped.run_id, stopped.state) == (last, "cancelled")


async def test_a_start_that_waits_returns_the_last_run_of_the_chain(api: Api) -> None:
    @api.session.workflow
    async def count_down(ctx: Any) -> str:
        if ctx.input == 0:
            return "done"
        ctx.continue_as_new(ctx.input - 1)

    run = await api.start(workflow="count_down", input=3, wait=True)
    assert (run.state, run.result) == ("completed", "done")


@pytest.mark.parametrize("after", [0, 2, 4])
async def test_a_stream_continues_with_the_events_of_the_next_run(api: Api, after: int) -> None:
    first = (await api.start(workflow="asks")).run_id
    last = await continue_chain(api, first, "a")
    seen: list[Any] = []
    async with aclosing(Client(api).watch(first, after)) as events:
        async for event in events:
            seen.append((event.run_id, event.seq, event.event_type))
            if event.event_type == "gate_waiting" and event.run_id == last:
                await api.answer(run=first, answer="stop")
    numbers = [(run_id, seq) for run_id, seq, _ in seen]
    assert numbers == [*((first, n) for n in range(after + 1, 5)), *((last, n) for n in range(1, 5))]
    assert seen[-1][2] == "workflow_completed"


async def test_a_live_stream_follows_many_runs_of_a_chain(api: Api) -> None:
    @api.session.workflow
    async def count_down(ctx: Any) -> str:
        await ctx.receive("go")
        if ctx.input == 0:
            return "done"
        ctx.continue_as_new(ctx.input - 1)

    run = (await api.start(workflow="count_down", input=20)).run_id

    async def send_all() -> None:
        for _ in range(21):
            await api.send(run=run, channel="go")

    sending = asyncio.ensure_future(send_all())
    events = [event async for event in api.hub.watch(run)]
    await sending
    ends = [event for event in events if event.event_type == "workflow_completed"]
    starts = [event for event in events if event.event_type == "workflow_started"]
    assert len(starts) == len(ends) == 21
    assert [event.data["continued_as"] for event in ends[:-1]] == [event.run_id for event in starts[1:]]
    assert ends[-1].data["result"] == "done"


async def test_the_key_of_a_start_names_the_chain_while_its_current_run_is_kept(api: Api) -> None:
    first = (await api.start(workflow="asks", input="0", key="k")).run_id
    last = await continue_chain(api, first, "a", "b", "c")
    store, soon = api.session.engine.store, time.time() + 1
    deleted = await delete_expired_runs(store, soon, dry_run=False)
    assert deleted.runs == 2, "the run with the key and the current run stay"
    again = await api.start(workflow="asks", input="0", key="k")
    assert (again.run_id, (await api.run(run=last)).state) == (first, "waiting")
    assert {run.run_id for run in (await api.runs()).runs} == {first, last}
    found = api.session.get_workflow_run(first)
    assert found is not None
    assert found.current.run_id == last
    await api.answer(run=first, answer="stop")
    assert await found.wait() == "c"
    assert (await delete_expired_runs(store, soon + 60, dry_run=False)).runs == 2
    assert (await api.start(workflow="asks", input="0", key="k")).run_id != first
