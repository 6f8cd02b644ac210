"""What one of the servers of a session in a cluster does: it starts runs for triggers, and sends messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from nerve.background_tasks import run_in_background, wait_for_event
from nerve.core.events import RUN_END_EVENTS
from nerve.errors import StoreError
from nerve.triggers import run_triggers

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.store.port import EventStream
    from nerve.telemetry.stream_telemetry import Leases
    from nerve.triggers import TriggerService

log = logging.getLogger("nerve")

LEASE_NAME = "(leader)"
"""The name of the lease among the slots of providers, whose names have no parentheses."""
LOOK_INTERVAL_S = 1.0
"""Seconds between two looks at the store without any news."""
MAX_READ_EVENTS = 500
"""Events that are read at once."""
RETRY_S = 5.0

ExecuteCommands = Callable[[], contextlib.AbstractAsyncContextManager[None]]
"""Executes the commands that other processes send to the leader, in a block."""


class ClusterLeader:
    """Takes the lead of a session when no other server has it, with everything on one event loop.

    A start has a key that derives from its occurrence, and a message has an id, so a server that lost the
    lead without noticing starts nothing twice.
    """

    def __init__(
        self, session: Session, stream: EventStream, leases: Leases, execute_commands: ExecuteCommands
    ) -> None:
        self._session, self._stream, self._leases = session, stream, leases
        self._execute_commands = execute_commands
        self._slot: str | None = None
        self._has_news = asyncio.Event()
        self.is_leading = False
        """Whether this server executes the commands for triggers."""

    def wake(self) -> None:
        """Look for events now."""
        self._has_news.set()

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Take the lead inside the block, as soon as no other server has it."""
        async with run_in_background(self._lead_until_cancelled()):
            yield

    async def _lead_until_cancelled(self) -> None:
        while True:
            slot = self._slot = await self._leases.acquire(LEASE_NAME, 1)
            try:
                await self._lead()
            except StoreError as error:
                log.warning("triggers and notifications are late: %s", error)
            except Exception:
                log.exception("triggers and notifications are late")
            finally:
                self._slot = None
                await self._leases.release(slot)
            await asyncio.sleep(RETRY_S)

    async def _lead(self) -> None:
        session, name = self._session, self._session.name
        position, facts = self._stream.last_streamed(name), session.engine.store.fact_version(name)
        async with contextlib.AsyncExitStack() as stack:
            if (notifier := session.open_notifier()) is not None:
                stack.push_async_callback(notifier.close)
            service = await stack.enter_async_context(run_triggers(session))
            await stack.enter_async_context(self._execute_commands())
            self.is_leading = True
            stack.callback(setattr, self, "is_leading", False)
            log.info("this server starts the runs of triggers and sends notifications")
            while self._has_lease:
                self._has_news.clear()
                position = self._report_ended_runs(service, position)
                if notifier is not None:
                    notifier.wake()
                if (version := session.engine.store.fact_version(name)) != facts:
                    # Observations of facts end, and begin again with those that other servers have asserted.
                    session.engine.forget_dataspace()
                    facts = version
                await wait_for_event(self._has_news, LOOK_INTERVAL_S)

    @property
    def _has_lease(self) -> bool:
        return self._slot is not None and self._leases.is_held(self._slot)

    def _report_ended_runs(self, service: TriggerService, position: int) -> int:
        """Tell the triggers of the runs that have ended after an event; return the last event."""
        name = self._session.name
        while events := self._stream.streamed_events(name, position, MAX_READ_EVENTS, RUN_END_EVENTS):
            for event in events:
                service.on_run_ended(event.run)
            position = events[-1].number
        return position
