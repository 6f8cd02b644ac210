"""Events of a run can be filtered by path, type and text, in pages of bounded cost."""

import pytest

from nerve.api import queries
from nerve.client import Client


async def test_only_the_events_of_a_step_are_returned(numbers_client: Client) -> None:
    run = await numbers_client.start(workflow="numbers", wait=True)
    page = await numbers_client.events(run=run.run_id, path="/double[3]")
    assert [event.event_type for event in page.events] == ["node_started", "node_completed"]
    assert (page.more, page.next) == (False, None)


async def test_events_are_found_by_type_and_by_text_without_regard_to_case(numbers_client: Client) -> None:
    run = await numbers_client.start(workflow="numbers", wait=True)
    started = await numbers_client.events(run=run.run_id, type=["workflow_started", "workflow_completed"])
    assert len(started.events) == 2
    found = await numbers_client.events(run=run.run_id, search="zEBRA")
    assert {event.path for event in found.events} == {"/careful"}


async def test_pages_of_filtered_events_have_each_event_once(
    numbers_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "EVENTS_PER_SCAN", 3)
    monkeypatch.setattr(queries, "MAX_SCANNED_EVENTS", 7)
    run = await numbers_client.start(workflow="numbers", wait=True)
    for limit in (1, 2, 5, 1000):
        events = [
            event async for event in numbers_client.history(run.run_id, type="node_started", limit=limit)
        ]
        assert len(events) == 21
        assert [event.seq for event in events] == sorted({event.seq for event in events})
    page = await numbers_client.events(run=run.run_id, search="zebra")
    assert (page.events, page.more, page.next) == ([], True, 9)


async def test_pages_without_a_filter_continue_at_next(numbers_client: Client) -> None:
    run = await numbers_client.start(workflow="numbers", wait=True)
    page = await numbers_client.events(run=run.run_id, limit=10)
    assert (len(page.events), page.next) == (10, 10)
    rest = await numbers_client.events(run=run.run_id, after=page.next)
    assert (rest.events[0].seq, rest.next) == (11, None)
