"""Random workflow functions: small programs, and the interpreter that runs them against a context."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from nerve import FunctionNode, Graph, Session, WorkflowContext
from nerve.core.json_codec import decode_json
from nerve.core.nodes.control import GateNode, LoopNode, MapNode, ParallelNode
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, RunRow

BLIND = ("call", "fail", "gate", "emit", "clock", "sleep", "map", "graph", "child", "seq", "gather", "loop")
SIGHTED = (
    *(*BLIND, "look", "as_completed", "race", "first", "give_up"),
    *("spin", "hops", "cancel_others", "bounded", "shielded"),
)
BRANCHING = ("seq", "gather", "as_completed", "first", "cancel_others", "bounded", "shielded")


def programs(kinds: tuple[str, ...] = SIGHTED) -> st.SearchStrategy[Any]:
    """A program is a kind and its parts; the leaves carry a number."""
    leaves = st.tuples(st.sampled_from([k for k in kinds if k not in BRANCHING]), st.integers(0, 9))
    branching = st.sampled_from([k for k in kinds if k in BRANCHING])
    return st.recursive(
        leaves, lambda inner: st.tuples(branching, st.lists(inner, min_size=1, max_size=4)), max_leaves=9
    )


@dataclass
class World:
    """What the leaves of a program have done, and how many loop turns each takes."""

    delays: list[int]
    done: list[tuple[str, str]] = field(default_factory=list)

    async def work(self, context: Any) -> Any:
        self.done.append((context.run_id, context.path))
        turns = self.delays[len(self.done) % len(self.delays)] if self.delays else 0
        try:
            await spin(turns)
        except asyncio.CancelledError:
            await spin(turns * 2)  # it takes time to end
            raise
        return {"n": number(context.input), "at": context.path}


async def spin(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def number(value: Any) -> int:
    """Return a number that depends on all numbers in a value, but not on the paths in it."""
    if isinstance(value, dict):
        return sum(number(item) for item in value.values()) + 1
    if isinstance(value, list):
        return sum((place + 1) * number(item) for place, item in enumerate(value)) + 1
    return value if isinstance(value, int) else 0


async def interpret(ctx: WorkflowContext, program: Any) -> Any:
    kind, rest = program
    match kind:
        case "seq":
            return [await interpret(ctx, part) for part in rest]
        case "gather":
            return list(await asyncio.gather(*(interpret(ctx, part) for part in rest)))
        case "as_completed":
            tasks = [asyncio.ensure_future(interpret(ctx, part)) for part in rest]
            return [await next_one for next_one in asyncio.as_completed(tasks)]
        case "race":
            calls = [ctx.run("work", n) for n in range(rest)]
            return [(await next_one)["output"] for next_one in asyncio.as_completed(calls)]
        case "first":
            return await first(ctx, rest)
        case "give_up":
            return await give_up(ctx, rest)
        case "call":
            return (await ctx.run("work", {"n": rest}))["output"]
        case "look":
            seen = {"seen": ctx.state.get("seen", 0), "log": log_of(ctx)}
            return (await ctx.run("work", {"n": rest, **seen}))["output"]
        case "spin":
            await spin(rest * 5)
            return log(ctx, f"spun {rest}")
        case "hops":
            return log(ctx, await hops(ctx, rest))
        case "cancel_others":
            return await cancel_others(ctx, rest)
        case "bounded":
            return log(ctx, await bounded(ctx, rest))
        case "shielded":
            return log(ctx, await asyncio.shield(asyncio.gather(*(interpret(ctx, part) for part in rest))))
        case "fail":
            return (await ctx.run("fail", rest))["error"]
        case "gate":
            return await ctx.gate(f"Number {rest}?")
        case "emit":
            ctx.emit("progress", {"n": rest})
            ctx.state["seen"] = ctx.state.get("seen", 0) + 1
            return rest
        case "clock":
            return [ctx.now().isoformat(), ctx.random(), ctx.new_id()]
        case "sleep":
            await ctx.sleep(0)
            return "slept"
        case "child":
            return await ctx.run_workflow("child", rest)
    return (await ctx.run(kind, [rest, rest + 1]))["output"]


async def first(ctx: WorkflowContext, rest: list[Any]) -> Any:
    tasks = [asyncio.ensure_future(interpret(ctx, part)) for part in rest]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winners = sorted(tasks.index(task) for task in done)
    note = await ctx.run("work", len(done))
    others = await asyncio.gather(*(task for task in tasks if task in pending))
    return [winners, note["output"], [str(other) for other in others]]


async def give_up(ctx: WorkflowContext, rest: int) -> Any:
    task = asyncio.ensure_future(ctx.gate(f"Never answered {rest}"))
    result = await ctx.run("work", rest)
    task.cancel()
    await asyncio.wait([task])
    return result["output"]


async def hops(ctx: WorkflowContext, rest: int) -> Any:
    """A value that goes through queues and finished tasks."""
    queues: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(rest + 2)]
    finished = [asyncio.ensure_future(spin(0)) for _ in range(2)]

    async def hand_on(place: int) -> None:
        value = await queues[place].get()
        await asyncio.gather(*finished)
        await queues[place + 1].put(value)

    workers = [asyncio.ensure_future(hand_on(place)) for place in range(rest + 1)]
    await queues[0].put((await ctx.run("work", rest))["output"])
    value = await queues[-1].get()
    await asyncio.wait(workers)
    return value


async def cancel_others(ctx: WorkflowContext, rest: list[Any]) -> Any:
    """Return what ends first, and how the others end when cancelled, in that order."""
    tasks = [asyncio.ensure_future(noted(ctx, place, part)) for place, part in enumerate(rest)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    beside = await ctx.run("work", {"log": log_of(ctx)})
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [beside["output"], [type(end).__name__ for end in ended]]


async def noted(ctx: WorkflowContext, place: int, part: Any) -> Any:
    try:
        return await interpret(ctx, part)
    finally:
        log(ctx, f"ended {place}")


async def bounded(ctx: WorkflowContext, rest: list[Any]) -> Any:
    try:
        async with ctx.timeout(0.001):
            return await asyncio.gather(*(noted(ctx, place, part) for place, part in enumerate(rest)))
    except TimeoutError:
        return "late"


def log_of(ctx: WorkflowContext) -> list[Any]:
    return list(ctx.state.get("log", []))


def log(ctx: WorkflowContext, what: Any) -> Any:
    """Record something in the order in which the body sees it."""
    ctx.state.setdefault("log", []).append(str(what))
    return what


def build(program: Any, world: World, store: MemoryStore) -> Session:
    """Return a session in which `program` is the workflow `main`."""
    session = Session(store=store)

    async def fail(context: Any) -> Any:
        await world.work(context)
        raise ValueError(f"no {context.input}")

    work = FunctionNode("work", session, world.work)
    FunctionNode("fail", session, fail)
    MapNode("map", session, work, max_parallel=2)
    LoopNode("loop", session, work, times=2)
    graph = Graph("graph", session)
    graph.add_step(work, "a").add_step(work, "b").add_step(work, "c", depends_on=["a", "b"])
    graph.add_step(
        ParallelNode("both", session, {"x": work, "y": GateNode("ask", session, "Both?")}),
        "d",
        depends_on=["a"],
    )

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        return {"result": await interpret(ctx, program), "log": log_of(ctx)}

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("work", ctx.input))["output"], await ctx.gate("Child?")]

    return session


async def finish(run: Any) -> Any:
    """Answer every gate, except those that are never answered, until the run has ended."""
    waiting = asyncio.ensure_future(run.wait())
    while not waiting.done():
        for gate in run.pending_gates:
            if not gate.prompt.startswith("Never"):
                with contextlib.suppress(RuntimeError):  # the body may have abandoned it just now
                    await run.answer(f"{gate.prompt} yes", gate.gate_id)
        await asyncio.sleep(0)
    return waiting.result()


def copied(store: MemoryStore, run_id: str, upto: int) -> MemoryStore:
    """Return a store with the first events of a run, as if the process had died right after them."""
    other = MemoryStore()
    kept = store.events(run_id)[:upto]
    asked, died = {row.path for row in kept}, kept[-1].at
    for row in store.runs():
        if row.run != run_id and decode_json(store.events(row.run)[0].data)["parent_path"] not in asked:
            continue
        events, state = store.events(row.run), row.state
        if row.run == run_id:
            events, state = events[:upto], "running"
        elif events[-1].type == "workflow_cancelled" and events[-1].at > died:
            events, state = events[:-1], "running"  # its parent has not abandoned it yet
        open_row = RunRow(row.run, row.session, row.workflow, state, row.started, None, row.key, row.parent)
        other.append([Append(row.run, 0, events, open_row)])
    return other


def settled(rows: list[EventRow]) -> set[str]:
    return {row.path for row in rows if row.settles and row.settles != "/"}
