"""Commands that a process sends to the workflows of runs that it does not execute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from nerve.engine.temporal.messages import COMMAND_UPDATE, RunCommand, RunCommandReply
from nerve.errors import NerveError

if TYPE_CHECKING:
    from temporalio.client import Client

log = logging.getLogger(__name__)

MAX_CONCURRENT_COMMANDS = 20
DELIVERY_TIMEOUT_S = 10.0
"""How long commands may take; a body worker sends the others later."""

Arrival = Literal["taken", "ended", "later"]
"""Whether a run has taken a command, has no workflow any more, or does not know it yet."""


class CommandDelivery:
    """Sends commands, and works in the background until the end of `running`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_COMMANDS)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def send(self, commands: Sequence[tuple[str, RunCommand]]) -> list[Arrival]:
        """Send commands to the workflows of families; return whether each has arrived."""
        if not commands:
            return []
        sending = [asyncio.ensure_future(self._send(*each)) for each in commands]
        try:
            await asyncio.wait(sending, timeout=DELIVERY_TIMEOUT_S)
        finally:
            for task in sending:
                task.cancel()
        return [task.result() if task.done() and not task.cancelled() else "later" for task in sending]

    async def _send(self, family: str, command: RunCommand) -> Arrival:
        handle = self._client.get_workflow_handle(family)
        async with self._slots:
            try:
                data = await handle.execute_update(COMMAND_UPDATE, command.to_data())
            except RPCError as failure:
                if failure.status is RPCStatusCode.NOT_FOUND:
                    return "ended"
                log.warning("Run %s gets the command '%s' later: %s", command.run_id, command.verb, failure)
                return "later"
            except (WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError) as failure:
                log.warning("Run %s gets the command '%s' later: %s", command.run_id, command.verb, failure)
                return "later"
        if (error := RunCommandReply.from_data(data).error) is not None:
            # It asks again when it continues.
            log.warning("Run %s cannot take the command '%s': %s", command.run_id, command.verb, error)
        return "taken"

    async def is_running(self, family: str) -> bool:
        """Whether a family has a workflow that has not ended."""
        try:
            description = await self._client.get_workflow_handle(family).describe()
        except RPCError as error:
            return error.status is not RPCStatusCode.NOT_FOUND
        return description.close_time is None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do some work in the background; what fails is left to the body workers."""
        task = asyncio.ensure_future(self._work_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work_quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except NerveError as error:
            log.warning("Some runs continue later: %s", error)

    @asynccontextmanager
    async def running(self, *jobs: Callable[[], Coroutine[Any, Any, float]]) -> AsyncIterator[None]:
        """Do the jobs inside the block, again and again, each after the seconds that it returns."""
        tasks = [asyncio.ensure_future(self._repeat(job)) for job in jobs]
        try:
            yield
        finally:
            tasks += self._tasks
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _repeat(self, job: Callable[[], Coroutine[Any, Any, float]]) -> None:
        pause = 0.0
        while True:
            try:
                pause = await job()
            except (NerveError, RPCError) as error:
                log.warning("The runs that wait cannot be continued: %s", error)
                pause = max(pause, 1.0)
            await asyncio.sleep(pause)
