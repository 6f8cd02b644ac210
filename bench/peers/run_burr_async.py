"""The workloads on Burr with its asynchronous SQLite persister."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from burr.core import Application, ApplicationBuilder
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from run_burr import ASK_GRAPH, STEPS_GRAPH
from subject import main


class AsyncBurrSubject:
    durability = "power loss: rollback journal, synchronous FULL; the state after each action"
    gate_runs = 100
    persister: AsyncSQLitePersister

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        self.persister = await AsyncSQLitePersister.from_values(str(folder / "burr.db"))
        await self.persister.initialize()
        yield
        await self.persister.cleanup()

    async def build(self, graph: Any, first: str, **state: Any) -> Application[Any]:
        builder = ApplicationBuilder().with_graph(graph).with_entrypoint(first).with_state(**state)
        builder = builder.with_identifiers(app_id=str(uuid.uuid4()))
        return await builder.with_state_persister(self.persister).abuild()

    async def run_steps(self, steps: int) -> None:
        app = await self.build(STEPS_GRAPH, "step", count=0, steps=steps)
        await app.arun(halt_before=["finish"])

    async def start_gate(self) -> Any:
        app = await self.build(ASK_GRAPH, "ask")
        await app.arun(halt_before=["take_answer"])
        return app

    async def answer_gate(self, run: Any) -> None:
        await run.arun(halt_after=["take_answer"], inputs={"answer": "yes"})


main(AsyncBurrSubject())
