"""Runs of steps, a timer and a gate, executed by Nerve's Temporal engine; prints their CPU seconds.

Arguments: the address of the server, a namespace, the URL of the store, the number of runs, the number of
steps of each. The worker of bodies, the worker of leaves and the client are in this process, as in the
program that is written by hand.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid

from temporalio.client import Client

from nerve import FunctionNode, Session, WorkflowContext
from nerve.core.limits import Limits
from nerve.engine.hosted_engines import HostedEngines
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import (
    COMMAND_UPDATE,
    WORKFLOW_TYPE,
    RunCommand,
    RunCommandReply,
    RunInput,
    body_queue,
    leaf_queue,
)
from nerve.engine.temporal.payloads import make_data_converter
from nerve.engine.temporal.worker_builds import compute_build_id
from nerve.journal.events import RunStarted
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, Definition, EventRow, RunRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection

TIMER_S = 0.05
CONCURRENCY = 10
POLL_S = 0.2


def open_session() -> Session:
    session = Session("bench")
    FunctionNode("echo", session, lambda context: context.input)

    @session.workflow
    async def steps(ctx: WorkflowContext) -> list[object]:
        values = [(await ctx.run("echo", number)).output for number in range(ctx.input // 2)]
        await ctx.sleep(TIMER_S)
        answer = await ctx.gate("Continue?")
        values += [(await ctx.run("echo", number)).output for number in range(ctx.input // 2, ctx.input)]
        return [*values, answer]

    return session


def first_part(session: Session, run_id: str, steps: int, name: str = "steps") -> Append:
    """Return the journal of a run that has just been started."""
    workflow = session.find_startable(name)
    assert workflow is not None
    hash, source, canonical = workflow.definition()
    limits = Limits.of(workflow.limits).to_dict()
    start = RunStarted(run_id, workflow.name, [], steps, {}, session.name, hash, run_id, limits)
    at = time.time()
    return Append(
        run_id,
        0,
        [EventRow(1, at, "workflow_started", "", None, start.encode())],
        RunRow(run_id, session.name, workflow.name, "running", at, definition=hash),
        Definition(hash, workflow.name, workflow.kind, source, canonical),
    )


async def run_all(address: str, namespace: str, url: str, runs: int, steps: int) -> None:
    session = open_session()
    session.use_engine(HostedEngines())
    projection = PostgresProjection(url, session.name, f"temporal://{address}/{namespace}")
    reader = PostgresStore(url, None)
    client = await Client.connect(
        address, namespace=namespace, data_converter=make_data_converter(projection)
    )
    limit = asyncio.Semaphore(CONCURRENCY)

    async def run_one() -> None:
        async with limit:
            run_id = str(uuid.uuid4())
            given = RunInput(session.name, run_id, [first_part(session, run_id, steps)])
            handle = await client.start_workflow(
                WORKFLOW_TYPE, given.to_data(), id=run_id, task_queue=body_queue(session.name)
            )
            while not any(wait.kind == "gate" for wait in reader.waits_of_run(run_id)):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)  # as an API server does that missed a notification
            command = RunCommand("answer", run_id, {"value": "yes"})
            data = await handle.execute_update(COMMAND_UPDATE, command.to_data())
            assert RunCommandReply.from_data(data).error is None, data
            assert (await handle.result())["state"] == "completed"

    executor = LeafExecutor(session, client, projection, reader)
    leaves = LeafWorker(client, executor, [leaf_queue(session.name)])
    # With a build id, as `nerve worker --bodies` has it.
    bodies = run_body_worker(client, session, MemoryStore, projection, build_id=compute_build_id(session))
    async with bodies, leaves.running():
        await asyncio.gather(*(run_one() for _ in range(runs)))


if __name__ == "__main__":
    address, namespace, url, runs, steps = sys.argv[1:]
    began = time.process_time()
    asyncio.run(run_all(address, namespace, url, int(runs), int(steps)))
    print(time.process_time() - began, flush=True)
    os._exit(0)  # threads of temporalio can crash the interpreter while it ends
