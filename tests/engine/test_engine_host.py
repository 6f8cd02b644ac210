"""The engine runs on a loop that has only what the loop of a Temporal workflow has."""

import asyncio
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from engine.bare_loop import BareLoop, run_bare
from nerve import Session, WorkflowContext
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import Retry
from nerve.core.workflow.run import WorkflowRun
from nerve.engine import engine_host, group_commit
from nerve.engine.hosted_engines import HostedEngines, host_engine
from nerve.engine.local_engine import LocalEngine
from nerve.engine.temporal.workflow_host import LoopClock, WorkflowHost
from nerve.store.memory import MemoryStore
from nerve.store.port import Append

pytestmark = pytest.mark.local("drives the engine without a process")


def make_session() -> Session:
    session = Session("team")
    session.use_engine(HostedEngines())
    failures = [RuntimeError("first"), RuntimeError("second")]

    @session.node(id="echo")
    async def echo(context: ExecutionContext) -> Any:
        return context.input

    @session.node(id="flaky", retry=Retry(attempts=3, delay=5))
    async def flaky(context: ExecutionContext) -> Any:
        if failures:
            raise failures.pop()
        return "third"

    @session.workflow
    async def inner(ctx: WorkflowContext) -> Any:
        return [await ctx.run("echo", ctx.input), ctx.random()]

    @session.workflow
    async def tour(ctx: WorkflowContext) -> Any:
        parallel = await asyncio.gather(*(ctx.run("echo", number) for number in range(3)))
        async with asyncio.TaskGroup() as group:
            first, second = (group.create_task(ctx.run("echo", number)) for number in (3, 4))
        retried = await ctx.run("flaky")
        before = ctx.now()
        await ctx.sleep(3600)
        waited = (ctx.now() - before).total_seconds()
        answer = await ctx.gate("Continue?", choices=["yes", "no"])
        signal = await ctx.wait_signal("shipped")
        child = await ctx.run_workflow("inner", "child")
        outputs = [result.output for result in (*parallel, first.result(), second.result(), retried)]
        return [outputs, waited, answer, signal, child]

    @session.workflow
    async def steps(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("echo", number)).output for number in range(ctx.input)]

    return session


def open_engine(session: Session, store: MemoryStore, written: list[Append]) -> LocalEngine:
    def keep(parts: Sequence[Append]) -> None:
        written.extend(parts)

    engine = LocalEngine(store, session, session.name, LoopClock(), WorkflowHost("seed", keep))
    host_engine(engine)
    return engine


async def run_tour() -> tuple[Any, list[Append]]:
    session, written = make_session(), list[Append]()
    engine = open_engine(session, MemoryStore(), written)
    assert session.engine.store is engine.store
    run = WorkflowRun(session.workflows["tour"], run_id="run")
    await engine.start(run)
    assert await run.next_gate() is not None
    await run.answer("yes")
    while not run.is_complete and run.waiting_for != "for signal shipped":
        await run.wait_for_change()
    await run.signal("shipped", {"number": 7})
    result = await run.wait()
    await engine.close()
    return result, written


def test_a_run_needs_no_task_factory_no_thread_and_no_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("the engine used the process")

    for target, name in (
        (engine_host.os, "urandom"),
        (group_commit.time, "perf_counter"),
        (threading, "Thread"),
    ):
        monkeypatch.setattr(target, name, fail)
    began = time.monotonic()
    (result, written), delays = run_bare(run_tour)
    assert result[:4] == [[0, 1, 2, 3, 4, "third"], 3600.0, "yes", {"number": 7}]
    assert result[4][0]["output"] == "child"
    assert time.monotonic() - began < 60
    # The timers of the run, and none of the engine: each would be an entry of a history.
    assert sorted(delays) == [5.0, 10.0, 3600.0]
    assert all(row.at >= BareLoop.START for part in written for row in part.rows)


def test_the_same_run_writes_the_same_events_again() -> None:
    def describe(written: list[Append]) -> list[tuple[Any, ...]]:
        rows = [row for part in written for row in part.rows]
        return [(row.at, row.type, row.path) for row in rows]

    (first, written), _ = run_bare(run_tour)
    (second, written_again), _ = run_bare(run_tour)
    assert len(first) == len(second)
    assert describe(written) == describe(written_again)


def test_a_long_replay_gives_way_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_twice() -> tuple[Any, Any]:
        session, store, written = make_session(), MemoryStore(), list[Append]()
        engine = open_engine(session, store, written)
        run = await session.start("steps", 30)
        await run.wait()
        await engine.close()
        # The run as it was before its end: all steps are recorded.
        rows = store.events(run.run_id)[:-1]
        row = store.run(run.run_id)
        assert row is not None
        restored = MemoryStore()
        restored.append([Append(run.run_id, 0, rows, row._replace(state="running", ended=None))])
        engine = open_engine(session, restored, [])
        continued = engine.run_handle(restored.runs()[0])
        engine.rebuild_run(continued)
        return await continued.wait(), len(restored.events(run.run_id))

    monkeypatch.setattr(WorkflowHost, "outcomes_per_turn", 10)
    (result, count), delays = run_bare(run_twice)
    assert (result, count) == (list(range(30)), 62)
    assert delays.count(0.001) == 2


async def test_a_hosted_engine_belongs_to_its_loop() -> None:
    session, other = make_session(), object()
    with pytest.raises(RuntimeError, match="in Temporal workflows only"):
        session.engine.store  # noqa: B018
    hosted = open_engine(session, MemoryStore(), [])
    assert session.engine.store is hosted.store

    async def find_store(engines: HostedEngines) -> Any:
        return engines.store

    own = SimpleNamespace(store=other)
    assert await asyncio.to_thread(asyncio.run, find_store(HostedEngines(lambda: own))) is other
    with pytest.raises(RuntimeError, match=r"Session 'team' is open\."):
        session.use_engine(own)
    await hosted.close()
