"""Chains of runs: a run that continues as new ends, and the next run starts with what it has left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from nerve import FunctionNode, Queue, Result, Session, WorkflowContext, WorkflowState
from nerve.core.json_codec import decode_json
from nerve.engine.retention import delete_expired_runs
from nerve.errors import GateNotOpen, RunHeld, StoreFull
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow
from nerve.store.sqlite import SqliteStore
from nerve.testing import assert_replays, test_session


@dataclass
class Progress:
    done: int = 0
    total: int = 0


def register(session: Session) -> None:
    @session.step
    def add_one(number: int) -> int:
        return number + 1

    @session.workflow
    async def count_up(ctx: WorkflowContext, progress: Progress, batch: int = 3) -> Progress:
        """Count to the total, some steps in each run."""
        for _ in range(batch):
            if progress.done == progress.total:
                return progress
            progress.done = await add_one(progress.done)
        ctx.tag(done=progress.done)
        ctx.continue_as_new(progress)

    @session.workflow
    async def serve(ctx: WorkflowContext) -> Any:
        """Receive messages, two in each run, until "end"."""
        seen = list(ctx.input or [])
        ctx.query("seen", lambda: seen)
        ctx.update("note", lambda text: seen.append(f"note {text}") or len(seen))
        for _ in range(2):
            if (message := await ctx.receive("orders")) == "end":
                return seen
            seen.append(message)
        ctx.continue_as_new(seen)

    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        """Ask until the answer is "stop", once in each run."""
        if (answer := await ctx.gate("Go on?")) == "stop":
            return ctx.input
        ctx.continue_as_new(int(answer) if answer.isdecimal() else answer)

    @session.workflow
    async def parent(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow(*ctx.input)


async def start_chain(session: Session, total: int = 7, **options: Any) -> Any:
    register(session)
    return await session.start("count_up", Progress(0, total), **options)


def chain_of(session: Session, run: Any) -> list[Any]:
    runs = [run]
    while runs[-1].continued_as is not None:
        runs.append(session.get_workflow_run(runs[-1].continued_as))
    return runs


class CountingStore(SqliteStore):
    """Counts the events that are read."""

    def __init__(self, file: Path) -> None:
        self.read = 0
        self.batches: list[list[str]] = []
        super().__init__(file)

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        rows = super().events(run, after, limit)
        self.read += len(rows)
        return rows

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> Any:
        self.batches.append([f"{part.run} {row.type}" for part in batch for row in part.rows])
        return super().append(batch, patience)


async def test_a_chain_of_runs_has_the_value_of_its_last_run(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_chain(session, 7, params={"batch": 2}, key="one")
        assert await run.wait() == Progress(7, 7)
        runs = chain_of(session, run)
        assert [each.input["done"] for each in runs] == [0, 2, 4, 6]
        assert [each.continued_from for each in runs[1:]] == [each.run_id for each in runs[:-1]]
        assert {each.state for each in runs} == {WorkflowState.COMPLETED}
        assert [each.result for each in runs] == [None, None, None, Progress(7, 7)]
        assert all(each.current is runs[-1] for each in runs)
        assert all(each.params == {"batch": 2} for each in runs)
        assert await (await session.start("count_up", Progress(), key="one")).wait() == Progress(7, 7)
    async with Session(store=file) as session:
        register(session)
        reopened = session.get_workflow_run(run.run_id)
        assert reopened is not None
        assert reopened.current.run_id == runs[-1].run_id
        assert reopened.current.continued_from == runs[-2].run_id
        assert await reopened.wait() == Progress(7, 7)


async def test_label_tags_conversation_and_limits_are_carried_over() -> None:
    async with Session() as session:
        limits = {"steps": 4, "tokens": 9}
        run = await start_chain(
            session, 7, label="v1", conversation="c", tags={"customer": 42}, limits=limits
        )
        await run.wait()
        last = run.current
        assert (last.label, last.about["conversation"]) == ("v1", "c")
        assert last.tags == {"customer": "42", "done": "6"}
        assert last.run_state.limits.to_dict() == limits | {"depth": 16}
        assert [each.run_id for each in session.runs(tags={"done": 6}, label="v1")] == [
            each.run_id for each in reversed(chain_of(session, run)[1:])
        ]


@pytest.mark.local("looks at executors")
async def test_the_end_and_the_next_start_are_in_one_commit(file: Path) -> None:
    store = CountingStore(file)
    async with Session(store=store) as session:
        run = await start_chain(session, 4)
        await run.wait()
        end, start = f"{run.run_id} workflow_completed", f"{run.continued_as} workflow_started"
        (batch,) = [batch for batch in store.batches if end in batch]
        assert start in batch


@pytest.mark.local("looks into the store")
async def test_the_next_run_is_not_written_if_an_earlier_write_of_its_chain_failed() -> None:
    class FailingStore(MemoryStore):
        is_full = False

        def append(self, batch: Sequence[Append], patience: float = 30.0) -> Any:
            if self.is_full:
                raise StoreFull("the disk is full")
            return super().append(batch, patience)

    store = FailingStore()
    async with Session(store=store) as session:
        register(session)
        run = await session.start("ask")
        await until(lambda: run.pending_gate)
        store.is_full = True
        with pytest.raises(StoreFull):
            await run.answer("more")
        store.is_full = False
        await until(lambda: run.held is not None)
        assert (run.held["reason"], run.continued_as) == ("storage_full", None)
        assert len(store.runs()) == 1


@pytest.mark.local("looks at executors")
@pytest.mark.parametrize("upto", range(1, 9))
async def test_a_crash_before_the_commit_repeats_it_once(upto: int) -> None:
    store = MemoryStore()
    session = Session(store=store)
    run = await start_chain(session, 4)
    await run.wait()
    rows, other = store.events(run.run_id), MemoryStore()
    assert upto < len(rows)
    row = store.run(run.run_id)
    assert row is not None
    other.append(
        [Append(run.run_id, 0, rows[:upto], row._replace(state="running", ended=None, summary="{}"))]
    )
    again = Session(store=other)
    register(again)
    (rebuilt,) = await again.recover()
    assert await rebuilt.wait() == Progress(4, 4)
    assert {row.run for row in other.runs()} == {row.run for row in store.runs()}


async def test_a_chain_that_had_continued_is_resumed_after_a_restart(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("ask", 0)
        for number in range(1, 4):
            await run.next_gate()
            await run.answer(str(number))
        await until(lambda: run.current.input == 3 and run.current.pending_gate)
    async with Session(store=file) as session:
        register(session)
        (open_run,) = await session.recover()
        assert open_run.input == 3
        first = session.get_workflow_run(run.run_id)
        assert first is not None
        assert first.current is open_run
        waiting = asyncio.ensure_future(first.wait())
        await first.next_gate()
        await first.answer("stop")
        assert await waiting == 3


async def test_unread_messages_are_carried_over_in_order_with_their_keys(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("serve")
        await run.pause()
        for number in range(5):
            await run.send("orders", number, key=f"k{number}")
        await run.resume()
        await until(lambda: len(chain_of(session, run)) == 3)
        for number in (4, 3, 2, 0):
            await run.send("orders", number, key=f"k{number}")
        with pytest.raises(ValueError, match="Key 'k4' belongs to another message"):
            await run.send("orders", "other", key="k4")
        await run.send("orders", "end")
        assert await run.wait() == [0, 1, 2, 3, 4]


@pytest.mark.local("looks at executors")
async def test_a_message_that_a_stopped_task_did_not_get_is_carried_over() -> None:
    async with Session() as session:

        @session.workflow
        async def two_channels(ctx: WorkflowContext) -> Any:
            if ctx.input is not None:
                return [ctx.input, await ctx.receive("b")]

            async def receive_other() -> Any:
                return await ctx.receive("b")

            other = asyncio.ensure_future(receive_other())
            first = await ctx.receive("a")
            assert not other.done()
            ctx.continue_as_new(first)

        run = await session.start("two_channels")
        await until(lambda: run.state is WorkflowState.WAITING)
        executor = session.engine.executors[run.run_id]
        executor.open_waits.send("a", 1, None, "")
        executor.open_waits.send("b", 2, None, "")
        assert await run.wait() == [1, 2]


@pytest.mark.local("looks at executors")
async def test_an_update_that_the_run_had_not_read_is_answered_by_the_next_one() -> None:
    async with Session() as session:

        @session.workflow
        async def slow(ctx: WorkflowContext) -> Any:
            noted: list[str] = list(ctx.input or [])
            if ctx.input is not None:
                ctx.update("note", lambda text: noted.append(text) or noted)
                await ctx.receive("go")
                return noted
            await ctx.receive("go")
            ctx.continue_as_new(["first"])

        run = await session.start("slow")
        await until(lambda: run.state is WorkflowState.WAITING)
        session.engine.executors[run.run_id].open_waits.send("~update/note", "x", "k", "")
        await run.send("go")
        await until(lambda: run.continued_as is not None)
        assert await run.update("note", "x", key="k") == ["first", "x"]
        assert await run.update("note", "y") == ["first", "x", "y"]
        await run.send("go")
        assert await run.wait() == ["first", "x", "y"]


async def test_an_update_that_waits_while_the_run_continues_gets_its_reply() -> None:
    async with Session() as session:

        @session.workflow
        async def handler_later(ctx: WorkflowContext) -> Any:
            ctx.update("note", lambda text: f"{text} noted")
            if ctx.input is None:
                # The task that handles updates has not started when the run continues.
                ctx.continue_as_new(1)
            await ctx.receive("go")

        run = await session.start("handler_later")
        assert await run.update("note", "x", key="k") == "x noted"
        assert await run.update("note", "x", key="k") == "x noted"
        with pytest.raises(ValueError, match="Key 'k' belongs to another message"):
            await run.update("note", "y", key="k")
        await run.stop()


async def test_commands_on_any_run_of_a_chain_reach_the_current_one(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("serve")
        for number in range(2):
            await run.send("orders", number)
        await until(lambda: run.continued_as is not None)
        assert await run.query("seen") == [0, 1]
        assert await run.update("note", "x") == 3
        await run.pause()
        assert run.current.state is WorkflowState.PAUSED
        await run.resume()
        await run.stop("enough")
        assert (run.state, run.current.state) == (WorkflowState.COMPLETED, WorkflowState.CANCELLED)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await run.wait()
        with pytest.raises(RuntimeError, match="is cancelled and cannot take a message"):
            await run.send("orders", 9)
        with pytest.raises(GateNotOpen):
            await run.answer("yes")


async def test_a_paused_run_continues_as_new_after_the_resume() -> None:
    entered, released = asyncio.Event(), asyncio.Event()
    async with Session() as session:

        @session.node
        async def wait_for_test(context: Any) -> None:
            entered.set()
            await released.wait()

        @session.workflow
        async def one_step(ctx: WorkflowContext) -> Any:
            if ctx.input:
                return ctx.input
            with suppress(RuntimeError):
                await ctx.run("wait_for_test")
            ctx.continue_as_new(1)

        run = await session.start("one_step")
        await entered.wait()
        await run.pause()
        released.set()
        await until(lambda: run.state is WorkflowState.PAUSED)
        assert run.continued_as is None
        await run.resume()
        assert await run.wait() == 1


async def test_the_budget_counts_over_the_chain(file: Path) -> None:
    def register_spender(session: Session) -> None:
        FunctionNode("pay", session, lambda context: Result.ok("", {"usage": {"tokens": 4}}))

        @session.workflow
        async def spend(ctx: WorkflowContext) -> Any:
            await ctx.run("pay")
            if ctx.input == 3:
                return "done"
            ctx.continue_as_new((ctx.input or 0) + 1)

    async with Session(store=file) as session:
        register_spender(session)
        run = await session.start("spend", limits={"tokens": 6})
        with pytest.raises(RunHeld, match="8 of 6 tokens"):
            await run.wait()
        assert (run.current.input, run.current.view.usage.tokens) == (2, 0)
        assert session.engine.usage_today().tokens == 8
    async with Session(store=file) as session:
        register_spender(session)
        (held,) = await session.recover()
        assert session.engine.budgets.budget_of_run(held.run_id).usage.tokens == 8
        await held.resume(limits={"tokens": 100})
        assert await held.wait() == "done"
        assert held.current.run_state.limits.tokens == 100
        assert held.current.view.used_before == {"tokens": 12, "models": {"unknown": {"tokens": 12}}}
        assert session.engine.usage_today().tokens == 16


async def test_a_parent_waits_for_the_end_of_a_chain_and_counts_all_of_it(file: Path) -> None:
    async with Session(store=file) as session:
        FunctionNode("pay", session, lambda context: Result.ok("", {"usage": {"tokens": 4}}))

        @session.workflow
        async def spend(ctx: WorkflowContext) -> Any:
            await ctx.run("pay")
            if ctx.input == 0:
                return "done"
            await ctx.receive("go")
            ctx.continue_as_new(ctx.input - 1)

        register(session)
        run = await session.start("parent", ["spend", 3])
        for left in (3, 2, 1):
            await until(
                lambda left=left: (
                    [child.input for child in run.open_children.values()] == [left]
                    and run.state is WorkflowState.WAITING
                )
            )
            assert session.engine.budgets.budget_of_run(run.run_id).usage.tokens == (4 - left) * 4
            (child,) = run.open_children.values()
            assert (child.view.used_before or {}).get("tokens", 0) == (3 - left) * 4
            await child.send("go")
        assert await run.wait() == "done"
        assert run.view.usage.tokens == 16
        assert run.view.ledger.by_model() == {"unknown": {"tokens": 16}}
        assert session.engine.usage_today().tokens == 16


async def test_a_parent_finds_the_current_run_of_a_child_chain_after_a_restart(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("parent", ["ask", 0])
        for number in (1, 2):
            await run.next_gate()
            await run.answer(str(number))
            await until(lambda n=number: [child.input for child in run.open_children.values()] == [n])
        await until(lambda: run.pending_gate)
    async with Session(store=file) as session:
        register(session)
        await session.recover()
        again = session.get_workflow_run(run.run_id)
        assert again is not None
        await until(lambda: again.pending_gate)
        assert [child.input for child in again.open_children.values()] == [2]
        await again.answer("stop")
        assert await again.wait() == 2


async def test_stopping_a_parent_stops_the_current_run_of_a_child_chain(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("parent", ["ask", 0])
        await run.next_gate()
        await run.answer("1")
        await until(lambda: [child.input for child in run.open_children.values()] == [1])
        (child,) = run.open_children.values()
        await run.stop("enough")
        assert (run.state, child.state) == (WorkflowState.CANCELLED, WorkflowState.CANCELLED)


async def test_open_children_and_tasks_end_with_the_run() -> None:
    async with Session() as session:
        register(session)

        @session.workflow
        async def leaves_a_child(ctx: WorkflowContext) -> Any:
            if ctx.input is not None:
                return ctx.input
            ctx.state["child"] = asyncio.ensure_future(ctx.run_workflow("ask"))
            await ctx.receive("go")
            ctx.continue_as_new("next")

        run = await session.start("leaves_a_child")
        await until(lambda: run.pending_gate)
        (child,) = run.open_children.values()
        await run.send("go")
        assert await run.wait() == "next"
        assert (child.state, child.error) == (WorkflowState.CANCELLED, "its parent has ended")


async def test_except_exception_does_not_catch_it_and_cleanup_runs() -> None:
    done: list[str] = []
    async with Session() as session:

        @session.step
        def note(text: str) -> None:
            done.append(text)

        @session.workflow
        async def careful(ctx: WorkflowContext, again: bool = True) -> str:
            if not again:
                return "end"
            try:
                async with ctx.saga() as saga:
                    saga.compensate(note, "compensated")
                    ctx.continue_as_new(False)
            except Exception:
                return "caught"
            finally:
                async with ctx.cleanup():
                    await note("cleaned up")

        assert await (await session.start(careful, True)).wait() == "end"
        assert done == ["cleaned up"]


@pytest.mark.local("looks at executors")
async def test_wrong_places_and_values_are_refused() -> None:
    async with Session() as session:
        problems: list[str] = []

        @session.workflow
        async def misplaced(ctx: WorkflowContext, number: int = 0) -> list[str]:
            async def try_here(*args: Any) -> None:
                try:
                    ctx.continue_as_new(*args)
                except Exception as error:
                    problems.append(f"{type(error).__name__}: {error}")

            @session.node
            async def inside_a_step(context: Any) -> None:
                await try_here()

            @session.node
            def inside_a_thread(context: Any) -> None:
                asyncio.run(try_here())

            await ctx.run("inside_a_step")
            await ctx.run("inside_a_thread")
            await asyncio.create_task(try_here())
            async with ctx.cleanup():
                await try_here()
            await try_here("many")
            await try_here(2**60)
            return problems

        assert await (await session.start(misplaced)).wait() == [
            "RuntimeError: ctx.continue_as_new was called in a step. Call it in the workflow function.",
            "RuntimeError: ctx.continue_as_new was called in a step. Call it in the workflow function.",
            "RuntimeError: ctx.continue_as_new was called in a task or a handler."
            " Call it in the workflow function.",
            "RuntimeError: ctx.continue_as_new was called in a cleanup, but the run ends after it."
            " Call it elsewhere.",
            problems[4],
            problems[5],
        ]
        assert problems[4].startswith("InvalidValue: ")
        assert "number" in problems[4]
        assert problems[5].startswith("NotJson: ")
        with pytest.raises(RuntimeError, match="not attached"):
            WorkflowContext(session).continue_as_new()


async def test_a_handler_of_an_update_cannot_continue_the_run() -> None:
    async with Session() as session:

        @session.workflow
        async def handles(ctx: WorkflowContext) -> None:
            async def handle(value: Any) -> None:
                ctx.continue_as_new(value)

            ctx.update("restart", handle)
            await ctx.receive("go")

        run = await session.start("handles")
        with pytest.raises(Exception, match="was called in a task or a handler"):
            await run.update("restart", 1)
        await run.stop()


async def test_a_fork_of_a_run_that_continued_is_a_chain_of_its_own(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_chain(session, 7)
        await run.wait()
        middle = chain_of(session, run)[1]
        fork = await session.fork(middle.run_id)
        assert await fork.wait() == Progress(7, 7)
        assert fork.continued_from is None
        assert {each.run_id for each in chain_of(session, fork)}.isdisjoint(
            each.run_id for each in chain_of(session, run)
        )
        assert run.current.run_id == chain_of(session, run)[-1].run_id


async def test_a_fork_of_a_parent_takes_the_current_run_of_a_child_chain(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("parent", ["ask", 0])
        await run.next_gate()
        await run.answer("1")
        await until(lambda: [child.input for child in run.open_children.values()] == [1])
        await until(lambda: run.pending_gate)
        fork = await session.fork(run.run_id)
        await until(lambda: fork.pending_gate)
        await fork.answer("stop")
        assert await fork.wait() == 1


async def test_a_retry_of_a_chain_retries_its_last_run(file: Path) -> None:
    fails = True
    async with Session(store=file) as session:

        @session.step
        def work(number: int) -> int:
            if fails and number == 2:
                raise ValueError("not yet")
            return number

        @session.workflow
        async def chain(ctx: WorkflowContext, number: int = 0) -> int:
            await work(number)
            if number == 3:
                return number
            ctx.continue_as_new(number + 1)

        run = await session.start(chain, 0)
        with pytest.raises(Exception, match="not yet"):
            await run.wait()
        fails = False
        again = await session.retry(run.run_id)
        assert again.input == 2
        assert await again.wait() == 3


async def read_counts(file: Path, iterations: int) -> tuple[int, int]:
    """Return the events that are read to resume a parked chain, and to address its first run."""
    async with Session(store=file) as session:
        register(session)
        run = await session.start("ask", 0)
        for number in range(1, iterations + 1):
            await run.next_gate()
            await run.answer(str(number))
        await until(lambda: run.current.input == iterations and run.current.pending_gate)
        first = run.run_id
    store = CountingStore(file)
    async with Session(store=store) as session:
        register(session)
        await session.recover()
        handle = session.get_workflow_run(first)
        assert handle is not None
        assert handle.current.input == iterations
        found = store.read
        await handle.answer("more")
        await until(lambda: handle.current.input == "more")
        return found, store.read - found


@pytest.mark.local("looks at executors")
async def test_the_events_read_to_resume_a_parked_loop_do_not_depend_on_its_iterations(
    tmp_path: Path,
) -> None:
    short = await read_counts(tmp_path / "short.db", 4)
    long = await read_counts(tmp_path / "long.db", 40)
    assert short == long
    assert max(long) < 20


def register_loop(session: Session) -> None:
    register(session)
    add_one = session.nodes["add_one"]

    @session.workflow
    async def loop(ctx: WorkflowContext, progress: Progress) -> int:
        """Run the steps of a batch in each run; ask after the last one."""
        for _ in range(250):
            if progress.done == progress.total:
                await ctx.gate("Go on?")
                return progress.done
            progress.done = (await ctx.run(add_one.id, {"number": progress.done}))["output"]
        ctx.continue_as_new(progress)


async def cost_to_resume(file: Path, iterations: int) -> tuple[int, float]:
    """Run a loop until it parks; return the events and CPU seconds that the next session needs to end it."""
    async with Session(store=file) as session:
        register_loop(session)
        run = await session.start("loop", Progress(0, iterations))
        await run.next_gate()
        first = run.run_id
    store, started = CountingStore(file), time.process_time()
    async with Session(store=store) as session:
        register_loop(session)
        await session.recover()
        handle = session.get_workflow_run(first)
        assert handle is not None
        await handle.answer("yes")
        assert await handle.wait() == iterations
        return store.read, time.process_time() - started


@pytest.mark.local("looks at executors")
@pytest.mark.parametrize("iterations", [2_100, pytest.param(100_100, marks=pytest.mark.full)])
async def test_a_parked_loop_resumes_in_constant_time(tmp_path: Path, iterations: int) -> None:
    short_reads, short_seconds = await cost_to_resume(tmp_path / "short.db", 350)
    reads, seconds = await cost_to_resume(tmp_path / "long.db", iterations)
    assert reads == short_reads
    assert reads < 1000
    assert seconds < short_seconds * 2 + 0.1


@pytest.mark.local("looks at executors")
async def test_the_lookup_of_the_current_run_survives_a_clock_that_is_set_back() -> None:
    store = MemoryStore()
    async with Session(store=store) as session:
        run = await start_chain(session, 10)
        await run.wait()
        last = store.run(run.current.run_id)
        assert last is not None
        store.append([Append(last.run, len(store.events(last.run)), (), last._replace(started=1.0))])
        assert run.current.run_id == last.run


async def test_runs_of_a_chain_can_be_deleted_while_it_continues(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("ask", 0)
        for number in (1, 2):
            await run.next_gate()
            await run.answer(str(number))
        await until(lambda: run.current.input == 2 and run.current.pending_gate)
        first = run.run_id
        deleted = await delete_expired_runs(session.engine.store, older_than=1e12, dry_run=False)
        assert deleted.runs == 2
        await run.answer("more")
        await until(lambda: run.current.input == "more")
    async with Session(store=file) as session:
        register(session)
        await session.recover()
        found = session.get_workflow_run(first)
        assert found is not None
        assert found.input == "more"


def test_the_start_records_the_previous_and_the_first_run() -> None:
    async def scenario() -> list[dict[str, Any]]:
        store = MemoryStore()
        async with Session(store=store) as session:
            run = await start_chain(session, 7)
            await run.wait()
            runs = chain_of(session, run)
            assert [each.events[-1].data.get("continued_as") for each in runs] == [
                *(each.run_id for each in runs[1:]),
                None,
            ]
            starts = [decode_json(store.events(each.run_id)[0].data) for each in runs]
            return [start.get("continued_from") for start in starts] + [run.run_id]

    none, second, third, first = asyncio.run(scenario())
    assert none is None
    assert second == {"run": first, "first": first}
    assert third["first"] == first
    assert third["run"] != first


@pytest.mark.local("looks at executors")
async def test_the_replay_of_a_run_that_continued_is_checked(file: Path) -> None:
    async with Session(store=file) as session:
        run = await start_chain(session, 7)
        await run.wait()
        for each in chain_of(session, run):
            await assert_replays(each)
        changed = session.workflows["count_up"]

        async def count_up(ctx: WorkflowContext, progress: Progress, batch: int = 3) -> Progress:
            for _ in range(batch):
                if progress.done == progress.total:
                    return progress
                progress.done = (await ctx.run("add_one", {"number": progress.done}))["output"]
            ctx.tag(done=progress.done)
            ctx.continue_as_new(Progress(0, 0))

        changed._fn = count_up
        with pytest.raises(AssertionError, match=r"the run continues as new with .* the code now with"):
            await assert_replays(run)


@pytest.mark.local("sets the clock")
async def test_time_is_skipped_in_every_run_of_a_chain() -> None:
    async with test_session() as session:

        @session.workflow
        async def monthly(ctx: WorkflowContext, month: int = 0) -> int:
            await ctx.sleep(30 * 86400)
            if month == 12:
                return month
            ctx.continue_as_new(month + 1)

        run = await session.start(monthly, 0)
        assert await run.wait() == 12
        assert (run.current.completed_at - run.started_at).days == 390


@pytest.mark.differs("a queue")
async def test_the_next_run_enters_the_queue_of_its_chain() -> None:
    async with Session(queues=[Queue("loops", concurrency=1)]) as session:
        register(session)
        first = await session.start("ask", 0, queue="loops")
        second = await session.start("ask", 10, queue="loops")
        await first.next_gate()
        assert not second.pending_gate
        await first.answer("1")
        await second.next_gate()
        assert first.current.input == 1
        assert not first.current.pending_gate
        await second.answer("stop")
        assert await second.wait() == 10
        await first.next_gate()
        await first.answer("stop")
        assert await first.wait() == 1
