"""Starts runs in a Temporal cluster whose workers are other processes."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import closing

from temporalio.client import Client

from bench.children.cluster_flows import register
from bench.children.temporal_runs import first_part
from nerve import Session
from nerve.engine.temporal.messages import WORKFLOW_TYPE, RunInput, body_queue
from nerve.engine.temporal.payloads import make_data_converter
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection

CONCURRENCY = 10
POLL_S = 0.2


async def execute_runs(address: str, namespace: str, url: str, workflow: str, runs: int, steps: int) -> int:
    """Return the number of events of the histories, when all runs have ended or wait at their gate."""
    session = Session()
    register(session)
    engine = f"temporal://{address}/{namespace}"
    with (
        closing(PostgresProjection(url, session.name, engine)) as projection,
        closing(PostgresStore(url, None)) as reader,
    ):
        converter = make_data_converter(projection)
        client = await Client.connect(address, namespace=namespace, data_converter=converter)
        return await execute_with(client, session, reader, workflow, runs, steps)


async def execute_with(
    client: Client, session: Session, reader: PostgresStore, workflow: str, runs: int, steps: int
) -> int:
    limit = asyncio.Semaphore(CONCURRENCY)

    async def execute_run() -> int:
        async with limit:
            run_id = str(uuid.uuid4())
            given = RunInput(session.name, run_id, [first_part(session, run_id, steps, workflow)])
            handle = await client.start_workflow(
                WORKFLOW_TYPE, given.to_data(), id=run_id, task_queue=body_queue(session.name)
            )
            if workflow == "park":
                while not any(wait.kind == "gate" for wait in reader.waits_of_run(run_id)):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
            else:
                await handle.result()
            return (await handle.describe()).history_length

    return sum(await asyncio.gather(*(execute_run() for _ in range(runs))))
