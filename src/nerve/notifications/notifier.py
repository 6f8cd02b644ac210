"""Sends messages about committed events, at least once and beside the runs; keeps those of people in chats.

The position in the stream of events and the messages that follow from the events before it are one property
of the store, written together before anything is sent. A message leaves the property after a channel has
accepted it, so a process that is killed loses none, and repeats at most the ones it was sending.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from nerve.background_tasks import cancel_tasks, wait_for_event
from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import NerveError, OwnershipLost, StoreError
from nerve.notifications.delivery import ATTEMPT_TIMEOUT_S, Channel, DeliveryFailed
from nerve.notifications.event_filter import Selection
from nerve.notifications.event_kinds import NOTIFIED_TYPES
from nerve.notifications.messages import NotifiedEvent, NotifyMessage
from nerve.notifications.outbox import MessageOutbox, UnansweredMessage, property_name
from nerve.store.port import EventRow, StreamedEvent

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.store.port import EventStream, Store

log = logging.getLogger("nerve")

GATHER_S = 0.5
"""Seconds for which an event waits for others that the same message can name."""
MAX_READ_EVENTS = 500
PERIOD_S = 60.0
"""Seconds in which every message to a channel doubles the pause before the next one.

Events wait meanwhile, and one message counts them, so that a burst does not flood anybody.
"""
FIRST_PAUSE_S = 1.0
FIRST_THREAD_PAUSE_S, MAX_THREAD_PAUSE_S = 0.1, 0.8
"""The first and the longest pause in chats, where a person waits for the message."""
MAX_COUNTED_MESSAGES = 6
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 300.0
MAX_RETRY_AFTER_S = 3600.0
"""The longest pause that a service can ask for."""
MAX_ATTEMPTS = 50
MAX_AGE_S = 24 * 3600.0
"""Seconds after which a message is given up, and before which events are not reported any more."""
CLOCK_SLACK_S = 60.0
"""Seconds by which the times of events may differ from the time at which they were read."""
CLOSE_TIMEOUT_S = 3.0
"""Seconds for which closing a session waits for channels; the next process sends the rest."""
STORE_RETRY_S = 5.0
MAX_RECEIVED = 1000
"""Messages of people that wait for their replies; a chat delivers further ones again later."""


class EventSelector(Protocol):
    """Says which events are sent to which channels."""

    def select(self, event: StreamedEvent) -> Iterator[Selection]: ...


class TooManyMessages(NerveError):
    """So many messages of people wait for their replies that no further one is taken."""


class Notifier:
    """The notifications of one session, sent by the process that executes its runs."""

    def __init__(
        self,
        store: Store,
        stream: EventStream,
        session: str,
        channels: Mapping[str, Channel],
        make_person_channel: Callable[[str], Channel | None],
        *selectors: EventSelector,
    ) -> None:
        self._store, self._stream, self._session = store, stream, session
        self._channels, self._selectors = dict(channels), selectors
        self._make_person_channel = make_person_channel
        self._property = property_name(session)
        self._outbox: MessageOutbox | None = None
        self._lock = asyncio.Lock()
        """Held to change the outbox and store it."""
        self._hints: dict[tuple[str, int], StreamedEvent] = {}
        """Events that this process has committed since the stream was read last."""
        self._recent_keys: tuple[frozenset[tuple[str, int]], ...] = (frozenset(), frozenset())
        """The events of the last two reads, which this process may hear of only now."""
        self._is_first_read = True
        self.has_received = asyncio.Event()
        """Set when a person has written."""
        self._has_events = asyncio.Event()
        self._has_messages = {name: asyncio.Event() for name in channels}
        self._sent_at: dict[str, deque[float]] = {
            name: deque(maxlen=MAX_COUNTED_MESSAGES) for name in channels
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._busy: set[str] = set()
        """The channels that are sending."""
        self._has_progress = asyncio.Event()
        self._is_closing = False
        if store.read_property(self._property) is None:
            # The first process begins with what happens from now on, and a kill must not change that.
            position = stream.last_streamed(session)
            store.write_property(self._property, MessageOutbox(position, time.time()).to_json())

    def start(self) -> None:
        """Send what an earlier process has not sent, and then what follows."""
        if not self._tasks and not self._is_closing:
            self._tasks = [spawn_detached(self._read_until_cancelled())]
            self._tasks += [spawn_detached(self._send_until_cancelled(name)) for name in self._channels]

    def on_events(self, run: WorkflowRun, rows: Sequence[EventRow]) -> None:
        """Look for messages after a commit; called on the event loop, so it only takes notes."""
        for row in rows:
            if row.type in NOTIFIED_TYPES:
                self._hints[run.run_id, row.seq] = StreamedEvent(0, run.run_id, run.workflow_id, row)
                self.wake()

    def wake(self) -> None:
        """Look for events soon."""
        self.start()
        self._has_events.set()

    # -- from events to messages ---------------------------------------------------------------------

    async def _read_until_cancelled(self) -> None:
        while True:
            if self._has_events.is_set():
                await asyncio.sleep(GATHER_S)
                self._has_events.clear()
            try:
                await self.read_events()
            except OwnershipLost:
                return
            except StoreError as error:
                log.warning("notifications are late: %s", error)
                await asyncio.sleep(STORE_RETRY_S)
                continue
            except Exception:
                log.exception("notifications are late")
                await asyncio.sleep(STORE_RETRY_S)
                continue
            await self._has_events.wait()

    async def read_events(self) -> None:
        """Make messages of the events since the last call, and store them with the new position."""
        async with self._lock:
            outbox = self._load()
            hints, self._hints = self._hints, {}
            try:
                await self._read_stream(outbox, hints)
            except BaseException:
                self._hints = {**hints, **self._hints}
                raise
            for name in {message.channel for message in outbox.messages}:
                if self._find_channel(name) is not None:
                    self._has_messages[name].set()

    def _find_channel(self, name: str) -> Channel | None:
        """Return a channel; that to a person is opened with the first message to them."""
        if name not in self._channels and (channel := self._make_person_channel(name)) is not None:
            self._channels[name] = channel
            self._has_messages[name] = asyncio.Event()
            self._sent_at[name] = deque(maxlen=MAX_COUNTED_MESSAGES)
            self._tasks.append(spawn_detached(self._send_until_cancelled(name)))
        return self._channels.get(name)

    async def _read_stream(
        self, outbox: MessageOutbox, hints: Mapping[tuple[str, int], StreamedEvent]
    ) -> None:
        # Numbers of a store that was copied or restored are others, so only its times say what is new.
        position, since = outbox.position, max(outbox.read_at - CLOCK_SLACK_S, time.time() - MAX_AGE_S)
        end = self._stream.last_streamed(self._session)
        if end < position:
            # Deleted runs had the last numbers: what this process has committed since is in the hints.
            position = 0 if self._is_first_read else end
        self._is_first_read = False
        # The stream may have had an event before the watchers of the engine were called.
        read_before = frozenset().union(*self._recent_keys)
        events = {key: event for key, event in hints.items() if key not in read_before}
        while True:
            page = self._stream.streamed_events(self._session, position, MAX_READ_EVENTS, NOTIFIED_TYPES)
            events.update({(event.run, event.row.seq): event for event in page})
            if len(page) < MAX_READ_EVENTS:
                break
            position = page[-1].number
            await asyncio.sleep(0)  # runs continue meanwhile
        new = [
            selection
            for event in events.values()
            if event.row.at >= since
            for selector in self._selectors
            for selection in selector.select(event)
            if self._find_channel(selection.channel) is not None
        ]
        position = max([end, position, *(event.number for event in page[-1:])])
        for channel, notified, thread in new:
            outbox.add(channel, notified, time.time(), thread)
        if new or outbox.position != position:
            outbox.position, outbox.read_at = position, time.time()
            await self._save(outbox)
        self._recent_keys = (self._recent_keys[1], frozenset(events))

    def _load(self) -> MessageOutbox:
        if self._outbox is None:
            self._outbox = MessageOutbox.from_json(self._store.read_property(self._property))
        return self._outbox

    async def _save(self, outbox: MessageOutbox) -> None:
        """Store the outbox; the lock is held. A write waits for a disk, so it happens in a thread."""
        text = outbox.to_json()
        try:
            await DAEMON_THREADS.run(
                lambda text: self._store.write_property(self._property, text), text, lambda: None
            )
        except BaseException:
            self._outbox = None  # read again: what is in memory is not what is stored
            raise

    # -- from messages to people ---------------------------------------------------------------------

    async def _send_until_cancelled(self, name: str) -> None:
        news = self._has_messages[name]
        while True:
            news.clear()
            try:
                wait_s = await self._send_next(name)
            except OwnershipLost:
                return
            except StoreError as error:
                log.warning("notifications are late: %s", error)
                wait_s = STORE_RETRY_S
            except Exception:
                log.exception("notifications to '%s' are late", name)
                wait_s = STORE_RETRY_S
            if wait_s is None:
                await news.wait()
            elif wait_s > 0:
                await wait_for_event(news, wait_s)

    async def _send_next(self, name: str) -> float | None:
        """Try to send the next message to a channel; return the seconds until the next look at it.

        None waits for a message.
        """
        async with self._lock:
            message = next(self._load().messages_to(name), None)
            if message is None:
                return None
            now = time.time()
            is_chat = message.thread is not None
            if (wait_s := max(message.next_at - now, self._wait_for_period(name, is_chat))) > 0:
                return wait_s
            message.is_sealed = True
            self._busy.add(name)
        try:
            failure = await self._try_to_send(name, message)
            async with self._lock:
                await self._record_attempt(message, failure)
        finally:
            self._busy.discard(name)
            self._has_progress.set()
        return 0.0

    def _wait_for_period(self, name: str, is_chat: bool) -> float:
        """Return the seconds for which a channel has had enough messages."""
        now = time.monotonic()
        recent = [at for at in self._sent_at[name] if at > now - PERIOD_S]
        if self._is_closing or not recent:
            return 0.0
        doubled = 2.0 ** (len(recent) - 1)
        pause = (
            min(FIRST_THREAD_PAUSE_S * doubled, MAX_THREAD_PAUSE_S) if is_chat else FIRST_PAUSE_S * doubled
        )
        return recent[-1] + pause - now

    async def _try_to_send(self, name: str, message: NotifyMessage) -> DeliveryFailed | None:
        try:
            async with asyncio.timeout(2 * ATTEMPT_TIMEOUT_S):
                await self._channels[name].send(message)
        except DeliveryFailed as error:
            return error
        except TimeoutError:
            return DeliveryFailed(f"No end within {2 * ATTEMPT_TIMEOUT_S:g} s")
        except Exception as error:
            log.exception("channel '%s' failed", name)
            return DeliveryFailed(f"The channel failed: {type(error).__name__}")
        self._sent_at[name].append(time.monotonic())
        return None

    async def _record_attempt(self, message: NotifyMessage, failure: DeliveryFailed | None) -> None:
        outbox, now = self._load(), time.time()
        # After a failed write, the outbox was read again.
        stored = next((each for each in outbox.messages if each.id == message.id), None)
        if stored is None:
            return
        if failure is None:
            outbox.on_sent(stored, now)
        else:
            stored.attempts += 1
            stored.error = str(failure)
            pause = failure.retry_after
            if pause is None:
                pause = min(FIRST_RETRY_S * 2 ** (stored.attempts - 1), MAX_RETRY_S)
            stored.next_at = now + min(pause, MAX_RETRY_AFTER_S)
            is_old = now - stored.created_at > MAX_AGE_S
            if failure.is_final or is_old or stored.attempts >= MAX_ATTEMPTS:
                outbox.give_up(stored, now)
                log.warning("a message to '%s' was not delivered: %s", stored.channel, failure)
        await self._save(outbox)

    # -- messages of people ------------------------------------------------------------------------

    async def receive(self, message: UnansweredMessage) -> bool:
        """Store a message of a person; return whether it is new. It is durable then.

        TooManyMessages says that the chat has to deliver it again later.
        """
        async with self._lock:
            outbox = self._load()
            if any(each.key == message.key for each in outbox.received):
                return False
            if len(outbox.received) >= MAX_RECEIVED:
                raise TooManyMessages(f"{MAX_RECEIVED} messages wait for their replies")
            outbox.received.append(message)
            await self._save(outbox)
        self.has_received.set()
        return True

    async def list_received(self) -> list[UnansweredMessage]:
        """Return the messages of people that have no reply yet, oldest first."""
        async with self._lock:
            return list(self._load().received)

    async def read_shown_gates(self) -> Mapping[str, str]:
        """Return the hashes of what chats have shown of gates."""
        async with self._lock:
            return dict(self._load().shown)

    async def settle(self, message: UnansweredMessage, replies: Sequence[NotifiedEvent]) -> None:
        """Replace a message of a person by the replies to it, which are sent in its thread."""
        async with self._lock:
            outbox = self._load()
            outbox.settle(message.key)
            for reply in replies:
                outbox.add(message.channel, reply, time.time(), message.thread)
            await self._save(outbox)
        if (news := self._has_messages.get(message.channel)) is not None:
            news.set()

    # -- the end -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send what is due within some seconds; the next process sends the rest."""
        self._is_closing = True
        if self._tasks:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self.read_events()
                    for news in self._has_messages.values():
                        news.set()
                    while self._has_due_messages():
                        self._has_progress.clear()
                        await self._has_progress.wait()
            except (TimeoutError, StoreError) as error:
                log.debug("notifications are left to the next process: %s", error)
            await cancel_tasks(*self._tasks)
            self._tasks = []
        for channel in self._channels.values():
            await channel.close()

    def _has_due_messages(self) -> bool:
        messages = [] if self._outbox is None else self._outbox.messages
        now = time.time()
        is_waiting = any(
            message.channel in self._channels and message.attempts == 0 and message.next_at <= now
            for message in messages
        )
        return is_waiting or bool(self._busy)
