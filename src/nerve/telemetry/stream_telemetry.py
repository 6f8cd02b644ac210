"""The telemetry of a session whose runs other processes execute, read from the events in its store.

Of all servers, one sends: the one with the lease. The store has the number of the last event whose spans
the collector has confirmed, so the next server continues there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from nerve.background_tasks import cancel_tasks, wait_for_event
from nerve.errors import JournalBroken, StoreError
from nerve.store.port import EventStream, StreamedEvent
from nerve.telemetry.span_exporter import export_interval_s
from nerve.telemetry.telemetry import FLUSH_TIMEOUT_S, Telemetry, run_in_daemon_thread

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine
    from nerve.project.config import TelemetrySettings

log = logging.getLogger("nerve")

LEASE_NAME = "(telemetry)"
"""The name of the lease among the slots of providers, whose names have no parentheses."""
LEASE_S = 5.0
"""Seconds after which another server sends the spans of one that is gone."""
MAX_READ_EVENTS = 500
"""Events that are read at once; their spans fit into the queue of the exporter."""
MAX_PAUSE_S = 1.0
"""The longest pause between two looks at the store."""
MAX_RETRY_PAUSE_S = 30.0
MAX_FLUSH_S = 60.0
"""Seconds for which a collector that does not answer is waited for, before the spans are sent again."""
MAX_REFUSED_S = 600.0
"""Seconds after which spans are dropped that the collector does not accept."""


class Leases(Protocol):
    """Leases that the processes of a session share."""

    async def acquire(self, provider: str, number: int) -> str: ...

    def is_held(self, slot: str) -> bool: ...

    async def release(self, slot: str) -> None: ...


class StreamTelemetry(Telemetry):
    """Sends the spans and metrics of all runs of a session while this process has the lease."""

    def __init__(
        self,
        engine: LocalEngine,
        session: str,
        settings: TelemetrySettings,
        get_metrics: Any,
        stream: EventStream,
        leases: Leases,
    ) -> None:
        super().__init__(engine, session, settings, get_metrics, is_encoded=False)
        self._stream, self._leases = stream, leases
        self._property = f"telemetry_sent_events {session}"
        self._slot: str | None = None
        self._has_changed = asyncio.Event()

    @property
    def is_sending(self) -> bool:
        """Whether this process sends."""
        return self._slot is not None and self._leases.is_held(self._slot)

    def wake(self) -> None:
        """Look for events now."""
        self._has_changed.set()

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send inside the block, if no other process does; at its end, what is there is sent."""
        task = asyncio.ensure_future(self._send_until_cancelled())
        try:
            yield
        finally:
            await cancel_tasks(task)
            if self.is_sending:
                # What the collector does not accept in time, the next process sends.
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(FLUSH_TIMEOUT_S):
                        await self._send_available(self._read_position())
            await self.flush()
            if self._slot is not None:
                await self._leases.release(self._slot)
            await self.close()

    async def _send_until_cancelled(self) -> None:
        while True:
            self._slot = await self._leases.acquire(LEASE_NAME, 1)
            log.debug("this process sends the telemetry")
            try:
                await self._send_while_leader()
            except Exception:
                log.exception("telemetry could not be sent")
                await asyncio.sleep(MAX_RETRY_PAUSE_S)

    async def _send_while_leader(self) -> None:
        position: int | None = None
        _ = self.export  # metrics are sent also without any span
        while self.is_sending:
            self._has_changed.clear()
            try:
                if position is None:
                    position = self._read_position()
                position = await self._send_available(position)
            except StoreError as error:
                log.warning("telemetry is late: %s", error)
                position = None
            await wait_for_event(self._has_changed, MAX_PAUSE_S)
            # Spans wait for others, so that few requests and few commits are needed.
            await asyncio.sleep(export_interval_s())

    def _read_position(self) -> int:
        """Return the last event that was sent; the first process begins with what happens from now on."""
        # What this process has read is not what another one has sent since.
        self._runs.clear()
        if (text := self._engine.store.read_property(self._property)) is not None:
            return int(text)
        position = self._stream.last_streamed(self._session)
        self._engine.store.write_property(self._property, str(position))
        return position

    async def _send_available(self, position: int) -> int:
        """Send what is in the store after an event; return the last event that was sent."""
        while events := self._stream.streamed_events(self._session, position, MAX_READ_EVENTS):
            if not await self._send_confirmed(events):
                return position
            position = events[-1].number
            self._engine.store.write_property(self._property, str(position))
        return position

    async def _send_confirmed(self, events: Sequence[StreamedEvent]) -> bool:
        """Send the spans that events end until the collector has them; return whether they are done with."""
        began, pause = time.monotonic(), max(0.01, export_interval_s())
        while True:
            self._has_failed_since_mark = False
            self._read_events(events)
            is_sent = await run_in_daemon_thread(self.export.flush, MAX_FLUSH_S)
            if is_sent and not self._has_failed_since_mark:
                return True
            # The spans of these events are read again.
            self._runs.clear()
            if time.monotonic() - began > MAX_REFUSED_S:
                log.error("spans up to event %d were not accepted and are dropped", events[-1].number)
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_PAUSE_S)
            if not self.is_sending:
                return False

    def _read_events(self, events: Sequence[StreamedEvent]) -> None:
        for run_id, of_run in groupby(events, lambda event: event.run):
            try:
                self._read_rows(run_id, [event.row for event in of_run])
            except JournalBroken as error:
                log.warning("the trace of run %s is incomplete: %s", run_id, error)

    async def _send_metrics(self) -> None:
        if self.is_sending:
            await super()._send_metrics()

    # -- the position takes the place of the mark ----------------------------------------------------

    def _begin_mark(self) -> None:
        pass

    async def _end_mark(self) -> None:
        pass

    def _on_sent(self, until: float, count: int) -> None:
        self.sent_spans += count
