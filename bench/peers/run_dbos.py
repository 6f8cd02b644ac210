"""The workloads on DBOS with a SQLite file, as shipped: it polls for messages."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from subject import main

DAY_S = 86_400.0
gate_reached: dict[str, asyncio.Event] = {}


@DBOS.step()
async def echo(number: int) -> int:
    return number


@DBOS.workflow()
async def steps(number: int) -> None:
    for index in range(number):
        await echo(index)


@DBOS.workflow()
async def ask() -> Any:
    gate_reached[str(DBOS.workflow_id)].set()
    return await DBOS.recv_async("answer", timeout_seconds=DAY_S)


class DbosSubject:
    durability = "power loss: rollback journal, synchronous FULL; each step and message"
    gate_runs = 30

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        file = f"sqlite:///{folder / 'dbos.db'}"
        config: Any = {"name": "bench", "system_database_url": file, "log_level": "ERROR"}
        DBOS(config={**config, "run_admin_server": False})
        DBOS.launch()
        yield

    async def run_steps(self, number: int) -> None:
        await steps(number)

    async def start_gate(self) -> Any:
        run = str(uuid.uuid4())
        reached = gate_reached[run] = asyncio.Event()
        with SetWorkflowID(run):
            handle = await DBOS.start_workflow_async(ask)
        await reached.wait()
        del gate_reached[run]
        return handle

    async def answer_gate(self, run: Any) -> None:
        await DBOS.send_async(run.workflow_id, "yes", "answer")
        assert await run.get_result() == "yes"


main(DbosSubject())
