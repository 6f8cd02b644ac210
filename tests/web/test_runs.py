"""The list of runs: what a row shows, filters, pages, actions, and changes while it is open."""

import re
from typing import Any

import httpx2
import pytest

from web.conftest import WebServer


def rows(text: str) -> list[str]:
    return re.findall(r'<tr id="run-([^"]+)"', text)


def row(text: str, run: Any) -> str:
    found = re.search(rf'<tr id="run-{run.run_id}".*?</tr>', text, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[0]))


async def test_a_row_shows_state_label_tags_input_cost_and_what_the_run_waits_for(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    asked = await web.start("review", label="v3", tags={"customer": "42"}, input="Rename a flag")
    signal = await web.start("deploy")
    paid = await web.start("paid")
    failed = await web.start("broken")
    text = (await browser.get("/runs")).text
    assert rows(text) == [failed.run_id, paid.run_id, signal.run_id, asked.run_id]
    for part in ("waiting", "review", "v3", "customer=42", "Rename a flag", "Merge the change into main?"):
        assert part in row(text, asked)
    assert "for signal built" in row(text, signal)
    assert "$0.31" in row(text, paid)
    assert "The disk of the build machine is full" in row(text, failed)


async def test_open_gates_come_first_and_are_counted(web: WebServer, browser: httpx2.AsyncClient) -> None:
    assert (
        'id="waiting" class="waiting-list" aria-labelledby="waiting-title" hidden'
        in (await browser.get("/runs")).text
    )
    for number in range(7):
        await web.start("review", label=f"change {number}")
    text = (await browser.get("/runs")).text
    assert text.count('<li id="waiting-') == 5
    assert "All 7 in the inbox" in text
    assert 'data-count="7"' in text


async def test_filters_are_in_the_address(web: WebServer, browser: httpx2.AsyncClient) -> None:
    hello = await web.start("hello", input="a needle", tags={"team": "web"})
    failed = await web.start("broken", label="nightly")
    for query, run in (
        ("state=failed", failed),
        ("workflow=hello", hello),
        ("label=nightly", failed),
        ("tag=team%3Dweb", hello),
        ("search=needle", hello),
        ("since=1h&workflow=broken&state=failed&state=held", failed),
    ):
        text = (await browser.get(f"/runs?{query}")).text
        assert rows(text) == [run.run_id], query
        assert "/runs/stream?" in text
    empty = await browser.get("/runs?workflow=hello&state=failed")
    assert "No run matches these filters." in empty.text
    wrong = await browser.get("/runs?state=nothing")
    assert wrong.status_code == 400
    assert "Unknown state &#39;nothing&#39;" in wrong.text


async def test_pages_lead_to_all_runs_once(web: WebServer, browser: httpx2.AsyncClient) -> None:
    runs = [(await web.start("hello", input=number)).run_id for number in range(120)]
    path, seen = "/runs", list[str]()
    while path:
        text = (await browser.get(path)).text
        seen += rows(text)
        path = next(iter(re.findall(r'rel="next" href="([^"]+)"', text)), "").replace("&amp;", "&")
    assert seen == runs[::-1]


async def test_texts_of_users_are_escaped(web: WebServer, browser: httpx2.AsyncClient) -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    await web.start("review", label=attack[:50], input=attack, tags={"t": attack[:60]})
    text = (await browser.get("/runs", params={"search": attack, "workflow": attack})).text
    text += (await browser.get("/runs")).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


async def test_selected_runs_are_changed_and_problems_reported(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    steady, done, failed = await web.start("steady"), await web.start("hello"), await web.start("broken")
    stopped = await browser.post(
        "/runs/actions", data={"action": "stop", "run": steady.run_id, "back": "?state=x"}
    )
    assert (stopped.status_code, stopped.headers["location"]) == (303, "/runs?state=x&done=1-stopped")
    assert "1 run stopped." in (await browser.get("/runs?done=1-stopped")).text
    retried = await browser.post(
        "/runs/actions",
        data={"action": "retry", "run": [failed.run_id, done.run_id]},
        headers={"hx-request": "true"},
    )
    assert "1 run retried, 1 not:" in retried.text
    assert "has no failed step" in retried.text
    deleted = await browser.post("/runs/actions", data={"action": "delete", "run": [done.run_id]})
    assert deleted.status_code == 303
    assert done.run_id not in (await browser.get("/runs")).text
    assert (await browser.post("/runs/actions", data={"action": "stop"})).status_code == 400


async def test_an_action_is_for_all_runs_that_match_the_filters(
    web: WebServer, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [await web.start("broken", label="nightly") for _ in range(3)]
    await web.start("broken")
    done = await web.start("hello", label="nightly", input="you")
    # Only failed runs can be retried, so the completed one is left out.
    form = {"action": "retry", "all": "1", "back": "?label=nightly", "key": "k"}
    reply = await browser.post("/runs/actions", data=form)
    assert reply.headers["location"] == "/runs?label=nightly&done=3-retried"
    broken = (await web.api.runs(workflow="broken")).runs
    sources = [await source_of(web, run.run_id) for run in broken]
    assert sorted(filter(None, sources)) == sorted(run.run_id for run in failed)
    again = await browser.post(
        "/runs/actions", data={"action": "rerun", "all": "1", "back": "?workflow=hello&since=1h"}
    )
    assert again.headers["location"] == "/runs?workflow=hello&since=1h&done=1-started+again"
    assert "1 run started again." in (await browser.get(again.headers["location"])).text
    hellos = (await web.api.runs(workflow="hello")).runs
    assert [run.input_preview for run in hellos] == ["you", "you"]
    assert done.run_id == hellos[-1].run_id
    nothing = await browser.post(
        "/runs/actions", data={"action": "stop", "all": "1", "back": "?state=failed"}
    )
    assert nothing.status_code == 400
    monkeypatch.setattr("nerve.web.pages.runs.MAX_SELECTED_RUNS", 2)
    cut = await browser.post(
        "/runs/actions", data={"action": "delete", "all": "1", "back": ""}, headers={"hx-request": "true"}
    )
    assert "2 runs deleted. There are more runs" in cut.text


async def source_of(web: WebServer, run: str) -> str | None:
    """Return the run from which a run was forked."""
    started = (await web.api.events(run=run, type=["workflow_started"])).events[0]
    found: str | None = (started.data.get("forked_from") or {}).get("run")
    return found


async def test_runs_are_sorted_by_duration_and_cost(web: WebServer, browser: httpx2.AsyncClient) -> None:
    paid = await web.start("paid")
    slow = await web.start("steady")
    await web.api.stop(run=slow.run_id)
    for number in range(3):
        await web.start("hello", input=number)
    by_cost = (await browser.get("/runs?sort=cost")).text
    assert rows(by_cost)[0] == paid.run_id
    assert re.search(r'<th class="right" aria-sort="descending"><a href="/runs\?sort=cost"', by_cost)
    assert 'name="sort" value="cost"' in by_cost
    durations = [
        (run.ended_at - run.started_at).total_seconds()
        for run in (await web.api.runs(sort="duration")).runs
        if run.ended_at is not None and run.started_at is not None
    ]
    assert durations == sorted(durations, reverse=True)
    assert rows((await browser.get("/runs?sort=wrong")).text)[-1] == paid.run_id
    # A page of a sorted list continues after its last run.
    whole = [run.run_id for run in (await web.api.runs(sort="cost")).runs]
    rest = (await web.api.runs(sort="cost", before=whole[1], limit=2)).runs
    assert [run.run_id for run in rest] == whole[2:4]


async def test_a_read_caller_sees_no_action(web: WebServer) -> None:
    await web.start("review")
    async with web.browser("read") as reader:
        text = (await reader.get("/runs")).text
        assert "Start a run" not in text
        assert 'type="checkbox"' not in text
        assert 'value="stop"' not in text


async def test_only_an_admin_deletes_runs(web: WebServer) -> None:
    run = await web.start("hello")
    async with web.browser("run") as browser:
        assert 'value="delete"' not in (await browser.get("/runs")).text
        reply = await browser.post("/runs/actions", data={"action": "delete", "run": run.run_id})
        assert reply.status_code == 403


async def test_a_stream_sends_rows_as_they_change_and_resumes_where_it_was(web: WebServer) -> None:
    first = await web.start("review", label="first")
    async with web.stream("/runs/stream") as live:
        await live.until(lambda text: f'id="run-{first.run_id}"' in text and "<tr" in text)
        second = await web.start("review", label="second")
        await live.until(lambda text: text.count(f'id="run-{second.run_id}"') == 1)
        last = live.last_id
    await web.api.answer(run=first.run_id, answer="approve")
    async with web.stream("/runs/stream", last_id=last) as live:
        text = await live.until(lambda text: "completed" in text)
        assert 'data-count="1"' in text


async def test_a_stream_that_resumes_without_changes_sends_nothing(web: WebServer) -> None:
    await web.start("hello")
    async with web.stream("/runs/stream") as live:
        await live.until(lambda text: "<tr" in text)
        last = live.last_id
    async with web.stream("/runs/stream", last_id=last) as live:
        run = await web.start("hello")
        await live.until(lambda text: run.run_id in text)
        assert "run-rows" in live.messages[0]


async def test_a_burst_of_events_becomes_few_messages(web: WebServer) -> None:
    async with web.stream("/runs/stream") as live:
        await live.until(lambda text: "data: " in text)
        runs = [await web.start("hello", input=number) for number in range(30)]
        await live.until(lambda text: all(f'id="run-{run.run_id}"' in text for run in runs))
        assert len(live.messages) < 15


async def test_a_stream_ends_when_the_server_stops(web: WebServer) -> None:
    async with web.stream("/runs/stream") as live:
        await live.until(lambda text: "data: " in text)
        web.app.closing.set()
