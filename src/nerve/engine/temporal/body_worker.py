"""A body worker: executes the workflows of a session, and writes their rows to the projection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from temporalio import activity
from temporalio.worker import Worker

from nerve.core.nodes.base import NodeRegistry
from nerve.engine.temporal.cluster_facts import ClusterFacts, FactLook, StoredFacts
from nerve.engine.temporal.cluster_queues import ClusterQueues, SlotDelivery, StoredQueues
from nerve.engine.temporal.command_delivery import CommandDelivery
from nerve.engine.temporal.fact_delivery import FactDelivery
from nerve.engine.temporal.messages import (
    APPEND_ACTIVITY,
    SHARED_STATE_ACTIVITY,
    AppendInput,
    SharedStateInput,
    SharedStateResult,
    body_queue,
    group_by_run,
)
from nerve.engine.temporal.run_workflow import HostedSession, RunWorkflow, hosted_sessions
from nerve.engine.temporal.serial_runner import SerialWorkflowRunner
from nerve.engine.temporal.worker_builds import deployment_config, promote_build
from nerve.store.port import Append, Store
from nerve.store.postgres_queues import StoredEntry

if TYPE_CHECKING:
    from temporalio.client import Client

log = logging.getLogger(__name__)
T = TypeVar("T")
NOT_PROMOTED = (
    "This worker is of build %s. It gets no new runs, because they go to build %s: start it with --promote."
)
STICKY_TIMEOUT = timedelta(seconds=2)
"""After this time, another worker gets the tasks of one that has ended."""
MAX_CACHED_WORKFLOWS = 1000


class JournalProjection(Protocol):
    """Where the rows of runs are written; blocks, and can be called from any thread."""

    def append(self, run: str, parts: list[Append]) -> int: ...

    def with_facts(self, work: Callable[[StoredFacts], T]) -> T: ...

    def with_queues(self, work: Callable[[StoredQueues], T]) -> T: ...

    def has_waiting_entries(self) -> bool: ...


class ProjectionActivities:
    """The activities of body workers."""

    def __init__(self, projection: JournalProjection, facts: FactDelivery, slots: SlotDelivery) -> None:
        self._projection, self._facts, self._slots = projection, facts, slots

    @activity.defn(name=APPEND_ACTIVITY)
    async def append(self, data: dict[str, Any]) -> None:
        """Write parts of journals; what fails is repeated by Temporal."""
        await self._append(AppendInput.from_data(data).journal)

    async def _append(self, journal: Sequence[Append]) -> None:
        for run, parts in group_by_run(journal):
            await asyncio.to_thread(self._projection.append, run, parts)

    @activity.defn(name=SHARED_STATE_ACTIVITY)
    async def exchange(self, data: dict[str, Any]) -> dict[str, Any]:
        """Change and read shared state; runs that continue hear of it later, since one may be this one."""
        given = SharedStateInput.from_data(data)
        await self._append(given.journal)
        matches = await self._exchange_facts(given) if given.looks or given.changes or given.ended else []
        has_slot: list[bool] = []
        if given.entries or given.left:
            entries = [to_stored_entry(given.family, each) for each in given.entries]
            left = [(run, path, asked) for run, path, asked in given.left]
            has_slot, granted = await asyncio.to_thread(self._slots.queues.exchange, left, entries)
            if granted:
                self._slots.commands.start(self._slots.deliver(granted))
        return SharedStateResult(matches, has_slot).to_data()

    async def _exchange_facts(self, given: SharedStateInput) -> list[dict[str, Any] | None]:
        facts = self._facts.facts
        for asserted, retracted, by in given.changes:
            change = await asyncio.to_thread(facts.change, asserted, retracted, by)
            if change.settled:
                self._facts.commands.start(self._facts.deliver(change.settled))
        looks = [FactLook(*each) for each in given.looks]
        ended = [(run, path) for run, path in given.ended]
        return await asyncio.to_thread(facts.look, given.family, looks, ended)


def to_stored_entry(family: str, values: Sequence[Any]) -> StoredEntry:
    """Return an entry of a queue from what a workflow has sent."""
    run, path, queue, key, *limits = values
    return StoredEntry(run, path, queue, key, family, *limits)


@asynccontextmanager
async def run_body_worker(
    client: Client,
    session: NodeRegistry,
    make_store: Callable[[], Store],
    projection: JournalProjection,
    max_cached_workflows: int = MAX_CACHED_WORKFLOWS,
    build_id: str | None = None,
    *,
    is_promoted: bool = False,
) -> AsyncIterator[Worker]:
    """Execute the workflows of a session inside the block; with a build, only those of this build.

    A promoted build gets new runs instead of another one.
    """
    hosted_sessions[session.name] = HostedSession(session, make_store)
    commands = CommandDelivery(client)
    facts = FactDelivery(commands, ClusterFacts(projection, session.name))
    slots = SlotDelivery(commands, ClusterQueues(projection, session.name))
    activities = ProjectionActivities(projection, facts, slots)
    worker = Worker(
        client,
        task_queue=body_queue(session.name),
        workflows=[RunWorkflow],
        activities=[activities.append, activities.exchange],
        workflow_runner=SerialWorkflowRunner(),
        max_cached_workflows=max_cached_workflows,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        deployment_config=None if build_id is None else deployment_config(session.name, build_id),
    )
    async with worker, commands.running(facts.deliver_left, slots.grant_left):
        if build_id is not None:
            current = await promote_build(client, session.name, build_id, replaces=is_promoted)
            if current != build_id:
                log.warning(NOT_PROMOTED, build_id, current)
        yield worker
