"""Typed steps: a call of a `@session.step` beside a `ctx.run` of a node that does the same."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Line, Pair, at_most, measure_pair, temporary_folder
from nerve import ExecutionContext, FunctionNode, Session, WorkflowContext
from nerve.store.sqlite import SqliteStore

STEPS = 1000


@dataclass
class Order:
    sku: str
    count: int


def make_session(folder: Path) -> Session:
    session = Session("bench", SqliteStore(folder / "steps.db"))

    async def count_in_context(context: ExecutionContext) -> int:
        return int(context.input["number"]) + 1

    FunctionNode("count_plain", session, count_in_context)

    async def ship_in_context(context: ExecutionContext) -> dict[str, object]:
        order = context.input["order"]
        return {"sku": order["sku"], "count": order["count"] + 1}

    FunctionNode("ship_plain", session, ship_in_context)

    @session.step
    async def count(number: int) -> int:
        return number + 1

    @session.step
    async def ship(order: Order) -> Order:
        return Order(order.sku, order.count + 1)

    @session.workflow
    async def count_with_nodes(ctx: WorkflowContext) -> None:
        for number in range(STEPS):
            await ctx.run("count_plain", {"number": number})

    @session.workflow
    async def count_with_steps(ctx: WorkflowContext) -> None:
        for number in range(STEPS):
            await count(number)

    @session.workflow
    async def ship_with_nodes(ctx: WorkflowContext) -> None:
        for number in range(STEPS):
            await ctx.run("ship_plain", {"order": {"sku": "tea", "count": number}})

    @session.workflow
    async def ship_with_steps(ctx: WorkflowContext) -> None:
        for number in range(STEPS):
            await ship(Order("tea", number))

    return session


def measure_steps(workflow: str, directory: Path) -> float:
    """Return the processor seconds of one step, which other programs disturb less than elapsed time."""

    async def run() -> float:
        async with make_session(folder) as session:
            began = time.process_time()
            await (await session.start(workflow)).wait()
            return (time.process_time() - began) / STEPS

    with temporary_folder(directory) as folder:
        return asyncio.run(run())


def measure_typed(kind: str, rounds: int, directory: Path) -> Pair:
    return measure_pair(
        rounds,
        lambda: measure_steps(f"{kind}_with_steps", directory),
        lambda: measure_steps(f"{kind}_with_nodes", directory),
    )


def measure(rounds: int, directory: Path) -> list[Line]:
    lines = []
    for kind, what in (("count", "of an integer"), ("ship", "of a dataclass")):
        pair = measure_typed(kind, rounds, directory)
        ours, limit = (seconds * 1e6 for seconds in pair.medians)
        text = f"a typed step {what}; ctx.run of a node with JSON"
        lines.append(Line("typed", text, "µs CPU a step", ours, limit, pair.ratio, at_most(pair.ratios, 1.1)))
    return lines
