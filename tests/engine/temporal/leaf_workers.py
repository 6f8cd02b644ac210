"""Leaf workers as processes, and a workflow that does for one leaf what the engine does for a run.

Run as a program, it is a worker: ADDRESS NAMESPACE STORE PROJECT HEARTBEAT_TIMEOUT HOST QUEUE…
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy

from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import LEAF_ACTIVITY
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection

SESSION = "team"
WORKFLOW_QUEUE = "workflows"
HEARTBEAT_S = 2.0
TESTS = Path(__file__).parents[2]


@workflow.defn(name="execute-leaf", sandboxed=False)
class ExecuteLeaf:
    """Executes one leaf, and returns its result or how it was lost."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    @workflow.run
    async def run(self, leaf: dict[str, Any], queue: str) -> dict[str, Any]:
        return await workflow.execute_activity(  # type: ignore[no-any-return]
            LEAF_ACTIVITY,
            leaf,
            task_queue=queue,
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=100),
                maximum_attempts=1 if leaf.get("effect") == "once" else 0,
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    @workflow.update(name="command")
    async def command(self, data: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(data)
        path = data["arguments"].get("gate", {}).get("path", "")
        return {"version": 1, "value": {"path": path, "gate_id": "1"}}

    @workflow.query
    def received(self) -> list[dict[str, Any]]:
        return self.commands


class WorkerProcess:
    """A leaf worker in a process of its own, until the end of the `with` statement."""

    def __init__(self, address: str, namespace: str, store: str, project: Path, *queues: str) -> None:
        self._arguments = [address, namespace, store, str(project), str(HEARTBEAT_S), "a-host", *queues]

    def __enter__(self) -> WorkerProcess:
        self.process = subprocess.Popen(
            [sys.executable, __file__, *self._arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


async def until(is_true: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the first true value of a function."""
    deadline = time.monotonic() + seconds
    while not (value := is_true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
    return value


async def work(
    address: str, namespace: str, store: str, project: str, heartbeat: str, host: str, *queues: str
) -> None:
    from engine.temporal.leaf_project import open_project

    client = await Client.connect(address, namespace=namespace)
    projection, reader = PostgresProjection(store, SESSION, "temporal://test"), PostgresStore(store, None)
    executor = LeafExecutor(open_project(Path(project)), client, projection, reader, host or None)
    worker = LeafWorker(client, executor, queues, heartbeat_timeout=float(heartbeat))
    async with worker.running():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
