"""What a Temporal cluster says about the workers and runs of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from nerve.engine.temporal.client import connect_client
from nerve.engine.temporal.leaf_worker import OTHER_LEAVES
from nerve.engine.temporal.messages import body_queue, leaf_queue
from nerve.engine.temporal.stuck_runs import StuckRun, find_stuck_runs
from nerve.engine.temporal.worker_builds import describe_deployment
from nerve.project.engine_url import TemporalAddress

if TYPE_CHECKING:
    from temporalio.client import Client


class SessionReport(NamedTuple):
    """The workers of a session that have asked for tasks in the last minutes, and its stuck runs."""

    session: str
    body_workers: int
    leaf_workers: dict[str, int]
    """Those of each provider, and of `bash`: all steps that are not agents."""
    missing_build: str | None
    """The build that gets all new runs, if there are body workers, but none of it."""
    stuck_runs: list[StuckRun]


async def inspect_cluster(
    address: TemporalAddress, sessions: Iterable[str], providers: Iterable[str]
) -> list[SessionReport]:
    """Return the state of sessions; EngineUnavailable if the cluster cannot be used."""
    client = await connect_client(address)
    reports: list[SessionReport] = []
    for session in sessions:
        bodies = await find_pollers(client, body_queue(session), TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        queues = {OTHER_LEAVES: leaf_queue(session)} | {name: leaf_queue(session, name) for name in providers}
        counts = [
            find_pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY) for queue in queues.values()
        ]
        leaves = dict(zip(queues, map(count_workers, await asyncio.gather(*counts)), strict=True))
        missing = await find_missing_build(client, session, bodies)
        stuck = await find_stuck_runs(client, session)
        reports.append(SessionReport(session, count_workers(bodies), leaves, missing, stuck))
    return reports


async def find_missing_build(client: Client, session: str, bodies: Sequence[PollerInfo]) -> str | None:
    """Return the build that gets all new runs, if none of the body workers is of it."""
    deployment = await describe_deployment(client, session)
    if deployment is None or not bodies:
        return None
    routing = deployment.worker_deployment_info.routing_config
    build: str = routing.current_deployment_version.build_id
    is_there = any(poller.deployment_options.build_id == build for poller in bodies)
    return None if is_there or not build else build


def count_workers(pollers: Iterable[PollerInfo]) -> int:
    return len({poller.identity for poller in pollers})


async def find_pollers(client: Client, queue: str, kind: TaskQueueType.ValueType) -> Sequence[PollerInfo]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    described = await client.workflow_service.describe_task_queue(request)
    pollers: Sequence[PollerInfo] = described.pollers
    return pollers
