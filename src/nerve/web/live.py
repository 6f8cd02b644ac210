"""Live pages: events of runs become HTML fragments, which the open page puts in their places.

A page names the events that concern it, and renders what they changed. Several events between two messages
are rendered once, so a burst costs as much as one event. Every message has a cursor, from which a browser
that connects again continues; if the server does not know that cursor, the whole page is rendered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from nerve.api.errors import ApiError
from nerve.api.models import EventResponse
from nerve.client import Client
from nerve.core.events import RUN_END_EVENTS
from nerve.web.rendering import encode_message

MESSAGE_INTERVAL_S = 0.2
"""Seconds between two messages to a page."""
COLLECT_S = 0.02
"""Seconds for which the first event waits for those that follow at once."""
CURSOR_INTERVAL_S = 5.0
"""Seconds after which a page gets the cursor of events that do not concern it."""
END_MESSAGE = b"event: end\ndata:\n\n"
"""Tells the page that nothing follows, so that it does not connect again."""

SelectChange = Callable[[EventResponse], str | None]
"""Returns the key of what an event changes on the page; None if it does not concern the page."""
RenderChanges = Callable[[Collection[str] | None], Awaitable[str]]
"""Returns the fragments of what has these keys; for None, of everything on the page."""
EventStream = AsyncGenerator[tuple[str, EventResponse | None]]
"""Events with the cursor after each; None instead of an event if some may have been missed."""


class LiveStream:
    """The messages of one open page."""

    def __init__(
        self,
        open_events: Callable[[str], EventStream],
        cursor: str,
        select: SelectChange,
        render: RenderChanges,
        tick_s: float | None = None,
    ) -> None:
        """Create the stream; with `tick_s`, `render` is called at least that often, then without keys."""
        self._open_events, self._cursor = open_events, cursor
        self._select, self._render, self._tick_s = select, render, tick_s
        self._changed: dict[str, None] = {}
        self._is_all_changed = False
        self._wakeup = asyncio.Event()

    async def messages(self) -> AsyncGenerator[bytes]:
        """Yield messages until the events end, or the caller closes the generator."""
        sent_cursor = self._cursor
        reader = asyncio.create_task(self._read_events())
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), self._tick_s or CURSOR_INTERVAL_S)
                if not reader.done():
                    await asyncio.sleep(COLLECT_S)
                self._wakeup.clear()
                changed = None if self._is_all_changed else list(self._changed)
                cursor, self._changed, self._is_all_changed = self._cursor, {}, False
                is_over = reader.done()
                html = await self._render(changed) if changed is None or changed or self._tick_s else ""
                if html or cursor != sent_cursor:
                    sent_cursor = cursor
                    yield encode_message(cursor, html)
                if is_over:
                    reader.result()  # raises the error that ended the events
                    yield END_MESSAGE
                    return
                await asyncio.sleep(MESSAGE_INTERVAL_S - COLLECT_S)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read_events(self) -> None:
        """Note what the events change, also while a message is rendered."""
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._open_events(self._cursor)) as events:
                        async for cursor, event in events:
                            self._cursor = cursor
                            self._note(event)
                    return
                except ApiError as error:
                    if error.code != "conflict":  # the stream lagged
                        raise
                    self._cursor = ""
        finally:
            self._wakeup.set()

    def _note(self, event: EventResponse | None) -> None:
        if event is None:
            self._is_all_changed = True
            self._wakeup.set()
        elif (key := self._select(event)) is not None:
            self._changed[key] = None
            self._wakeup.set()


def events_of_all_runs(client: Client) -> Callable[[str], EventStream]:
    """Return what opens the events of all runs after a cursor."""
    return client.resumable_events


def events_until_end_of(client: Client, run: str) -> Callable[[str], EventStream]:
    """Return what opens the events of all runs until this run has ended; child runs are among them."""

    async def open_events(cursor: str) -> EventStream:
        async with contextlib.aclosing(client.resumable_events(cursor)) as events:
            async for next_cursor, event in events:
                yield next_cursor, event
                if event is None:
                    is_over = (await client.run(run=run)).ended_at is not None
                else:
                    is_over = event.run_id == run and event.event_type in RUN_END_EVENTS
                if is_over:
                    return

    return open_events
