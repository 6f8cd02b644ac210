"""Live pages: events of runs become HTML fragments, which the open pages put in their places.

A live page names the events that concern it, and renders what they changed. All browsers that have the same
page open share one `LiveView`: it reads the events and renders each change once. Several events between two
messages are rendered together, so a burst costs as much as one event. Messages are numbered; a browser that
connects again gets those after the last one that it has, or everything that the page shows if these are not
known any more, for example after a start of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from hashlib import sha256
from typing import NamedTuple

from nerve.api.errors import ApiError
from nerve.api.models import ApiResponse, EventResponse
from nerve.background_tasks import cancel_tasks, wait_for_event
from nerve.client import Client
from nerve.core.events import RUN_END_EVENTS
from nerve.lazy_dataclass import dataclass
from nerve.web.rendering import KEY_PLACE, encode_message

POLL_S = 1.0
"""Seconds between two looks at what the API has no stream of."""
MESSAGE_INTERVAL_S = 0.2
"""Seconds between two messages to a page."""
COLLECT_S = 0.02
"""Seconds for which the first event waits for those that follow at once."""
SLOW_RENDER_S, REST_FACTOR, MAX_REST_S = 0.05, 3, 2.0
"""A page that takes long to render rests several times as long, so that it does not keep others waiting."""
MAX_KEPT_MESSAGES, MAX_KEPT_BYTES = 100, 1024 * 1024
"""Messages of a view that a browser can get when it connects again."""
UNUSED_VIEW_S = 30.0
"""Seconds for which a view waits for a browser that connects again."""
END_MESSAGE = b"event: end\ndata:\n\n"
"""Tells the page that nothing follows, so that it does not connect again."""

SelectChange = Callable[[EventResponse], str | None]
"""Returns the key of what an event changes on the page; None if it does not concern the page."""
RenderChanges = Callable[[Collection[str] | None], Awaitable[str]]
"""Returns the fragments of what has these keys; for None, of everything that may have changed."""
RenderPage = Callable[[], Awaitable[str]]
"""Returns the fragments of everything that the page shows, as of the last changes, without a side effect."""
EventStream = AsyncGenerator[tuple[str, EventResponse | None]]
"""Events with the cursor after each; None instead of an event if some may have been missed."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """What keeps a page up to date."""

    select: SelectChange
    render: RenderChanges
    render_page: RenderPage | None = None
    """None if `render(None)` returns everything, and remembers nothing."""
    open_events: Callable[[str], EventStream] | None = None
    """Opens the events after a cursor; None for those of all runs."""
    tick_s: float | None = None
    """Seconds after which `render` is called without keys while nothing happens."""


class PageMessage(NamedTuple):
    """A message to all browsers that have the page open."""

    number: int
    text: bytes


class LiveView:
    """One live page, and the messages to all browsers that have it open."""

    def __init__(self, page: LivePage, open_events: Callable[[str], EventStream]) -> None:
        self._page, self._open_events = page, open_events
        self._id = secrets.token_hex(4)
        self._kept: deque[PageMessage] = deque()
        self._kept_bytes = 0
        self._newest = 0
        """The number of the newest message."""
        self._whole = PageMessage(0, b"")
        """Everything that the page shows, as of the message with that number."""
        self._rendering = asyncio.Lock()
        self._changed: dict[str, None] = {}
        self._is_all_changed = False
        self._wakeup, self._news = asyncio.Event(), asyncio.Event()
        self._browsers = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no event follows, reading them has failed, or no browser has had it open for long."""
        return self._newest > 0 and (self._task is None or self._task.done())

    @property
    def _has_changes(self) -> bool:
        return self._is_all_changed or bool(self._changed)

    async def messages(self, last_id: str) -> AsyncGenerator[bytes]:
        """Yield the messages to one browser until the events end, or the caller closes the generator."""
        self._browsers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._send_updates())
            self._task.add_done_callback(self._report_end)
        self._wakeup.set()
        position = self._find_position(last_id)
        try:
            while True:
                news = self._news
                if position is None or (self._kept and position < self._kept[0].number - 1):
                    if self._newest:
                        if self._has_changes:  # or the page would show an older state than its first request
                            await self._update()
                        position, text = await self._render_whole()
                        yield fill_keys(text)
                        continue
                elif position < self._newest:
                    later = [message for message in self._kept if message.number > position]
                    position = self._newest
                    yield fill_keys(b"".join(message.text for message in later))
                    continue
                if self._task.done():
                    self._task.result()  # raises the error that ended the events
                    yield END_MESSAGE
                    return
                await news.wait()
        finally:
            self._browsers -= 1

    def _find_position(self, last_id: str) -> int | None:
        """Return the number of the last message that a browser has; None if it was sent by another view."""
        view, _, number = last_id.partition("-")
        is_known = view == self._id and number.isdecimal() and int(number) <= self._newest
        return int(number) if is_known else None

    async def _render_whole(self) -> PageMessage:
        """Return everything that the page shows; browsers that ask at about the same time share it."""
        async with self._rendering:
            if self._whole.number != self._newest:
                render = self._page.render_page
                html = await (render() if render is not None else self._page.render(None))
                self._whole = PageMessage(self._newest, encode_message(f"{self._id}-{self._newest}", html))
            return self._whole

    # -- updates -----------------------------------------------------------------------------------------

    async def _send_updates(self) -> None:
        reader = asyncio.create_task(self._read_events())
        try:
            while True:
                await wait_for_event(self._wakeup, self._page.tick_s or UNUSED_VIEW_S)
                if not self._browsers:
                    if not await self._wait_for_browser():
                        self._task = None
                        return
                    continue
                if not reader.done():
                    await asyncio.sleep(COLLECT_S)
                self._wakeup.clear()
                is_over = reader.done()
                seconds = await self._update()
                if is_over:
                    reader.result()
                    return
                rest = min(REST_FACTOR * seconds, MAX_REST_S) if seconds > SLOW_RENDER_S else 0.0
                await asyncio.sleep(max(rest, MESSAGE_INTERVAL_S - COLLECT_S))
        finally:
            await cancel_tasks(reader)

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # each browser gets it
        self._wake_browsers()

    def _wake_browsers(self) -> None:
        """Let every browser look for what is new, and wait for the next news after that."""
        self._news.set()
        self._news = asyncio.Event()

    async def _wait_for_browser(self) -> bool:
        """Wait for a browser that connects again; return whether one did."""
        until = time.monotonic() + UNUSED_VIEW_S
        while not self._browsers and time.monotonic() < until:
            self._wakeup.clear()
            await wait_for_event(self._wakeup, until - time.monotonic())
        self._wakeup.set()
        return self._browsers > 0

    async def _update(self) -> float:
        """Render what has changed as the next message; return the seconds that it took."""
        async with self._rendering:
            began = time.monotonic()
            is_first = self._newest == 0
            changed = None if self._is_all_changed or is_first else list(self._changed)
            self._changed, self._is_all_changed = {}, False
            if changed is None or changed or self._page.tick_s:
                html = await self._page.render(changed)
                if html or is_first:
                    self._add_message(html, is_whole=is_first)
            # The first time, templates are compiled.
            return 0.0 if is_first else time.monotonic() - began

    def _add_message(self, html: str, is_whole: bool) -> None:
        self._newest += 1
        message = PageMessage(self._newest, encode_message(f"{self._id}-{self._newest}", html))
        if is_whole:
            self._whole = message
        self._kept.append(message)
        self._kept_bytes += len(message.text)
        while len(self._kept) > 1 and (
            len(self._kept) > MAX_KEPT_MESSAGES or self._kept_bytes > MAX_KEPT_BYTES
        ):
            self._kept_bytes -= len(self._kept.popleft().text)
        self._wake_browsers()

    async def _read_events(self) -> None:
        """Note what the events change, also while a message is rendered."""
        cursor = ""
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._open_events(cursor)) as events:
                        async for cursor, event in events:  # noqa: B007 - from where it is opened again
                            self._note(event)
                    return
                except ApiError as error:
                    if error.code != "conflict":  # the stream lagged
                        raise
                    cursor = ""
        finally:
            self._wakeup.set()

    def _note(self, event: EventResponse | None) -> None:
        if event is None:
            self._is_all_changed = True
            self._wakeup.set()
        elif (key := self._page.select(event)) is not None:
            self._changed[key] = None
            self._wakeup.set()


def fill_keys(message: bytes) -> bytes:
    """Return a message with a key of its own for each form, since a key stands for one action of one user."""
    first, *others = message.split(KEY_PLACE)
    return first + b"".join(secrets.token_hex(16).encode() + part for part in others)


def events_of_all_runs(client: Client) -> Callable[[str], EventStream]:
    """Return what opens the events of all runs after a cursor."""
    return client.resumable_events


def poll_for_changes(load: Callable[[], Awaitable[ApiResponse]]) -> Callable[[str], EventStream]:
    """Return what yields when a response is another one; the cursor is a digest of it.

    For what the API has no stream of.
    """

    async def look(cursor: str) -> EventStream:
        while True:
            digest = sha256((await load()).model_dump_json().encode()).hexdigest()[:24]
            if digest != cursor:
                cursor = digest
                yield cursor, None
            await asyncio.sleep(POLL_S)

    return look


def events_until_end_of(client: Client, run: str) -> Callable[[str], EventStream]:
    """Return what opens the events of all runs until this run has ended; child runs are among them."""

    async def open_events(cursor: str) -> EventStream:
        async with contextlib.aclosing(client.resumable_events(cursor)) as events:
            async for next_cursor, event in events:
                yield next_cursor, event
                if event is None:
                    is_over = (await client.run(run=run, steps=False)).ended_at is not None
                else:
                    is_over = event.run_id == run and event.event_type in RUN_END_EVENTS
                if is_over:
                    return

    return open_events
