"""Live views: browsers with the same page share what is rendered, and continue where they were."""

import asyncio
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from nerve.api.errors import ApiError
from nerve.api.models import EventResponse
from nerve.web import live
from nerve.web.live import END_MESSAGE, EventStream, LivePage, LiveView
from nerve.web.rendering import KEY_PLACE


class CountedPage:
    """A page that shows how many events it has seen, and notes each rendering."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[EventResponse | ApiError | None] = asyncio.Queue()
        self.seen = self.renders = self.pages = 0
        self.has_seen = asyncio.Event()
        self.view = LiveView(LivePage(self.select, self.render, self.render_page), self.open_events)

    async def open_events(self, cursor: str) -> EventStream:
        yield "0", None
        while (event := await self.events.get()) is not None:
            if isinstance(event, ApiError):
                raise event
            yield str(event.seq), event

    def select(self, event: EventResponse) -> str | None:
        self.seen += 1
        self.has_seen.set()
        return "count"

    async def render(self, keys: Collection[str] | None) -> str:
        self.renders += 1
        return f"<i>{self.seen}</i>"

    async def render_page(self) -> str:
        self.pages += 1
        return f"<b>{self.seen} {KEY_PLACE.decode()} {KEY_PLACE.decode()}</b>"

    def add_event(self) -> None:
        self.events.put_nowait(
            EventResponse(
                seq=self.seen + 1,
                run_id="r",
                workflow_id="w",
                event_type="said",
                path="",
                data={},
                timestamp=datetime(2026, 11, 18, tzinfo=UTC),
            )
        )


async def read(messages: AsyncGenerator[bytes], expected: str) -> str:
    """Return the messages up to one with this text."""
    found = ""
    async with asyncio.timeout(20):
        async for message in messages:
            found += message.decode()
            if expected in found:
                return found
    raise AssertionError(found)


def last_id(text: str) -> str:
    return re.findall(r"^id: (.*)$", text, re.MULTILINE)[-1]


async def test_a_change_is_rendered_once_for_all_browsers() -> None:
    page = CountedPage()
    browsers = [page.view.messages("") for _ in range(50)]
    await asyncio.gather(*(read(browser, "data: ") for browser in browsers))
    before = page.renders
    page.add_event()
    texts = await asyncio.gather(*(read(browser, "<i>1</i>") for browser in browsers))
    assert page.renders == before + 1
    assert page.pages <= 1
    assert {text.count("<i>1</i>") for text in texts} == {1}
    page.events.put_nowait(None)
    assert set(await asyncio.gather(*(read(browser, "event: end") for browser in browsers))) == {
        END_MESSAGE.decode()
    }


async def test_a_browser_that_connects_again_gets_only_what_it_does_not_have() -> None:
    page = CountedPage()
    async with aclosing(page.view.messages("")) as stays, aclosing(page.view.messages("")) as leaves:
        await read(stays, "data: ")
        position = last_id(await read(leaves, "data: "))
        await leaves.aclose()
        page.add_event()
        newest = last_id(await read(stays, "<i>1</i>"))
        async with aclosing(page.view.messages(position)) as again:
            assert "<b>" not in await read(again, "<i>1</i>")
        page.add_event()
        async with aclosing(page.view.messages(newest)) as again:
            assert "<i>1</i>" not in await read(again, "<i>2</i>")
        for unknown in ("", "unknown", f"{position}9", position.replace("-", "x-")):
            async with aclosing(page.view.messages(unknown)) as again:
                assert "<b>2 " in await read(again, "</b>"), unknown


async def test_a_browser_never_gets_a_page_that_is_older_than_what_has_happened() -> None:
    page = CountedPage()
    async with aclosing(page.view.messages("")) as first:
        await read(first, "data: ")
    page.add_event()  # while no browser has the page open
    await asyncio.wait_for(page.has_seen.wait(), 20)
    async with aclosing(page.view.messages("")) as second:
        assert "<b>1 " in await read(second, "</b>")


async def test_a_browser_that_was_away_for_too_many_messages_gets_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MAX_KEPT_MESSAGES", 2)
    page = CountedPage()
    async with aclosing(page.view.messages("")) as stays:
        position = last_id(await read(stays, "data: "))
        for number in range(1, 5):
            page.add_event()
            await read(stays, f"<i>{number}</i>")
        async with aclosing(page.view.messages(position)) as again:
            text = await read(again, "data: ")
            assert "<b>4 " in text
            assert "<i>" not in text


async def test_a_view_waits_for_a_browser_and_continues_without_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "UNUSED_VIEW_S", 0.2)
    page = CountedPage()
    async with aclosing(page.view.messages("")) as first:
        position = last_id(await read(first, "data: "))
    page.add_event()
    async with asyncio.timeout(20):
        while not page.view.is_over:  # noqa: ASYNC110 - a view tells only browsers
            await asyncio.sleep(0.01)
    before = page.renders
    async with aclosing(page.view.messages(position)) as again:
        await read(again, "<i>1</i>")
    assert page.renders == before + 1


async def test_every_browser_gets_keys_of_its_own() -> None:
    page = CountedPage()
    async with aclosing(page.view.messages("")) as first:
        await read(first, "data: ")
        page.add_event()
        await read(first, "<i>1</i>")
        keys = list[str]()
        for _ in range(2):
            async with aclosing(page.view.messages("")) as other:
                keys += re.findall(r"\b[0-9a-f]{32}\b", await read(other, "</b>"))
    assert len(set(keys)) == 4
    assert page.pages == 1


async def test_an_error_ends_the_messages_of_every_browser() -> None:
    page = CountedPage()
    browsers = [page.view.messages("") for _ in range(3)]
    await asyncio.gather(*(read(browser, "data: ") for browser in browsers))
    page.events.put_nowait(ApiError("not_found", "The run was deleted"))
    for browser in browsers:
        with pytest.raises(ApiError, match="deleted"):
            await read(browser, "never")
    assert page.view.is_over
