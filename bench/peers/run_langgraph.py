"""The workloads on LangGraph with its SQLite checkpointer, each checkpoint written before the next step."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from subject import main


class StepsState(TypedDict):
    count: int
    steps: int


class AskState(TypedDict):
    answer: str


async def step(state: StepsState) -> dict[str, int]:
    return {"count": state["count"] + 1}


def choose_next(state: StepsState) -> str:
    return "step" if state["count"] < state["steps"] else END


def ask(state: AskState) -> dict[str, str]:
    return {"answer": interrupt("Continue?")}


class LangGraphSubject:
    durability = (
        "power loss: WAL, synchronous FULL; durability='sync' (shipped: 'async', the last may be lost)"
    )
    gate_runs = 100
    steps_graph: Any
    ask_graph: Any

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
            steps_builder = StateGraph(StepsState).add_node("step", step).add_edge(START, "step")
            self.steps_graph = steps_builder.add_conditional_edges("step", choose_next).compile(saver)
            ask_builder = StateGraph(AskState).add_node("ask", ask).add_edge(START, "ask")
            self.ask_graph = ask_builder.compile(saver)
            yield

    def config(self, steps: int = 1) -> dict[str, Any]:
        return {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": steps + 10}

    async def run_steps(self, steps: int) -> None:
        start = {"count": 0, "steps": steps}
        await self.steps_graph.ainvoke(start, self.config(steps), durability="sync")

    async def start_gate(self) -> Any:
        config = self.config()
        await self.ask_graph.ainvoke({"answer": ""}, config, durability="sync")
        return config

    async def answer_gate(self, run: Any) -> None:
        state = await self.ask_graph.ainvoke(Command(resume="yes"), run, durability="sync")
        assert state["answer"] == "yes", state


main(LangGraphSubject())
