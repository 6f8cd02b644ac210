"""Pages under load and failure in a real browser: compared with the journal, nothing is lost or doubled."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from e2e.web.conftest import start
from e2e.world import World, tell

BIG, SMALL = 10_000, 300
"""Steps of a run; each has ten events."""


async def open_run(page: Page, server: World, run: dict[str, Any], rest: str = "") -> None:
    await page.goto(f"{server.about['url']}/runs/{run['run_id']}{rest}")


async def read_journal(server: World, run: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    async with server.client() as client:
        after: int | None = 0
        while after is not None:
            reply = await client.get(f"/api/runs/{run['run_id']}/events", after=after, limit=10_000)
            events += reply["events"]
            after = reply["next"]
    return events


async def read_text(server: World, run: dict[str, Any], stream: str) -> str:
    """Return what a step has written, from the journal."""
    events = await read_journal(server, run)
    chunks = [event["data"] for event in events if event["event_type"] == "output_chunk"]
    return "".join(chunk["text"] for chunk in chunks if chunk["stream"] == stream)


async def answer(server: World, run: dict[str, Any]) -> None:
    async with server.client() as client:
        reply = await client.post("/api/answers", run=run["run_id"], answer="yes")
        assert reply.status_code == 200, reply.text


async def hide(page: Page, is_hidden: bool) -> None:
    """Tell the page that its tab is in the background, or is shown again."""
    await page.evaluate(
        """isHidden => {
            Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


async def event_numbers(page: Page) -> list[int]:
    return [int(text) for text in await page.locator("tr[data-row] td:first-child").all_text_contents()]


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.full)])
async def test_every_line_that_a_command_prints_is_shown_once(page: Page, server: World, count: int) -> None:
    run = await start(server, "print_lines", input=count)
    await open_run(page, server, run, "/steps/printer")
    shown = page.locator("#transcript pre")
    await expect(shown).to_contain_text("line 10\n", timeout=20_000)
    early = await shown.text_content() or ""
    assert early == "".join(f"line {number + 1}\n" for number in range(early.count("\n")))
    await expect(page.locator("#step-head .state")).to_have_text("completed", timeout=60_000)
    await expect(shown).to_contain_text(f"line {count}\n")
    assert await shown.text_content() == await read_text(server, run, "stdout")


async def test_a_server_that_is_killed_while_a_step_writes_loses_and_doubles_nothing(
    page: Page, server: World
) -> None:
    run = await start(server, "talk", input=300)
    await open_run(page, server, run, "/events")
    other = await page.context.new_page()
    await open_run(other, server, run, "/steps/talker")
    await expect(other.locator("#transcript .writing")).to_contain_text("word 50 ", timeout=20_000)
    port = server.port
    server.kill()
    await expect(page.locator(".connection")).to_have_text("Reconnecting …", timeout=20_000)
    server.start(port=port)
    for shown in (page, other):
        await expect(shown.locator("#run-head .state")).to_have_text("waiting", timeout=40_000)
    journal = await read_journal(server, run)
    last = journal[-1]["seq"]
    await expect(page.locator(f"#e{last}")).to_have_count(1, timeout=20_000)
    assert await event_numbers(page) == list(range(1, last + 1))
    await expect(other.locator("#transcript .markdown strong").last).to_have_text("end")
    assert await other.locator("#timeline-rows > li", has_text="talker").count() == 1


async def test_a_gate_that_is_open_while_the_server_is_killed_is_answered_on_the_same_page(
    page: Page, server: World
) -> None:
    run = await start(server, "many_then_gate", input=5)
    await open_run(page, server, run)
    await expect(page.locator("#run-alerts")).to_contain_text("Enough?", timeout=20_000)
    rows = await page.locator("#timeline-rows > li").count()
    port = server.port
    server.kill()
    await expect(page.locator(".connection")).to_have_text("Reconnecting …", timeout=20_000)
    server.start(port=port)
    await expect(page.locator(".connection")).to_have_text("", timeout=20_000)
    await expect(page.locator("#timeline-rows > li")).to_have_count(rows)
    await answer(server, run)
    await expect(page.locator("#run-head .state")).to_have_text("completed", timeout=20_000)
    await expect(page.locator("#timeline-rows > li")).to_have_count(rows)


async def test_a_page_in_the_background_is_current_when_it_is_shown_again(page: Page, server: World) -> None:
    run = await start(server, "many_then_gate", input=5)
    await open_run(page, server, run, "/events")
    await expect(page.locator("tr", has_text="gate_waiting")).to_have_count(1, timeout=20_000)
    await hide(page, True)
    await answer(server, run)
    async with server.client() as client:
        await client.ended([run])
    await hide(page, False)
    await expect(page.locator("#run-head .state")).to_have_text("completed", timeout=20_000)
    numbers = await event_numbers(page)
    assert numbers == list(range(1, len(await read_journal(server, run)) + 1))


async def test_a_page_that_was_opened_before_the_server_ended_connects_when_it_is_back(
    page: Page, server: World
) -> None:
    run = await start(server, "many_then_gate", input=2)
    await page.route("**/stream*", lambda route: route.abort())
    await open_run(page, server, run)
    await expect(page.locator(".connection")).to_have_text("Reconnecting …", timeout=20_000)
    await page.unroute("**/stream*")
    await expect(page.locator(".connection")).to_have_text("", timeout=20_000)
    await answer(server, run)
    await expect(page.locator("#run-head .state")).to_have_text("completed", timeout=20_000)


@pytest.mark.parametrize("steps", [SMALL, pytest.param(BIG, marks=pytest.mark.full)])
async def test_a_run_of_many_steps_is_opened_searched_and_followed(
    page: Page, server: World, steps: int
) -> None:
    run = await start(server, "noisy", input=steps)
    await open_run(page, server, run)
    await expect(page.locator("#run-alerts")).to_contain_text("Enough?", timeout=240_000)
    # A server that has not read the run yet responds with a part of it.
    port = server.port
    server.kill()
    server.start(port=port)
    cpu, memory = server.cpu(), server.rss()
    async with server.client() as client:
        first = (await client.http.get(f"/runs/{run['run_id']}")).text
    tell(steps=steps, first_response_cpu_s=server.cpu() - cpu, first_response_bytes=len(first))
    assert len(first) < 100_000
    if steps == BIG:
        assert re.search(r"Reading the events of the run: 5,000 of 100,00\d\.", first)
        assert server.cpu() - cpu < 2.5  # with all templates; reading all events takes longer
    await open_run(page, server, run)
    await expect(page.locator("#run-progress")).to_have_text("", timeout=120_000)
    await page.get_by_role("link", name=re.compile(f"chat × {steps:,}")).click()
    await expect(page.locator("#timeline-rows > li.gap")).to_contain_text("rows are not shown")
    assert await page.locator("#timeline-rows > li").count() <= 250
    await page.get_by_role("link", name="Show more").first.click()
    await page.get_by_role("link", name="4×").click()
    await open_run(page, server, run, f"/steps/chat[{steps // 2}]")
    await expect(page.locator("#transcript pre")).to_have_text("".join(f"line {n}\n" for n in range(8)))
    await open_run(page, server, run, "/events?search=chat%5B7%5D")
    await expect(page.locator("tr[data-row]")).to_have_count(10)
    await open_run(page, server, run)
    await answer(server, run)
    await expect(page.locator("#run-head .state")).to_have_text("completed", timeout=60_000)
    tell(memory_mb=server.rss() - memory)
    assert server.rss() - memory < 150
