"""Events of a run can be filtered by path, type and text, in pages of bounded cost."""

from typing import Any

import pytest

from nerve.api import Api, queries
from nerve.client import Client


@pytest.fixture
async def client(api: Api) -> Client:
    @api.session.node
    def double(context: Any) -> Any:
        return context.input * 2

    @api.session.workflow
    async def numbers(ctx: Any) -> None:
        for number in range(20):
            await ctx.run("double", number)
        await ctx.run("careful", "Zebra")

    return Client(api)


async def test_only_the_events_of_a_step_are_returned(client: Client) -> None:
    run = await client.start(workflow="numbers", wait=True)
    page = await client.events(run=run.run_id, path="/double[3]")
    assert [event.event_type for event in page.events] == ["node_started", "node_completed"]
    assert (page.more, page.next) == (False, None)


async def test_events_are_found_by_type_and_by_text_without_regard_to_case(client: Client) -> None:
    run = await client.start(workflow="numbers", wait=True)
    started = await client.events(run=run.run_id, type=["workflow_started", "workflow_completed"])
    assert len(started.events) == 2
    found = await client.events(run=run.run_id, search="zEBRA")
    assert {event.path for event in found.events} == {"/careful"}


async def test_pages_of_filtered_events_have_each_event_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "EVENTS_PER_SCAN", 3)
    monkeypatch.setattr(queries, "MAX_SCANNED_EVENTS", 7)
    run = await client.start(workflow="numbers", wait=True)
    for limit in (1, 2, 5, 1000):
        events = [event async for event in client.history(run.run_id, type="node_started", limit=limit)]
        assert len(events) == 21
        assert [event.seq for event in events] == sorted({event.seq for event in events})
    page = await client.events(run=run.run_id, search="zebra")
    assert (page.events, page.more, page.next) == ([], True, 9)


async def test_pages_without_a_filter_continue_at_next(client: Client) -> None:
    run = await client.start(workflow="numbers", wait=True)
    page = await client.events(run=run.run_id, limit=10)
    assert (len(page.events), page.next) == (10, 10)
    rest = await client.events(run=run.run_id, after=page.next)
    assert (rest.events[0].seq, rest.next) == (11, None)
