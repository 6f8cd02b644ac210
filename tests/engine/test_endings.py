"""How bodies end: eviction, the end of their loop, a limit, or a failing disk."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import Latch, at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Graph, Limits, Retry, Session, WorkflowContext, WorkflowRun, WorkflowState
from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.engine import idle_runs
from nerve.errors import LimitReached, NerveError, StoreError, StoreFull
from nerve.store.memory import MemoryStore

pytestmark = pytest.mark.local("ends the bodies of this process")

Body = Callable[[WorkflowContext], Awaitable[Any]]


async def ask(ctx):
    return await ctx.gate("Continue?")


def opened(store: Any, *bodies: Body) -> Session:
    session = Session("test", store)
    for body in bodies:
        session.workflow(body)
    return session


# -- eviction ----------------------------------------------------------------------------------


async def tidy(ctx):
    try:
        return await ctx.gate("Continue?")
    finally:
        ctx.now()
        ctx.emit("tidied")


TIDIED_ONCE = [
    "workflow_started", "gate_waiting", "gate_answered", "clock_read", "tidied", "workflow_completed"
]  # fmt: skip


@pytest.fixture
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evict runs as soon as they only wait."""
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 0)


async def test_a_run_that_is_being_stopped_is_not_evicted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(file, ask) as session:
        run = await session.start("ask")
        await at_gate(run)
        monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 0)
        drive = session.engine.executors[run.run_id]
        stopping = asyncio.ensure_future(run.stop())
        while run.state is not WorkflowState.STOPPING:  # noqa: ASYNC110 - in this very turn of the loop
            await asyncio.sleep(0)
        session.engine.idle_runs.add(drive)
        await within(stopping)
        assert types(run)[-1] == "workflow_cancelled"


async def test_events_emitted_while_the_session_closes_are_not_written(file: Path) -> None:
    async with opened(file, tidy) as session:
        await at_gate(await session.start("tidy"))
    async with opened(file, tidy) as session:
        (run,) = await session.recover()
        assert types(run) == TIDIED_ONCE[:2]
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
        assert types(run) == TIDIED_ONCE


@pytest.mark.usefixtures("nothing_stays")
async def test_events_emitted_during_eviction_are_not_written(file: Path) -> None:
    async with opened(file, tidy) as session:
        run = await session.start("tidy")
        await until(lambda: not session.engine.executors)
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
        assert types(run) == TIDIED_ONCE


@pytest.mark.usefixtures("nothing_stays")
async def test_a_thread_that_ends_after_its_run_was_evicted_has_no_effect(file: Path) -> None:
    go = threading.Event()

    async def impatient(ctx):
        try:
            await ctx.run("slow", timeout=0.01)
        except TimeoutError:
            pass
        return [await ctx.gate("One?"), await ctx.gate("Two?")]

    async with opened(file, impatient) as session:
        FunctionNode("slow", session, lambda context: go.wait(10))
        run = await session.start("impatient")
        await until(lambda: run.pending_gate and not session.engine.executors)
        await run.answer("1")
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "Two?")
        before, idle = types(run).count("log"), DAEMON_THREADS._idle
        go.set()
        await until(lambda: DAEMON_THREADS._idle > idle)
        await run.answer("2")
        assert await within(run.wait()) == ["1", "2"]
        assert types(run).count("log") == before


async def test_a_run_that_is_garbage_collected_ends_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unheard: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unheard.append)

    async def begun() -> Any:
        session = Session("test")
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        return weakref.ref(run)

    run = await begun()
    await until(lambda: gc.collect() >= 0 and run() is None)
    assert unheard == []


async def test_a_finished_run_is_freed_without_the_garbage_collector(file: Path) -> None:
    async def echo(context: Any) -> Any:
        return context.input

    async def steps(ctx):
        return [(await ctx.run("echo", number))["output"] for number in range(3)]

    async with opened(file, steps, ask) as session:
        FunctionNode("echo", session, echo)

        async def finish_runs() -> list[Any]:
            runs = [await session.start("steps"), await session.start("ask")]
            executors = [weakref.ref(session.engine.executors[run.run_id]) for run in runs]
            await at_gate(runs[1])
            await runs[1].answer("yes")
            for run in runs:
                await within(run.wait())
            return [*map(weakref.ref, runs), *executors]

        await finish_runs()  # caches are filled
        gc.collect()
        gc.disable()
        try:
            objects = await finish_runs()
            await until(lambda: not any(each() for each in objects))
        finally:
            gc.enable()


# -- the loop ends -----------------------------------------------------------------------------


def left_open(file: Path, body: Body, *nodes: str) -> None:
    """End the loop while the body waits, without closing the session."""

    async def main() -> Session:
        session = opened(file, body)
        for node in nodes:
            counted(session, node)
        await at_gate(await session.start(body.__name__))
        return session

    asyncio.run(main()).engine.store.close()


def taken_up(file: Path, body: Body, *nodes: str) -> tuple[list[str], Any, dict[str, list[Any]]]:
    """Return the events of the run, its result after an answer, and the executed steps."""

    async def main() -> tuple[list[str], Any, dict[str, list[Any]]]:
        async with opened(file, body) as session:
            executed = {node: counted(session, node) for node in nodes}
            (run,) = await session.recover()
            written = types(run)
            await run.answer("yes")
            return written, await within(run.wait()), executed

    return asyncio.run(main())


WAITING = ["workflow_started", "gate_waiting"]


def test_a_body_cannot_run_steps_while_the_loop_shuts_down(file: Path) -> None:
    tried = []

    async def rolls_back(ctx):
        try:
            return await ctx.gate("Continue?")
        except BaseException:
            tried.append("rollback")
            await ctx.run("rollback")
            tried.append("rolled back")
            raise

    left_open(file, rolls_back, "rollback")
    assert tried == ["rollback"]
    assert taken_up(file, rolls_back, "rollback") == (WAITING, "yes", {"rollback": []})


@pytest.mark.parametrize("how", ["return", "raise"])
def test_a_body_that_handles_the_shutdown_of_the_loop_has_not_ended(file: Path, how: str) -> None:
    async def swallows(ctx):
        try:
            return await ctx.gate("Continue?")
        except asyncio.CancelledError:
            if how == "raise":
                raise ValueError("cancelled") from None
            return "partial"

    left_open(file, swallows)
    assert taken_up(file, swallows) == (WAITING, "yes", {})


def test_a_replay_interrupted_by_the_shutdown_of_the_loop_holds_no_run(file: Path) -> None:
    alone: list[bool] = []

    async def works(ctx):
        if alone:
            alone.append(True)
            await asyncio.Event().wait()
        await ctx.run("first")
        await ctx.run("second")

    async def lived(session: Session) -> None:
        latch = Latch()
        counted(session, "first")
        FunctionNode("second", session, latch.leaf)
        if alone:
            await session.recover()
            await until(lambda: len(alone) == 2)
        else:
            await session.start("works")
            await latch.entered.wait()
            await session.close()

    asyncio.run(lived(opened(file, works)))
    alone.append(True)
    session = opened(file, works)
    asyncio.run(lived(session))
    (row,) = session.engine.store.runs()
    held = [event for event in session.engine.store.events(row.run) if event.type == "workflow_held"]
    assert (row.state, held) == ("running", [])
    session.engine.store.close()


class Clumsy:
    """A leaf that fails while it is cancelled; the second time it succeeds."""

    def __init__(self) -> None:
        self.tries, self.entered = 0, asyncio.Event()

    async def leaf(self, context: Any) -> str:
        self.tries += 1
        if self.tries > 1:
            return "done"
        self.entered.set()
        try:
            return await asyncio.Event().wait()
        finally:
            raise OSError("the connection is lost")

    def at(self, file: Path | None) -> Session:
        session = opened(file, in_a_graph)
        FunctionNode("work", session, self.leaf, retry=Retry(attempts=3, delay=0))
        Graph("graph", session).add_step_ref("work", "work")
        return session


async def in_a_graph(ctx):
    return (await ctx.run_graph("graph"))["output"]


async def test_a_failure_caused_by_closing_the_session_is_not_recorded(file: Path) -> None:
    clumsy = Clumsy()
    async with clumsy.at(file) as session:
        run = await session.start("in_a_graph")
        await clumsy.entered.wait()
    assert clumsy.tries == 1
    async with clumsy.at(file) as session:
        (run,) = await session.recover()
        assert await within(run.wait()) == "done"
        assert [data for data in data_of(run, "node_retrying") if "recovered" not in data] == []


@pytest.mark.parametrize("how", ["stop", "limit"])
async def test_a_fork_runs_a_step_again_that_failed_because_its_run_was_stopped(how: str) -> None:
    clumsy = Clumsy()
    session = clumsy.at(None)
    run = await session.start("in_a_graph", limits={"wall_time": 0.05} if how == "limit" else None)
    await clumsy.entered.wait()
    if how == "stop":
        assert await run.stop("enough") == ["/graph/work"]
    else:
        with pytest.raises(LimitReached):
            await within(run.wait())
    assert clumsy.tries == 1
    assert types(run)[1:3] == ["node_started", "step_started"]
    assert "step_failed" not in types(run)
    fork = await session.fork(run.run_id, limits={"wall_time": 60})
    assert await within(fork.wait()) == "done"


async def test_a_child_run_not_reached_by_its_parent_when_the_session_closes_has_not_failed(
    file: Path,
) -> None:
    ready = asyncio.Event()
    ready.set()

    async def parent(ctx):
        async def later():
            await ready.wait()
            return await ctx.run("work")

        told, _ = await asyncio.gather(ctx.run_graph("graph"), later())
        return told["output"]

    def made() -> Session:
        session = opened(file, ask, parent)
        counted(session, "work")
        Graph("graph", session).add_step(session.workflows["ask"], "child")
        return session

    async with made() as session:
        run = await session.start("parent")
        await until(lambda: run.pending_gate and "node_completed" in types(run))
    ready.clear()
    async with made() as session:
        await session.recover()
        await until(lambda: run.run_id in session.engine.executors)
        await until(lambda: len(session.engine.executors[run.run_id].dispatcher.tasks) > 3)
    ready.set()
    async with made() as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await at_gate(run)
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


# -- a limit is reached ------------------------------------------------------------------------


async def test_time_counts_again_after_a_gate_was_answered() -> None:
    async def hangs_later(ctx):
        await ctx.gate("Continue?")
        await asyncio.Event().wait()

    run = await opened(None, hangs_later).start("hangs_later", limits=Limits(wall_time=0.1))
    await at_gate(run)
    await run.answer("yes")
    with pytest.raises(LimitReached, match="wall_time"):
        await within(run.wait(), 3)


async def test_time_does_not_count_while_the_run_is_paused() -> None:
    async def works(ctx):
        await ctx.run("slow")
        return (await ctx.run("work", 1))["output"]

    session, latch = opened(None, works), Latch()
    counted(session, "work"), FunctionNode("slow", session, latch.leaf)
    run = await session.start("works", limits=Limits(wall_time=0.1))
    await latch.entered.wait()
    await run.pause()
    latch.open.set()
    began = time.monotonic()
    await until(lambda: time.monotonic() > began + 0.2)
    assert run.state is WorkflowState.PAUSED
    await run.resume()
    assert await within(run.wait()) == 1


async def test_a_body_that_catches_everything_still_fails_at_its_limit() -> None:
    async def stubborn(ctx):
        try:
            await ctx.run("work")
            await ctx.run("work")
        except BaseException:
            return "escaped"

    session = opened(None, stubborn)
    counted(session, "work")
    run = await session.start("stubborn", limits=Limits(steps=1))
    with pytest.raises(LimitReached, match="steps=1"):
        await within(run.wait())
    assert (run.state, types(run)[-1]) == (WorkflowState.FAILED, "workflow_failed")


# -- the disk fails ----------------------------------------------------------------------------


class FullDisk(MemoryStore):
    """Accepts no more appends once `room` is used up."""

    room: int | None = None
    was_full = False

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        if self.room is not None:
            if self.room == 0:
                self.was_full = True
                raise StoreFull("no room")
            self.room -= 1
        return super().append(batch, patience)


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


async def run_at_gate(disk: FullDisk) -> WorkflowRun:
    """A run that waits at its gate while nothing can be written."""
    run = await opened(disk, ask).start("ask")
    await at_gate(run)
    disk.room = 0
    return run


async def test_a_leaf_of_a_held_run_ends_before_the_run_resumes(disk: FullDisk) -> None:
    entered, go, running, most = asyncio.Event(), asyncio.Event(), [], []

    async def slow(context):
        running.append(context.path)
        most.append(len(running))
        entered.set()
        try:
            await go.wait()
        finally:
            await asyncio.sleep(0.01)
            running.pop()
        return "slow"

    async def quick(context):
        await entered.wait()
        disk.room = None if disk.was_full else 0

    async def both(ctx):
        task = asyncio.create_task(ctx.run("slow"))
        await ctx.run("quick")
        return (await task)["output"]

    session = opened(disk, both)
    FunctionNode("slow", session, slow), FunctionNode("quick", session, quick)
    run = await session.start("both")
    await until(lambda: run.held)
    disk.room = None
    await within(run.resume())
    go.set()
    assert await within(run.wait()) == "slow"
    assert most == [1, 1]


async def test_a_stop_that_cannot_be_written_raises_and_can_be_repeated(disk: FullDisk) -> None:
    run = await run_at_gate(disk)
    with pytest.raises(NerveError, match="no room"):
        await within(run.stop())
    assert not run.is_complete
    disk.room = None
    assert await within(run.stop()) == []
    assert (run.state, disk.run(run.run_id).state) == (WorkflowState.CANCELLED, "cancelled")
    with pytest.raises(asyncio.CancelledError):
        await run.wait()


async def test_waiting_for_a_stop_that_cannot_be_written_ends(disk: FullDisk) -> None:
    run = await run_at_gate(disk)
    outcomes = await within(asyncio.gather(run.stop(), run.stop(), return_exceptions=True))
    assert all(isinstance(outcome, NerveError) for outcome in outcomes)


async def test_a_gate_whose_answer_could_not_be_written_is_listed_again(disk: FullDisk) -> None:
    run = await run_at_gate(disk)
    with pytest.raises(StoreFull):
        await within(run.answer("lost"))
    assert run.state is WorkflowState.HELD
    assert [gate.prompt for gate in run.pending_gates] == ["Continue?"]
    disk.room = None
    await run.resume()
    await until(lambda: run.pending_gate)
    await run.answer("kept")
    assert await within(run.wait()) == "kept"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_gate_of_an_inactive_run_is_listed_again_when_its_answer_could_not_be_written(
    disk: FullDisk, waits: bool
) -> None:
    run = await run_at_gate(disk)
    with pytest.raises(StoreFull):
        await within(run.answer("lost"))
    if waits:
        with pytest.raises(StoreFull):
            await within(run.answer("lost", key="first"))
    else:
        run.answer_gate("lost")
    await until(lambda: run.pending_gates)
    disk.room = None
    run.answer_gate("kept")
    await until(lambda: "gate_answered" in types(run))
    assert "key" not in data_of(run, "gate_answered")[0]
    await run.resume()
    assert await within(run.wait()) == "kept"


@pytest.mark.parametrize("room", [0, 1, 2])
async def test_a_fork_that_cannot_be_written_leaves_no_run(disk: FullDisk, room: int) -> None:
    async def parent(ctx):
        return await ctx.run_workflow("ask")

    session = opened(disk, ask, parent)
    run = await session.start("parent")
    await until(lambda: run.pending_gate)
    disk.room = room
    try:
        await session.fork(run.run_id)
    except StoreError:
        assert len(disk.runs()) == 2
    assert all(row.parent is None or disk.run(row.parent) for row in disk.runs())


@pytest.fixture
async def reports() -> list[str]:
    """Collects what asyncio reports about futures and tasks that were never awaited."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    return told


async def leaves_a_child(ctx):
    child = asyncio.ensure_future(ctx.run_workflow("ask"))
    await ctx.gate("Enough?")
    assert not child.done()


async def test_asyncio_logs_nothing_when_a_body_ends_before_its_child_run(reports: list[str]) -> None:
    async with opened(None, ask, leaves_a_child) as session:
        run = await session.start("leaves_a_child")
        await until(lambda: len(run.pending_gates) == 2)
        await run.answer("yes", "/gate")
        await run.wait()
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


async def answers(run: WorkflowRun) -> None:
    run.answer_gate("lost")
    await until(lambda: run.held)
    raise StoreFull("no room")


COMMANDS: dict[str, Callable[[WorkflowRun], Awaitable[Any]]] = {
    "answer_gate": answers,
    "answer": lambda run: run.answer("lost"),
    "pause": lambda run: run.pause(),
    "stop": lambda run: run.stop(),
    "start": lambda run: run.workflow.session.start("ask"),
    "start_under_a_key": lambda run: run.workflow.session.start("ask", key="k"),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_asyncio_logs_nothing_when_a_command_cannot_be_written(
    disk: FullDisk, reports: list[str], command: str
) -> None:
    run = await run_at_gate(disk)
    with pytest.raises(NerveError, match="no room"):
        await within(COMMANDS[command](run))
    disk.room = None
    await run.stop()
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


async def test_asyncio_logs_nothing_when_steps_cannot_be_written(disk: FullDisk, reports: list[str]) -> None:
    async def fills(context):
        disk.room = 0

    async def side_by_side(ctx):
        await asyncio.gather(*(ctx.run("fills") for _ in range(5)), ctx.gate("Continue?"))

    session = opened(disk, side_by_side)
    FunctionNode("fills", session, fills)
    run = await session.start("side_by_side")
    await until(lambda: run.held)
    disk.room = None
    await run.stop()
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


async def test_a_cancelled_waiter_of_a_run_is_forgotten() -> None:
    run = await opened(None, ask).start("ask")
    await at_gate(run)
    for _ in range(1000):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.wait(), 1e-6)
    assert len(run.run_state._watchers) < 10


async def calls(ctx):
    return await ctx.run_workflow("ask")


async def gives_up(ctx):
    calling = asyncio.create_task(ctx.run_workflow("ask"))
    await ctx.wait_signal("enough")
    calling.cancel()
    await asyncio.wait([calling])
    return await ctx.gate("Anything else?")


async def leaves(ctx):
    calling = asyncio.create_task(ctx.run_workflow("ask"))
    await ctx.wait_signal("enough")
    return calling.done()


@pytest.mark.parametrize("body", [calls, gives_up, leaves])
async def test_a_run_whose_child_cannot_be_stopped_is_held_and_resumes_later(
    disk: FullDisk, body: Body
) -> None:
    run = await opened(disk, ask, body).start(body.__name__)
    await until(lambda: run.pending_gate and len(types(run)) >= 2)
    if body is calls:
        disk.room = 0
        with pytest.raises(StoreFull):
            await within(run.stop())
    else:
        disk.room = 1
        await run.signal("enough")
    await until(lambda: run.run_state.hold)
    assert (run.state, run.run_state.hold["reason"]) == (WorkflowState.HELD, "storage_full")
    disk.room = None
    await within(run.resume())
    for child in list(run.run_state.children.values()):
        if child.run_state.hold:
            await child.resume()
    await until(lambda: run.is_complete or [gate.prompt for gate in run.pending_gates] == [WAITS_FOR[body]])
    if not run.is_complete:
        await run.answer("yes")
    assert await within(run.wait()) == (False if body is leaves else "yes")
    assert {row.state for row in disk.runs()} == (
        {"completed"} if body is calls else {"completed", "cancelled"}
    )


WAITS_FOR = {calls: "Continue?", gives_up: "Anything else?", leaves: ""}


# -- a stop during replay ----------------------------------------------------------------------


async def calls_twice(ctx):
    calls = [asyncio.ensure_future(ctx.run_workflow("ask")) for _ in range(2)]
    await ctx.gate("Go on?")
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_run_that_is_stopped_while_it_replays_is_stopped_in_the_store(file: Path) -> None:
    async with opened(file, ask, calls_twice) as session:
        run = await session.start("calls_twice")
        await until(lambda: len(run.pending_gates) == 3)
    async with opened(file, ask, calls_twice) as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.stop("enough")
        row = session.engine.store.run(run.run_id)
        assert (row.state, types(run)[-1]) == ("cancelled", "workflow_cancelled")
        assert "workflow_held" not in types(run)
