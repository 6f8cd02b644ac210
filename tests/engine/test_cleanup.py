"""A run that is stopped cleans up: its steps run, are recorded, and continue after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from engine.programs import copied, spin
from nerve import FunctionNode, Limits, Session, WorkflowContext, WorkflowState
from nerve.errors import CompensationFailed, LimitReached, WorkflowFailed
from nerve.store.memory import MemoryStore


class Shop:
    """A session with steps that note what they do."""

    def __init__(self, file: Path) -> None:
        self.session = session = Session(store=file)
        self.done: list[str] = []
        self.release = asyncio.Event()

        @session.step
        async def act(name: str) -> str:
            self.done.append(name)
            return name

        @session.step
        async def slow(name: str) -> str:
            await self.release.wait()
            self.done.append(name)
            return name

        @session.step
        async def fail(name: str) -> str:
            raise ValueError(f"cannot undo {name}")

        @session.workflow
        async def tidy(ctx: WorkflowContext) -> str:
            try:
                await act("begin")
                return await ctx.gate("Go on?")
            except asyncio.CancelledError:
                async with ctx.cleanup():
                    await act("undo 1")
                    await slow("undo 2")
                    await act("undo 3")
                raise
            finally:
                self.done.append("left")

        @session.workflow
        async def careless(ctx: WorkflowContext) -> None:
            try:
                await ctx.gate("Go on?")
            finally:
                try:
                    await act("undo")
                except Exception as error:
                    self.done.append(str(error))

        @session.workflow
        async def always(ctx: WorkflowContext) -> str:
            try:
                return await act("work")
            finally:
                async with ctx.cleanup():
                    await slow("release")

        @session.workflow
        async def booking(ctx: WorkflowContext) -> str:
            async with ctx.saga() as saga:
                for name in ctx.input:
                    await act(name)
                    saga.compensate(
                        act if name != "hotel" or ctx.params.get("good", True) else fail, f"-{name}"
                    )
                if ctx.params.get("fails"):
                    raise ValueError("sold out")
                await ctx.gate("Pay?")
                return "booked"

        @session.workflow
        async def hungry(ctx: WorkflowContext) -> None:
            try:
                while True:
                    await act("eat")
            finally:
                async with ctx.cleanup():
                    await act("wash up")
                    await act("dry")


async def started(shop: Shop, name: str, *args: Any, **options: Any) -> Any:
    run = await shop.session.start(name, *args, **options)
    await until(lambda: run.pending_gate)
    return run


def steps_of(run: Any) -> list[str]:
    return [event.path for event in run.events if event.event_type == "node_completed"]


async def test_steps_in_a_cleanup_block_run_while_the_run_is_stopping(file: Path) -> None:
    shop = Shop(file)
    async with shop.session:
        run = await started(shop, "tidy")
        stop = asyncio.ensure_future(run.stop("no longer needed"))
        await until(lambda: "undo 1" in shop.done)
        assert run.state is WorkflowState.STOPPING
        shop.release.set()
        await stop
        assert run.state is WorkflowState.CANCELLED
        assert shop.done == ["begin", "undo 1", "undo 2", "undo 3", "left"]
        types = [event.event_type for event in run.events]
        assert types.index("workflow_stopping") < types.index("workflow_cancelled") == len(types) - 1


@pytest.mark.local("looks at executors")
async def test_a_cleanup_continues_after_a_restart_and_repeats_nothing(file: Path) -> None:
    shop = Shop(file)
    async with shop.session as session:
        run = await started(shop, "tidy")
        stop = asyncio.ensure_future(run.stop("no longer needed"))
        await until(
            lambda: "undo 1" in shop.done and session.engine.executors[run.run_id].call_runner.running_leaves
        )
        await session.engine.wait_durable(run)
        # As after a crash: nothing is ended in an orderly way.
        copy = file.with_name("copy.db")
        copy.write_bytes(b"")
        backup(file, copy)
        shop.release.set()
        await stop
    again = Shop(copy)
    again.release.set()
    async with again.session as session:
        [run] = await session.recover()
        await until(lambda: run.is_complete)
        assert run.state is WorkflowState.CANCELLED
        assert run.error == "no longer needed"
        assert again.done == ["undo 2", "undo 3", "left"]


def backup(source: Path, target: Path) -> None:
    import sqlite3

    with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
        one.backup(other)


async def test_a_session_can_be_closed_during_a_cleanup_which_continues_later(file: Path) -> None:
    async with (shop := Shop(file)).session:
        run = await started(shop, "tidy")
        stop = asyncio.ensure_future(run.stop("no longer needed"))
        await until(lambda: "undo 1" in shop.done)
    await asyncio.wait([stop])
    again = Shop(file)
    again.release.set()
    async with again.session as session:
        [run] = await session.recover()
        await until(lambda: run.is_complete)
        assert (run.state, run.error) == (WorkflowState.CANCELLED, "no longer needed")
        assert again.done == ["undo 2", "undo 3", "left"]


@pytest.mark.local("restarts with other code; Temporal needs another build for that")
async def test_a_cleanup_that_differs_after_a_restart_holds_the_run_and_a_stop_ends_it(file: Path) -> None:
    def register(session: Session, prompt: str) -> None:
        @session.workflow
        async def asks(ctx: WorkflowContext) -> None:
            try:
                await ctx.gate("Go on?")
            finally:
                async with ctx.cleanup():
                    await ctx.gate(prompt)

    async with Session(store=file) as session:
        register(session, "Undo?")
        run = await session.start("asks")
        await until(lambda: run.pending_gate)
        stop = asyncio.ensure_future(run.stop())
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "Undo?")
    await asyncio.wait([stop])
    async with Session(store=file) as session:
        register(session, "Undo all?")
        [run] = await session.recover()
        await until(lambda: run.held)
        assert run.held["reason"] == "mismatch"
        await run.stop()
        assert run.state is WorkflowState.CANCELLED


async def test_a_second_stop_ends_the_cleanup_at_once(file: Path) -> None:
    shop = Shop(file)
    async with shop.session:
        run = await started(shop, "tidy")
        first = asyncio.ensure_future(run.stop("first"))
        await until(lambda: "undo 1" in shop.done)
        await run.stop("second")
        await first
        assert run.state is WorkflowState.CANCELLED
        assert run.error == "first"
        assert shop.done == ["begin", "undo 1", "left"]


async def test_a_step_that_is_started_outside_a_cleanup_block_raises(file: Path) -> None:
    shop = Shop(file)
    async with shop.session:
        run = await started(shop, "careless")
        await run.stop()
        assert run.state is WorkflowState.CANCELLED
        assert shop.done == [
            "/act was not started, because the run is being stopped. Use `async with ctx.cleanup():`."
        ]


@pytest.mark.local("looks at executors")
async def test_a_cleanup_block_is_not_interrupted_by_a_stop(file: Path) -> None:
    shop = Shop(file)
    async with shop.session as session:
        run = await session.start("always")
        await until(
            lambda: (
                session.engine.executors[run.run_id].call_runner.running_leaves == {"/slow"}
                or "/slow" in session.engine.executors[run.run_id].call_runner.running_leaves
            )
        )
        stop = asyncio.ensure_future(run.stop())
        await until(lambda: run.state is WorkflowState.STOPPING)
        shop.release.set()
        await stop
        assert (run.state, shop.done) == (WorkflowState.CANCELLED, ["work", "release"])


async def test_a_cleanup_block_of_a_run_that_is_not_stopped_is_an_ordinary_block(file: Path) -> None:
    shop = Shop(file)
    shop.release.set()
    async with shop.session as session:
        run = await session.start("always")
        assert await run.wait() == "work"
        assert shop.done == ["work", "release"]


@pytest.mark.local("looks at executors")
async def test_a_parked_run_is_loaded_to_clean_up(file: Path) -> None:
    async with (shop := Shop(file)).session:
        await started(shop, "tidy")
    again = Shop(file)
    again.release.set()
    async with again.session as session:
        [run] = await session.recover()
        assert run.run_id not in session.engine.executors
        await run.stop()
        assert run.state is WorkflowState.CANCELLED
        assert again.done[-4:] == ["undo 1", "undo 2", "undo 3", "left"]


async def test_a_paused_run_cleans_up(file: Path) -> None:
    shop = Shop(file)
    shop.release.set()
    async with shop.session:
        run = await started(shop, "tidy")
        await run.pause()
        await run.stop()
        assert shop.done == ["begin", "undo 1", "undo 2", "undo 3", "left"]


async def test_a_run_that_reaches_a_limit_cleans_up_and_fails(file: Path) -> None:
    shop = Shop(file)
    async with shop.session as session:
        run = await session.start("hungry", limits=Limits(steps=3))
        with pytest.raises((LimitReached, WorkflowFailed), match="steps"):
            await run.wait()
        assert shop.done == ["eat"] * 3 + ["wash up", "dry"]
        assert run.state is WorkflowState.FAILED


async def test_a_cleanup_times_out(file: Path) -> None:
    shop = Shop(file)

    @shop.session.workflow
    async def impatient(ctx: WorkflowContext) -> None:
        try:
            await ctx.gate("Go on?")
        finally:
            async with ctx.cleanup(timeout=0.05):
                await ctx.gate("Never answered")

    async with shop.session:
        run = await started(shop, "impatient")
        await run.stop()
        assert run.state is WorkflowState.CANCELLED
        end = run.events[-1]
        assert (end.event_type, end.data["error"]) == (
            "workflow_cancelled",
            "TimeoutError: timed out after 0.05 s",
        )


async def test_compensations_run_in_reverse_order_on_failure(file: Path) -> None:
    shop = Shop(file)
    async with shop.session as session:
        run = await session.start("booking", ["car", "hotel", "flight"], params={"fails": True})
        with pytest.raises((ValueError, WorkflowFailed), match="sold out"):
            await run.wait()
        assert shop.done == ["car", "hotel", "flight", "-flight", "-hotel", "-car"]


async def test_compensations_run_in_reverse_order_on_a_stop(file: Path) -> None:
    shop = Shop(file)
    async with shop.session:
        run = await started(shop, "booking", ["car", "hotel"])
        await run.stop()
        assert shop.done == ["car", "hotel", "-hotel", "-car"]
        assert run.state is WorkflowState.CANCELLED


async def test_no_compensation_runs_on_success(file: Path) -> None:
    shop = Shop(file)
    async with shop.session:
        run = await started(shop, "booking", ["car"])
        await run.answer("yes")
        assert await run.wait() == "booked"
        assert shop.done == ["car"]


async def test_a_failed_compensation_does_not_prevent_the_others(file: Path) -> None:
    shop = Shop(file)
    async with shop.session as session:
        params = {"fails": True, "good": False}
        run = await session.start("booking", ["car", "hotel", "flight"], params=params)
        with pytest.raises(
            (CompensationFailed, WorkflowFailed), match=r"cannot undo -hotel \(after: sold out\)"
        ):
            await run.wait()
        assert "cannot undo -hotel" in str(run.error)
        assert shop.done == ["car", "hotel", "flight", "-flight", "-car"]


async def test_no_compensation_runs_when_a_session_closes(file: Path) -> None:
    async with (shop := Shop(file)).session:
        await started(shop, "booking", ["car"])
    assert shop.done == ["car"]
    again = Shop(file)
    async with again.session as session:
        [run] = await session.recover()
        await run.answer("yes")
        assert await run.wait() == "booked"
        assert again.done == []


async def test_a_stop_waits_for_the_outermost_of_nested_cleanup_blocks(file: Path) -> None:
    shop = Shop(file)
    session = shop.session
    inside = asyncio.Event()

    @session.step
    async def hold(name: str) -> str:
        inside.set()
        await shop.release.wait()
        shop.done.append(name)
        return name

    @session.workflow
    async def nested(ctx: WorkflowContext) -> str:
        try:
            async with ctx.cleanup():
                async with ctx.cleanup():
                    await hold("inner")
                await hold("outer")
            return "done"
        finally:
            shop.done.append("left")

    async with session:
        run = await session.start(nested)
        await inside.wait()
        stop = asyncio.ensure_future(run.stop())
        await until(lambda: run.state is WorkflowState.STOPPING)
        shop.release.set()
        await stop
        assert (run.state, shop.done) == (WorkflowState.CANCELLED, ["inner", "outer", "left"])


@pytest.mark.local("looks at executors")
async def test_a_second_stop_does_not_interrupt_a_step_that_is_ending(file: Path) -> None:
    """Without a cleanup block there is nothing to end at once: the step is cancelled already."""
    shop = Shop(file)
    session = shop.session

    @session.step
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            shop.done.append("ending")
            await shop.release.wait()
            shop.done.append("ended")
            raise

    @session.workflow
    async def plain(ctx: WorkflowContext) -> None:
        await stubborn()

    async with session:
        run = await session.start(plain)
        await until(lambda: session.engine.executors[run.run_id].call_runner.running_leaves)
        first = asyncio.ensure_future(run.stop("first"))
        await until(lambda: shop.done)
        second = asyncio.ensure_future(run.stop("second"))
        await asyncio.sleep(0)
        shop.release.set()
        await asyncio.gather(first, second)
        assert (run.error, shop.done) == ("first", ["ending", "ended"])


async def test_a_run_can_be_stopped_while_its_cleanup_is_rebuilt(file: Path) -> None:
    async with (shop := Shop(file)).session:
        run = await started(shop, "tidy")
        stop = asyncio.ensure_future(run.stop("first"))
        await until(lambda: "undo 1" in shop.done)
    await asyncio.wait([stop])
    again = Shop(file)
    again.release.set()
    async with again.session as session:
        [run] = await session.recover()
        await run.stop("second")
        assert run.state is WorkflowState.CANCELLED
        assert [event.event_type for event in run.events].count("workflow_cancelled") == 1
    async with Shop(file).session as session:
        assert await session.recover() == []


def open_slow_ending(store: MemoryStore) -> Session:
    """A body that cleans up in two tasks; the step of the first one takes time to end."""
    session = Session(store=store)

    async def slow(context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await spin(20)

    FunctionNode("slow", session, slow)
    FunctionNode("undo", session, lambda context: context.input)

    async def undone(ctx: WorkflowContext, name: str, work: Any) -> None:
        try:
            await work
        finally:
            now = ctx.now()
            async with ctx.cleanup(timeout=None):
                await ctx.run("undo", [name, now.isoformat()])

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        both = [undone(ctx, "step", ctx.run("slow")), undone(ctx, "gate", ctx.gate("Go on?"))]
        await asyncio.wait([asyncio.ensure_future(each) for each in both])

    return session


async def stopped_slow_ending() -> tuple[MemoryStore, str]:
    store = MemoryStore()
    session = open_slow_ending(store)
    run = await session.start("main")
    await until(lambda: run.pending_gate and session.engine.executors[run.run_id].call_runner.running_leaves)
    await run.stop()
    return store, run.run_id


@pytest.mark.local("looks at executors")
async def test_the_end_of_a_stopped_step_is_recorded_when_it_has_ended() -> None:
    store, run_id = await stopped_slow_ending()
    rows = [(row.type, row.path) for row in store.events(run_id)]
    ended = rows.index(("node_cancelled", "/slow"))
    assert rows.index(("workflow_stopping", "")) < rows.index(("node_started", "/undo")) < ended
    assert rows.index(("node_started", "/undo[2]")) > ended
    assert [path for type, path in rows if type == "node_cancelled"] == ["/slow"]


@pytest.mark.local("looks at executors")
async def test_a_cleanup_that_follows_the_end_of_a_stopped_step_continues_after_any_crash() -> None:
    store, run_id = await stopped_slow_ending()
    rows = store.events(run_id)
    stop = next(row.seq for row in rows if row.type == "workflow_stopping")
    for upto in range(stop, len(rows)):
        [run] = await open_slow_ending(copied(store, run_id, upto)).recover()
        await until(lambda run=run: run.is_complete or run.held)
        assert (run.state, run.held) == (WorkflowState.CANCELLED, None), f"after event {upto}"


@pytest.mark.local("looks at executors")
async def test_a_step_that_fails_because_of_a_stop_does_not_hide_the_stop_from_the_body(file: Path) -> None:
    shop = Shop(file)

    @shop.session.step
    async def lost() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the other side is gone")

    @shop.session.workflow
    async def undoing(ctx: WorkflowContext) -> None:
        async with ctx.saga() as saga:
            saga.compensate(ctx.run, "act", {"name": "-lost"})
            await lost()

    async with shop.session:
        run = await shop.session.start(undoing)
        await until(lambda: shop.session.engine.executors[run.run_id].call_runner.running_leaves)
        await run.stop()
        assert (run.state, shop.done) == (WorkflowState.CANCELLED, ["-lost"])
