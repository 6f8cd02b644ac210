"""Random workflow functions: small programs, and the interpreter that runs them against a context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from nerve import FunctionNode, Graph, Queue, Session, WorkflowContext
from nerve.core.json_codec import decode_json
from nerve.core.nodes.control import GateNode, LoopNode, MapNode, ParallelNode
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, RunRow

BLIND = (
    *("call", "fail", "gate", "emit", "tag", "patched", "clock", "sleep", "map", "graph", "child", "seq"),
    *("mail", "start", "gather", "loop", "queued", "typed", "saga", "query"),
)
SIGHTED = (
    *(*BLIND, "look", "as_completed", "race", "first", "give_up"),
    *("spin", "hops", "cancel_others", "bounded", "shielded", "update"),
)
LETTERS = 3
"""Number of messages that a chain gets and reads in its last run."""
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
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    """The paths of the calls and waits whose outcomes the body saw, in that order, and how each ended."""
    requests: dict[str, int] = field(default_factory=dict)
    """The paths of the calls and waits of the body, and how many outcomes it had seen before each."""

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
            calls = [ctx.run("work", n) for n in range(rest) if next_path(ctx, "work")]
            return [note(ctx, (await next_one)["output"]) for next_one in asyncio.as_completed(calls)]
        case "first":
            return await first(ctx, rest)
        case "give_up":
            return await give_up(ctx, rest)
        case "call":
            return (await call(ctx, "work", {"n": rest}))["output"]
        case "look":
            seen = {"seen": ctx.state.get("seen", 0), "log": log_of(ctx)}
            return (await call(ctx, "work", {"n": rest, **seen}))["output"]
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
            return (await call(ctx, "fail", rest))["error"]
        case "gate":
            return await ask(ctx, f"Number {rest}?")
        case "emit":
            ctx.emit("progress", {"n": rest})
            ctx.state["seen"] = ctx.state.get("seen", 0) + 1
            return rest
        case "tag":
            ctx.tag(**{f"t{rest % 3}": rest})
            return rest
        case "patched":
            # Code before the patch does not ask, and makes no call here.
            is_patched = ctx.state["has_patches"] and ctx.patched(f"p{rest % 3}")
            return (await call(ctx, "work", rest))["output"] if is_patched else "old branch"
        case "clock":
            return [ctx.now().isoformat(), ctx.random(), ctx.new_id()]
        case "queued":
            return (await call(ctx, "queued", {"n": rest, "lane": rest % 2}))["output"]
        case "typed":
            return await observe(ctx, "typed", lambda: ctx.state["typed"](rest))
        case "saga":
            return await undone(ctx, rest)
        case "query":
            ctx.query(f"query {rest}", lambda: log_of(ctx))
            return rest
        case "sleep":
            await observe(ctx, "sleep", lambda: ctx.sleep(0))
            return "slept"
        case "mail":
            return await observe(ctx, "mail", lambda: ctx.receive("mail"))
        case "update":
            return log(ctx, await updated(ctx, rest))
        case "start":
            run_id = await observe(ctx, "alone", lambda: ctx.start("alone", rest, detached=True))
            return "started" if run_id else "not started"
        case "child":
            return await observe(ctx, "child", lambda: ctx.run_workflow("child", rest))
    return (await call(ctx, kind, [rest, rest + 1]))["output"]


async def call(ctx: WorkflowContext, name: str, input: Any) -> Any:
    return await observe(ctx, name, lambda: ctx.run(name, input))


async def ask(ctx: WorkflowContext, prompt: str) -> Any:
    return await observe(ctx, "gate", lambda: ctx.gate(prompt))


async def observe(ctx: WorkflowContext, name: str, start: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call and record when and how the body sees it end."""
    path, end = next_path(ctx, name), "returned"
    try:
        return await start()
    except (Exception, asyncio.CancelledError) as error:
        end = type(error).__name__
        raise
    finally:
        ctx.state["outcomes"].append((path, end))


def next_path(ctx: WorkflowContext, name: str) -> str:
    """Return the path that the next call of that name gets, and record the request."""
    counts = ctx.state["counts"]
    counts[name] = counts.get(name, 0) + 1
    path = f"/{name}" + (f"[{counts[name]}]" if counts[name] > 1 else "")
    ctx.state["requests"][path] = len(ctx.state["outcomes"])
    return path


def note(ctx: WorkflowContext, output: Any) -> Any:
    """Record that the body sees the output of a step."""
    ctx.state["outcomes"].append((output["at"], "returned"))
    return output


async def first(ctx: WorkflowContext, rest: list[Any]) -> Any:
    tasks = [asyncio.ensure_future(interpret(ctx, part)) for part in rest]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winners = sorted(tasks.index(task) for task in done)
    size = await call(ctx, "work", len(done))
    others = await asyncio.gather(*(task for task in tasks if task in pending))
    return [winners, size["output"], [str(other) for other in others]]


async def updated(ctx: WorkflowContext, rest: int) -> Any:
    """Wait until an update was handled, by a step."""
    handled = asyncio.Event()

    async def handle(value: int) -> int:
        output = (await call(ctx, "work", {"n": value, "log": log_of(ctx)}))["output"]
        log(ctx, f"updated {value}")
        handled.set()
        return number(output)

    ctx.state["updates"] = ctx.state.get("updates", 0) + 1
    ctx.update(f"change {ctx.state['updates']}", handle)
    await handled.wait()
    return rest


async def undone(ctx: WorkflowContext, rest: int) -> Any:
    """Undo two steps, the last one first, because what follows them fails."""
    with contextlib.suppress(ValueError):
        async with ctx.saga() as saga:
            for place in range(2):
                await call(ctx, "work", rest + place)
                saga.compensate(call, ctx, "work", {"undone": place})
            next_path(ctx, "~cleanup")
            raise ValueError("the rest fails")
    return "undone"


async def give_up(ctx: WorkflowContext, rest: int) -> Any:
    task = asyncio.ensure_future(ask(ctx, f"Never answered {rest}"))
    result = await call(ctx, "work", rest)
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
    await queues[0].put((await call(ctx, "work", rest))["output"])
    value = await queues[-1].get()
    await asyncio.wait(workers)
    return value


async def cancel_others(ctx: WorkflowContext, rest: list[Any]) -> Any:
    """Return what ends first, and how the others end when cancelled, in that order."""
    tasks = [asyncio.ensure_future(noted(ctx, place, part)) for place, part in enumerate(rest)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    beside = await call(ctx, "work", {"log": log_of(ctx)})
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [beside["output"], [type(end).__name__ for end in ended]]


async def noted(ctx: WorkflowContext, place: int, part: Any) -> Any:
    try:
        return await interpret(ctx, part)
    finally:
        log(ctx, f"ended {place}")


async def bounded(ctx: WorkflowContext, rest: list[Any]) -> Any:
    next_path(ctx, "~timeout")
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


def build(
    program: Any, world: World, store: MemoryStore, has_patches: bool = True, name: str = "default"
) -> Session:
    """Return a session in which `program` is the workflow `main`, before or after its patches were added."""
    session = Session(name, store, queues=[Queue("lanes", concurrency=1, per="lane", priority="n")])

    async def fail(context: Any) -> Any:
        await world.work(context)
        raise ValueError(f"no {context.input}")

    work = FunctionNode("work", session, world.work)
    FunctionNode("fail", session, fail)
    FunctionNode("queued", session, world.work, queue="lanes")
    MapNode("map", session, work, max_parallel=2)
    LoopNode("loop", session, work, times=2)
    graph = Graph("graph", session)
    graph.add_step(work, "a").add_step(work, "b").add_step(work, "c", depends_on=["a", "b"])
    graph.add_step(
        ParallelNode("both", session, {"x": work, "y": GateNode("ask", session, "Both?")}),
        "d",
        depends_on=["a"],
    )

    @session.step
    async def typed(n: int) -> dict[str, int]:
        return {"n": n}

    def new_state() -> dict[str, Any]:
        return {"outcomes": [], "counts": {}, "requests": {}, "has_patches": has_patches, "typed": typed}

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        ctx.state |= new_state()
        result = await interpret(ctx, program)
        world.outcomes, world.requests = list(ctx.state["outcomes"]), dict(ctx.state["requests"])
        return {"result": result, "log": log_of(ctx)}

    @session.workflow
    async def tidy(ctx: WorkflowContext) -> Any:
        """The program, and a cleanup that depends on all that the body has seen."""
        ctx.state |= new_state()
        try:
            await interpret(ctx, program)
            await ctx.gate("Never answered")
        finally:
            async with ctx.cleanup():
                # How long cancelled steps take to end is not recorded, so only what returned is compared.
                seen = [path for path, end in ctx.state["outcomes"] if end == "returned"]
                await asyncio.gather(ctx.run("work", {"seen": seen}), ctx.run("work", 2))
                await ctx.run("work", 3)
                world.outcomes = [(path, "returned") for path in seen]

    @session.workflow
    async def chain(ctx: WorkflowContext) -> Any:
        """The parts of the program, each in a run of its own; the letters are read in the last one."""
        ctx.state |= new_state()
        seen, parts = ctx.input
        seen = [*seen, number(await interpret(ctx, parts[0]))]
        if len(parts) > 1:
            ctx.continue_as_new([seen, parts[1:]])
        return [seen, [await ctx.receive("letters") for _ in range(LETTERS)]]

    @session.workflow
    async def alone(ctx: WorkflowContext) -> Any:
        return (await ctx.run("work", ctx.input))["output"]

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("work", ctx.input))["output"], await ctx.gate("Child?")]

    return session


async def send_what_is_awaited(run: Any) -> None:
    """Send a message or an update to a body that waits for one; all messages are equal."""
    run = run.current
    executor = run.workflow.session.engine.executors.get(run.run_id)
    if executor is None or executor.barrier.is_detached or executor.dispatcher.replay is not None:
        return
    for channel in {event.channel for _, event in open_receivers(executor)} - {"letters"}:
        if executor.journal.index.mailbox.first_unread(channel) is None:
            with contextlib.suppress(RuntimeError):  # the run may have ended just now
                if channel == "mail":
                    await run.send("mail", "a letter")
                else:
                    executor.open_waits.send(channel, 1, "once", "")


async def ask_queries(run: Any) -> None:
    """Read the state of a body, which must record nothing."""
    executor = run.workflow.session.engine.executors.get(run.run_id)
    if executor is None or executor.barrier.is_detached or executor.dispatcher.replay is not None:
        return
    for name in (f"query {number}" for number in range(10)):
        with contextlib.suppress(RuntimeError, ValueError):  # not registered, or the run has ended
            await run.query(name)


def open_receivers(executor: Any) -> list[tuple[str, Any]]:
    waits = executor.journal.index.open_waits.items()
    return [(path, row.event) for path, row in waits if row.event.type == "message_waiting"]


async def finish(run: Any) -> Any:
    """Answer every gate, except those that are never answered, until the run has ended."""
    waiting = asyncio.ensure_future(run.wait())
    while not waiting.done():
        for gate in run.current.pending_gates:
            if not gate.prompt.startswith("Never"):
                with contextlib.suppress(RuntimeError):  # the body may have abandoned it just now
                    await run.answer(f"{gate.prompt} yes", gate.gate_id)
        await send_what_is_awaited(run)
        await ask_queries(run)
        await asyncio.sleep(0)
    return waiting.result()


def copied(store: MemoryStore, run_id: str, upto: int) -> MemoryStore:
    """Return a store with the first events of a run, as if the process had died right after them."""
    other = MemoryStore()
    kept = store.events(run_id)[:upto]
    asked, died = {row.path for row in kept}, kept[-1].at
    for row in store.runs():
        start = decode_json(store.events(row.run)[0].data)
        caller = start.get("parent") or start.get("started_by", {}).get("run")
        called_at = start.get("parent_path") or start.get("started_by", {}).get("path")
        if row.run != run_id and (caller != run_id or called_at not in asked):
            continue
        events, state = store.events(row.run), row.state
        if row.run == run_id:
            events, state = events[:upto], "running"
        elif (kept_of_child := before_stop(events, died)) != events:
            events, state = kept_of_child, "running"  # its parent has not abandoned it yet
        open_row = RunRow(row.run, row.session, row.workflow, state, row.started, None, row.key, row.parent)
        other.append([Append(row.run, 0, events, open_row)])
    return other


def before_stop(events: list[EventRow], time: float) -> list[EventRow]:
    """Return the events of a run without a stop after a time, and what follows it."""
    is_stop = (
        event.at > time and event.type in ("workflow_stopping", "workflow_cancelled") for event in events
    )
    return events[: next((place for place, stops in enumerate(is_stop) if stops), len(events))]


def settled(rows: list[EventRow]) -> set[str]:
    return {row.path for row in rows if row.settles and row.settles != "/"}
