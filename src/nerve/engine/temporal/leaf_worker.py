"""A leaf worker: polls the queues of its leaves, and ends them if it is cut off from Temporal."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.service import RPCError
from temporalio.worker import Worker

from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.messages import host_queue, leaf_queue

if TYPE_CHECKING:
    from temporalio.client import Client

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_S = 10.0
"""After this time without a heartbeat, Temporal gives a leaf to another worker."""
THROTTLE = timedelta(seconds=1)
"""How often heartbeats are sent at most; a cancellation arrives with the reply to one."""
CUT_OFF_SHARE = 0.5
"""The part of this time after which a worker that cannot reach Temporal ends its leaves.

The last heartbeat can be a third of this time older than the cut. In what is left, processes must end, so
that they are gone when another worker gets the leaf, or a stop is acknowledged.
"""
WATCHDOG_CHECKS = 20
"""How often a worker asks whether Temporal can be reached, within the time of a heartbeat."""
DEFAULT_LEAF_SLOTS = 20


class LeafWorker:
    """Executes leaves until it is closed."""

    def __init__(
        self,
        client: Client,
        executor: LeafExecutor,
        queues: Sequence[str],
        slots: int = DEFAULT_LEAF_SLOTS,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT_S,
    ) -> None:
        """`slots` is the maximum number of concurrent leaves of each queue."""
        self._client, self._executor, self._heartbeat_timeout = client, executor, heartbeat_timeout
        self._workers = [make_worker(client, executor, queue, slots) for queue in queues]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Execute leaves inside the block; at its end, the running leaves are interrupted."""
        async with AsyncExitStack() as stack:
            watchdog = asyncio.ensure_future(self._watch_connection())
            stack.callback(watchdog.cancel)
            for worker in self._workers:
                await stack.enter_async_context(worker)
            yield

    async def _watch_connection(self) -> None:
        """Interrupt all leaves when Temporal cannot be reached: it gives them to other workers."""
        limit, pause = CUT_OFF_SHARE * self._heartbeat_timeout, self._heartbeat_timeout / WATCHDOG_CHECKS
        reached = time.monotonic()
        while True:
            asked = time.monotonic()
            # A server that is slow, but replies before the limit, has been reached.
            patience = max(pause, reached + limit - asked)
            try:
                await self._client.service_client.check_health(timeout=timedelta(seconds=patience))
                reached = asked
            except RPCError as error:
                log.debug("Temporal cannot be reached: %s", error)
            is_cut_off = time.monotonic() - reached >= limit
            if is_cut_off and self._executor.running_count:
                log.error("Temporal cannot be reached: %d leaves end", self._executor.running_count)
                self._executor.interrupt_all("Temporal cannot be reached")
            await asyncio.sleep(pause)


def make_worker(client: Client, executor: LeafExecutor, queue: str, slots: int) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        activities=[executor.execute, executor.close_workspaces],
        max_concurrent_activities=slots,
        max_heartbeat_throttle_interval=THROTTLE,
        default_heartbeat_throttle_interval=THROTTLE,
        disable_eager_activity_execution=True,
    )


OTHER_LEAVES = "bash"
"""The name of all leaves that are not agents: commands, functions, facts."""


def queues_of(session: str, leaves: Sequence[str], host: str) -> list[str]:
    """Return the queues of a worker for some leaves: providers, and `bash` for all others."""
    queues = [leaf_queue(session, None if name == OTHER_LEAVES else name) for name in leaves]
    return [*dict.fromkeys(queues), host_queue(session, host)]


def host_name() -> str:
    """Return the name of this machine as part of the name of a queue."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
