"""The workloads on Burr with its synchronous SQLite persister, which saves the state after each action."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from burr.core import Application, ApplicationBuilder, GraphBuilder, State, action, default, expr
from burr.core.persistence import SQLitePersister
from subject import main


@action(reads=["count"], writes=["count"])
def step(state: State) -> State:
    return state.update(count=state["count"] + 1)


@action(reads=[], writes=[])
def finish(state: State) -> State:
    return state


@action(reads=[], writes=["question"])
def ask(state: State) -> State:
    return state.update(question="Continue?")


@action(reads=[], writes=["answer"])
def take_answer(state: State, answer: str) -> State:
    return state.update(answer=answer)


STEPS_GRAPH = (
    GraphBuilder()
    .with_actions(step, finish)
    .with_transitions(("step", "step", expr("count < steps")), ("step", "finish", default))
    .build()
)
ASK_GRAPH = GraphBuilder().with_actions(ask, take_answer).with_transitions(("ask", "take_answer")).build()


class BurrSubject:
    durability = "power loss: rollback journal, synchronous FULL; the state after each action"
    gate_runs = 100
    persister: SQLitePersister

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        self.persister = SQLitePersister.from_values(str(folder / "burr.db"))
        self.persister.initialize()
        yield
        self.persister.cleanup()

    def build(self, graph: Any, first: str, **state: Any) -> Application[Any]:
        builder = ApplicationBuilder().with_graph(graph).with_entrypoint(first).with_state(**state)
        builder = builder.with_identifiers(app_id=str(uuid.uuid4()))
        return builder.with_state_persister(self.persister).build()

    async def run_steps(self, steps: int) -> None:
        self.build(STEPS_GRAPH, "step", count=0, steps=steps).run(halt_before=["finish"])

    async def start_gate(self) -> Any:
        app = self.build(ASK_GRAPH, "ask")
        app.run(halt_before=["take_answer"])
        return app

    async def answer_gate(self, run: Any) -> None:
        run.run(halt_after=["take_answer"], inputs={"answer": "yes"})


if __name__ == "__main__":
    main(BurrSubject())
