"""Runs of steps, a timer and an update, written by hand with temporalio; prints their CPU seconds.

Arguments: the address of the server, a namespace, the number of runs, the number of steps of each.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

TIMER_S = 0.05
CONCURRENCY = 10
WORKFLOW_QUEUE, ACTIVITY_QUEUE = "workflows", "activities"
STEP_TIMEOUT = timedelta(seconds=60)


@activity.defn
async def echo(value: int) -> int:
    return value


@workflow.defn
class Steps:
    """The first half of the steps, a timer, an answer, and the other half."""

    def __init__(self) -> None:
        self._answer: str | None = None

    @workflow.run
    async def run(self, steps: int) -> list[Any]:
        values: list[Any] = [await self._run_step(number) for number in range(steps // 2)]
        await asyncio.sleep(TIMER_S)
        await workflow.wait_condition(lambda: self._answer is not None)
        values += [await self._run_step(number) for number in range(steps // 2, steps)]
        return [*values, self._answer]

    async def _run_step(self, number: int) -> int:
        return await workflow.execute_activity(
            echo, number, task_queue=ACTIVITY_QUEUE, start_to_close_timeout=STEP_TIMEOUT
        )

    @workflow.update
    async def answer(self, value: str) -> str:
        self._answer = value
        return value


async def run_all(address: str, namespace: str, runs: int, steps: int) -> None:
    client = await Client.connect(address, namespace=namespace)
    limit = asyncio.Semaphore(CONCURRENCY)

    async def run_one() -> None:
        async with limit:
            handle: WorkflowHandle[Steps, list[Any]] = await client.start_workflow(
                Steps.run, steps, id=str(uuid.uuid4()), task_queue=WORKFLOW_QUEUE
            )
            await handle.execute_update(Steps.answer, "yes")
            assert await handle.result() == [*range(steps), "yes"]

    workflows = Worker(
        client, task_queue=WORKFLOW_QUEUE, workflows=[Steps], workflow_runner=UnsandboxedWorkflowRunner()
    )
    # Those of Nerve are on another queue, too: other machines have the programs and log-ins for them.
    activities = Worker(client, task_queue=ACTIVITY_QUEUE, activities=[echo])
    async with workflows, activities:
        await asyncio.gather(*(run_one() for _ in range(runs)))


if __name__ == "__main__":
    address, namespace, runs, steps = sys.argv[1:]
    began = time.process_time()
    asyncio.run(run_all(address, namespace, int(runs), int(steps)))
    print(time.process_time() - began, flush=True)
    os._exit(0)  # threads of temporalio can crash the interpreter while it ends
