"""Queues: steps and runs wait outside the body for a slot, across pauses, stops and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from engine.programs import copied, finish, spin
from nerve import FunctionNode, Graph, Queue, Retry, Session, WorkflowContext, WorkflowState
from nerve.engine import idle_runs
from nerve.engine.session_queues import SLOT_KIND, START_KIND
from nerve.store.memory import MemoryStore
from nerve.testing import VirtualClock, assert_replays, test_session

pytestmark = pytest.mark.differs("a queue")


class Office:
    """A session with steps in queues that note who is active, and end when they are released."""

    def __init__(self, file: Path | None, *more: Queue) -> None:
        self.active: list[str] = []
        self.most_active = 0
        self.started: list[str] = []
        self.released: dict[str, asyncio.Event] = {}
        self.session = session = Session(
            store=file,
            queues=[
                Queue("mutex", concurrency=1),
                Queue("ranked", concurrency=1, priority="rank"),
                Queue("tenants", concurrency=1, per="tenant"),
                *more,
            ],
        )

        async def work(name: str) -> str:
            self.started.append(name)
            self.active.append(name)
            self.most_active = max(self.most_active, len(self.active))
            try:
                await self.released.setdefault(name, asyncio.Event()).wait()
            finally:
                self.active.remove(name)
            return name

        @session.step(queue="mutex")
        async def alone(name: str) -> str:
            return await work(name)

        @session.step(queue="mutex", timeout=0.3)
        async def brief(name: str) -> str:
            return await work(name)

        @session.step(queue="ranked")
        async def ranked(name: str, rank: int) -> str:
            return await work(name)

        @session.step(queue="tenants")
        async def of_tenant(name: str, tenant: str) -> str:
            return await work(name)

        @session.workflow
        async def one(ctx: WorkflowContext, name: str) -> str:
            return await alone(name)

        @session.workflow
        async def rank(ctx: WorkflowContext, name: str, rank: int = 0) -> str:
            return await ranked(name, rank)

        @session.workflow
        async def tenant(ctx: WorkflowContext, name: str, tenant: str = "") -> str:
            return await of_tenant(name, tenant)

        @session.workflow(queue="mutex")
        async def whole(ctx: WorkflowContext, name: str) -> str:
            await ctx.sleep(0)
            return await ctx.gate(name) if name == "asks" else await work(name)

        @session.workflow
        async def in_time(ctx: WorkflowContext, name: str) -> str:
            return await brief(name)

        @session.workflow(queue="mutex", timeout=0.3)
        async def child(ctx: WorkflowContext, name: str) -> str:
            return await work(name)

        @session.workflow
        async def parent(ctx: WorkflowContext, name: str) -> Any:
            return await ctx.run_workflow("child", name)

        @session.workflow
        async def gives_up(ctx: WorkflowContext, name: str) -> str:
            task = asyncio.ensure_future(alone(name))
            await ctx.gate("Give up?")
            task.cancel()
            await asyncio.wait([task])
            return "gave up"

    def release(self, *names: str) -> None:
        for name in names:
            self.released.setdefault(name, asyncio.Event()).set()

    def info(self, name: str = "mutex") -> Any:
        return next(queue for queue in self.session.list_queues() if queue.name == name)


def types(run: Any) -> list[str]:
    return [event.event_type for event in run.events]


async def test_a_queue_of_concurrency_1_is_a_mutex_across_runs() -> None:
    office = Office(None)
    runs = [await office.session.start("one", str(number)) for number in range(5)]
    await until(lambda: office.info().waiting == 4)
    office.release(*"01234")
    assert [await run.wait() for run in runs] == list("01234")
    assert (office.most_active, office.started) == (1, list("01234"))
    assert (office.info().running, office.info().waiting) == (0, 0)


async def test_a_step_that_gets_its_slot_at_once_has_no_events_of_the_queue() -> None:
    office = Office(None)
    office.release("a")
    run = await office.session.start("one", "a")
    await run.wait()
    assert types(run) == ["workflow_started", "node_started", "node_completed", "workflow_completed"]


async def test_a_run_says_that_it_waits_for_a_queue(file: Path) -> None:
    async with (office := Office(file)).session as session:
        await session.start("one", "a")
        run = await session.start("one", "b")
        await until(lambda: run.state is WorkflowState.WAITING)
        assert run.waiting_for == 'for queue "mutex"'
        assert (office.info().running, office.info().waiting) == (1, 1)
        assert time.time() - (office.info().oldest_wait or 0) < 60
        office.release("a", "b")
        assert await run.wait() == "b"
        assert types(run)[1:4] == ["queue_waiting", "queue_entered", "node_started"]


async def test_the_timeout_of_a_step_does_not_run_while_it_waits() -> None:
    office = Office(None)
    await office.session.start("whole", "long")
    run = await office.session.start("in_time", "a")
    await until(lambda: office.info().waiting == 1)
    await asyncio.sleep(0.4)
    office.release("long", "a")
    assert await run.wait() == "a"


async def test_a_timeout_around_a_child_run_does_not_run_while_the_child_waits() -> None:
    office = Office(None)
    await office.session.start("whole", "long")
    run = await office.session.start("parent", "a")
    await until(lambda: office.info().waiting == 1)
    await asyncio.sleep(0.4)
    assert run.state in (WorkflowState.WAITING, WorkflowState.RUNNING)
    office.release("long", "a")
    assert await run.wait() == "a"


async def test_entries_with_a_higher_priority_go_first_then_those_that_came_first() -> None:
    office = Office(None)
    first = await office.session.start("rank", "first")
    await until(lambda: office.active)
    waiting = [
        await office.session.start("rank", name, {"rank": rank})
        for name, rank in [("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)]
    ]
    await until(lambda: office.info("ranked").waiting == 5)
    office.release("first", *"abcde")
    for run in (first, *waiting):
        await run.wait()
    assert office.started == ["first", "b", "d", "a", "c", "e"]


async def test_a_queue_with_a_key_counts_for_each_value() -> None:
    office = Office(None)
    names = [("a1", "a"), ("a2", "a"), ("b1", "b")]
    runs = [await office.session.start("tenant", name, {"tenant": tenant}) for name, tenant in names]
    await until(lambda: office.active == ["a1", "b1"])
    assert (office.info("tenants").running, office.info("tenants").waiting) == (2, 1)
    office.release("a1", "a2", "b1")
    assert [await run.wait() for run in runs] == ["a1", "a2", "b1"]


async def test_the_tags_of_a_run_are_the_key_of_its_steps_without_such_an_argument() -> None:
    session = Session(queues=[Queue("tenants", concurrency=1, per="tenant")])
    seen: list[Any] = []

    @session.step(queue="tenants")
    async def send(to: str) -> None:
        seen.append([entry.request.key for entry in session.engine.queues._entries[run_id].values()])

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        nonlocal run_id
        run_id = ctx.run_id
        await send("x")

    run_id = ""
    await (await session.start("main", tags={"tenant": 42})).wait()
    assert seen == [["42"]]
    with pytest.raises(Exception, match="step 'send' has neither an input field nor a tag 'tenant'"):
        await (await session.start("main")).wait()


async def test_a_rate_limits_the_starts_in_any_window() -> None:
    session = Session(queues=[Queue("fast", rate="5/s")])
    at: list[float] = []

    @session.step(queue="fast")
    async def send(number: int) -> None:
        at.append(time.monotonic())

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        await asyncio.gather(*(send(number) for number in range(6)))

    runs = [await session.start("main") for _ in range(2)]
    for run in runs:
        await run.wait()
    gaps = [later - earlier for earlier, later in zip(at, at[5:], strict=False)]
    assert len(at) == 12
    assert min(gaps) > 0.9


async def test_every_attempt_needs_a_slot_and_a_backoff_keeps_none() -> None:
    session = Session(queues=[Queue("mutex", concurrency=1), Queue("fast", rate="2/s")])
    order: list[str] = []

    @session.step(queue="mutex", retry=Retry(attempts=2, delay=0.05))
    async def flaky(name: str) -> str:
        order.append(name)
        if order.count(name) == 1:
            raise ConnectionError("once")
        return name

    @session.step(queue="mutex")
    async def solid(name: str) -> str:
        order.append(name)
        return name

    @session.workflow
    async def main(ctx: WorkflowContext) -> list[str]:
        return list(await asyncio.gather(flaky("flaky"), solid("solid")))

    run = await session.start("main")
    assert await run.wait() == ["flaky", "solid"]
    assert order == ["flaky", "solid", "flaky"]
    assert types(run).count("queue_entered") == 2


async def test_unknown_queues_are_refused_before_anything_is_recorded() -> None:
    session = Session(queues=[Queue("emails", concurrency=1)])

    @session.step(queue="email")
    async def send() -> None: ...

    @session.workflow
    async def main(ctx: WorkflowContext) -> str:
        try:
            await send()
        except ValueError as error:
            return str(error)
        return ""

    @session.workflow(queue="mails")
    async def whole(ctx: WorkflowContext) -> None: ...

    run = await session.start("main")
    assert await run.wait() == "Queue 'email' not found. Did you mean 'emails'?"
    assert types(run) == ["workflow_started", "workflow_completed"]
    with pytest.raises(ValueError, match="Queue 'mails' not found"):
        await session.start("whole")
    with pytest.raises(ValueError, match="Queue 'emial' not found"):
        await session.start("main", queue="emial")
    assert [run.workflow_id for run in session.runs()] == ["main"]


async def test_a_control_node_cannot_be_in_a_queue() -> None:
    session = Session(queues=[Queue("emails")])
    work = FunctionNode("work", session, lambda context: 1)
    Graph("graph", session).add_step(work, "a")

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        await ctx.run("graph", queue="emails")

    with pytest.raises(Exception, match="'graph' is a control node and cannot have queue='emails'"):
        await (await session.start("main")).wait()


async def test_a_step_in_the_queue_of_its_own_run_is_refused() -> None:
    office = Office(None)
    run = await office.session.start("one", "a", queue="mutex")
    with pytest.raises(Exception, match="is in queue 'mutex' until it ends, so step 'alone' cannot wait"):
        await run.wait()
    assert office.info().running == 0


async def test_a_whole_run_starts_when_it_has_a_slot_and_holds_it_until_it_ends() -> None:
    office = Office(None)
    first = await office.session.start("whole", "asks")
    second = await office.session.start("whole", "b")
    await until(lambda: first.pending_gates)
    assert second.waiting_for == 'for queue "mutex"'
    assert office.started == []
    office.release("b")
    await first.answer("yes")
    assert (await first.wait(), await second.wait()) == ("yes", "b")


async def test_a_parent_says_that_its_child_run_waits_for_a_queue() -> None:
    office = Office(None)
    await office.session.start("whole", "long")
    run = await office.session.start("parent", "a")
    await until(lambda: office.info().waiting == 1)
    assert run.waiting_for is not None
    assert run.waiting_for.endswith('(for queue "mutex")')
    office.release("long", "a")
    await run.wait()


async def test_a_paused_run_leaves_the_queue_and_enters_it_again_on_resume() -> None:
    office = Office(None)
    await office.session.start("one", "a")
    paused, other = [await office.session.start("one", name) for name in ("b", "c")]
    await until(lambda: office.info().waiting == 2)
    await paused.pause()
    assert (paused.state, office.info().waiting) == (WorkflowState.PAUSED, 1)
    office.release("a", "b", "c")
    await other.wait()
    assert office.started == ["a", "c"]
    await paused.resume()
    assert await paused.wait() == "b"


async def test_a_stopped_run_leaves_the_queue() -> None:
    office = Office(None)
    holder, waiting = [await office.session.start("one", name) for name in ("a", "b")]
    await until(lambda: office.info().waiting == 1)
    await waiting.stop()
    assert (waiting.state, office.info().waiting) == (WorkflowState.CANCELLED, 0)
    await holder.stop()
    assert office.info().running == 0


async def test_a_run_that_waits_to_start_can_be_stopped(file: Path) -> None:
    async with (office := Office(file)).session as session:
        holder, waiting = [await session.start("whole", name) for name in ("a", "b")]
        await until(lambda: office.info().waiting == 1)
        await waiting.stop()
        await holder.stop()
        assert (waiting.state, office.info().running, office.info().waiting) == (
            WorkflowState.CANCELLED,
            0,
            0,
        )
        assert session.engine.store.open_waits("default", SLOT_KIND) == []


async def test_a_body_can_abandon_a_step_that_waits(file: Path) -> None:
    async with (office := Office(file)).session as session:
        await session.start("whole", "long")
        run = await session.start("gives_up", "a")
        await until(lambda: office.info().waiting == 1 and run.pending_gates)
        await run.answer("yes")
        assert await run.wait() == "gave up"
        assert "queue_cancelled" in types(run)
        assert (office.info().waiting, office.started) == (0, ["long"])


async def test_a_paused_queue_grants_nothing_until_it_is_resumed_also_after_a_restart(file: Path) -> None:
    async with (office := Office(file)).session as session:
        await session.pause_queue("mutex")
        await session.start("one", "a")
        await until(lambda: office.info().waiting == 1)
        assert office.info().is_paused
    async with (office := Office(file)).session as session:
        (run,) = await session.recover()
        office.release("a")
        await asyncio.sleep(0.05)
        assert (office.info().is_paused, office.info().waiting, office.started) == (True, 1, [])
        await session.resume_queue("mutex")
        assert await run.wait() == "a"
    assert not Office(file).info().is_paused


async def test_an_unknown_queue_cannot_be_paused() -> None:
    with pytest.raises(ValueError, match=r"Queue 'mutexes' not found\. Did you mean 'mutex'"):
        await Office(None).session.pause_queue("mutexes")


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", ["one", "whole"])
async def test_after_a_restart_the_holder_keeps_its_slot_and_the_others_their_turns(
    file: Path, workflow: str
) -> None:
    async with (office := Office(file)).session as session:
        # The runs that wait are older than the holder: recovery resumes them first.
        await session.pause_queue("mutex")
        waiting = [await session.start(workflow, name) for name in ("b", "c")]
        await until(lambda: office.info().waiting == 2)
        holder = await session.start(workflow, "a")
        await until(lambda: office.info().waiting == 3)
        await waiting[0].pause()
        await waiting[1].pause()
        await session.resume_queue("mutex")
        await until(lambda: office.active == ["a"])
        for run in waiting:
            await run.resume()
        await until(lambda: office.info().waiting == 2)
        ids = [run.run_id for run in (holder, *waiting)]
    for _ in range(2):
        async with (office := Office(file)).session as session:
            await session.recover()
            await until(lambda: office.active)
            await asyncio.sleep(0.05)
            assert office.started == ["a"]
            assert (office.info().running, office.info().waiting) == (1, 2)
    async with (office := Office(file)).session as session:
        await session.recover()
        office.release("a", "b", "c")
        runs = [session.get_workflow_run(run_id) for run_id in ids]
        assert [await run.wait() for run in runs if run is not None] == ["a", "b", "c"]
        assert (office.most_active, office.started) == (1, ["a", "b", "c"])
        assert session.engine.store.open_waits("default", SLOT_KIND) == []


async def test_a_step_interrupted_in_a_paused_run_gives_its_slot_to_others(file: Path) -> None:
    async with (office := Office(file)).session as session:
        run = await session.start("one", "a")
        await until(lambda: office.active)
        await run.pause()
        run_id = run.run_id
    async with (office := Office(file)).session as session:
        await session.recover()
        other = await session.start("one", "b")
        await until(lambda: office.active == ["b"])
        paused = session.get_workflow_run(run_id)
        assert paused is not None
        await paused.resume()
        await until(lambda: office.info().waiting == 1)
        office.release("a", "b")
        assert (await other.wait(), await paused.wait()) == ("b", "a")
        assert office.most_active == 1


async def test_a_holder_that_cannot_be_resumed_loses_its_slot(file: Path) -> None:
    async with (office := Office(file)).session as session:
        await session.start("one", "a")
        await until(lambda: office.active)
        await session.start("rank", "b", queue="mutex")
        await until(lambda: office.info().waiting == 1)
    async with (office := Office(file)).session as session:
        session.delete_workflow("one")
        await session.recover()
        office.release("b")
        await until(lambda: office.started == ["b"])


async def test_a_queue_that_is_not_declared_any_more_keeps_its_entries(file: Path) -> None:
    async with (office := Office(file, Queue("extra", concurrency=1))).session as session:
        await session.pause_queue("extra")
        await session.start("rank", "a", queue="extra")
        await until(lambda: office.info("extra").waiting == 1)
    async with (office := Office(file)).session as session:
        (run,) = await session.recover()
        info = office.info("extra")
        assert (info.is_declared, info.waiting, info.is_paused) == (False, 1, True)
        await session.resume_queue("extra")
        assert run.waiting_for == 'for queue "extra"'
        session.add_queue(Queue("extra", concurrency=1))
        office.release("a")
        assert await run.wait() == "a"


async def test_a_rate_holds_over_a_restart(file: Path) -> None:
    office = Office(file, Queue("slow", rate="2/h"))
    office.release("a", "b", "c")
    async with office.session as session:
        for name in ("a", "b"):
            await (await session.start("rank", name, queue="slow")).wait()
    async with (office := Office(file, Queue("slow", rate="2/h"))).session as session:
        office.release("c")
        run = await session.start("rank", "c", queue="slow")
        await until(lambda: run.state is WorkflowState.WAITING)
        assert office.started == []
        assert len(session.engine.store.open_waits("default", START_KIND)) == 2


async def test_starts_that_no_longer_count_are_deleted(file: Path) -> None:
    office = Office(file, Queue("fast", rate="50/s"))
    async with office.session as session:
        office.release("a")
        await (await session.start("rank", "a", queue="fast")).wait()
        rows = session.engine.store.open_waits("default", START_KIND)
        await until(lambda: not session.engine.queues._lanes)
        office.release("b")
        await (await session.start("rank", "b", queue="fast")).wait()
        assert not set(rows) & set(session.engine.store.open_waits("default", START_KIND))


async def test_runs_that_wait_for_a_queue_leave_memory_and_keep_their_turn(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 2)
    async with (office := Office(file)).session as session:
        names = [f"{number:02}" for number in range(10)]
        runs = [await session.start("whole" if int(name) % 2 else "one", name) for name in names]
        await until(lambda: len(session.engine.executors) <= 4)
        assert office.info().waiting == 9
        office.release(*names)
        assert [await run.wait() for run in runs] == names
        assert (office.most_active, office.started) == (1, names)


async def test_a_fork_of_a_run_in_a_queue_waits_for_its_own_slot(file: Path) -> None:
    async with (office := Office(file)).session as session:
        office.release("a")
        source = await session.start("whole", "a")
        await source.wait()
        await session.start("whole", "long")
        fork = await session.fork(source.run_id)
        await until(lambda: office.info().waiting == 1)
        office.release("long")
        assert await fork.wait() == "a"


async def test_a_step_with_an_effect_that_waits_is_not_in_doubt_after_a_restart(file: Path) -> None:
    def build() -> tuple[Session, list[str]]:
        session, done = Session(store=file, queues=[Queue("mutex", concurrency=1)]), list[str]()

        @session.step(queue="mutex", effect="once")
        async def pay(name: str) -> str:
            done.append(name)
            return name

        @session.workflow
        async def main(ctx: WorkflowContext) -> str:
            return await pay("a")

        return session, done

    session, done = build()
    async with session:
        await session.pause_queue("mutex")
        run = await session.start("main")
        await until(lambda: run.state is WorkflowState.WAITING)
    session, done = build()
    async with session:
        (run,) = await session.recover()
        await session.resume_queue("mutex")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                await run.wait()
        assert (run.state, done) == (WorkflowState.COMPLETED, ["a"])


# -- deadlines around steps that wait --------------------------------------------------------------


def with_deadlines(session: Session, done: list[str]) -> Session:
    session.add_queue(Queue("mutex", concurrency=1))

    @session.step(queue="mutex")
    async def work(name: str) -> str:
        done.append(name)
        return name

    @session.step(queue="mutex", timeout=5)
    async def brief(name: str) -> str:
        return await asyncio.shield(asyncio.ensure_future(asyncio.sleep(0, name)))

    @session.workflow(queue="mutex")
    async def holder(ctx: WorkflowContext) -> None:
        await ctx.sleep(3600)

    @session.workflow
    async def in_time(ctx: WorkflowContext) -> str:
        try:
            async with ctx.timeout(60):
                return await work("late")
        except TimeoutError as error:
            return str(error)

    @session.workflow
    async def child_in_time(ctx: WorkflowContext) -> str:
        try:
            async with ctx.timeout(60):
                await ctx.run_workflow("holder")
        except TimeoutError as error:
            return str(error)
        return "in time"

    @session.step(queue="mutex", retry=Retry(attempts=2, delay=10))
    async def flaky() -> None:
        done.append("attempt")
        raise ValueError("flaky")

    @session.workflow
    async def retry_in_time(ctx: WorkflowContext) -> str:
        try:
            async with ctx.timeout(60):
                await flaky()
        except TimeoutError as error:
            return str(error)
        return "in time"

    @session.workflow
    async def patient(ctx: WorkflowContext) -> str:
        return await brief("after an hour")

    return session


async def test_a_deadline_cancels_a_step_that_waits_and_frees_its_place() -> None:
    async with test_session(clock=VirtualClock(skip=False)) as session:
        done: list[str] = []
        with_deadlines(session, done)
        await session.start("holder")
        waiting, other = [await session.start(name) for name in ("in_time", "patient")]
        await until(lambda: session.list_queues()[0].waiting == 2)
        await session.clock.advance(59)
        assert waiting.waiting_for == 'for queue "mutex"'
        await session.clock.advance(2)
        assert await waiting.wait() == "timed out after 60 s"
        assert session.list_queues()[0].waiting == 1
        assert types(waiting)[-3:] == ["timer_fired", "queue_cancelled", "workflow_completed"]
        await assert_replays(waiting)
        await session.clock.advance(3600)
        assert (await other.wait(), done) == ("after an hour", []), "its own timeout did not run"
        await assert_replays(other)


async def test_a_deadline_ends_a_child_run_that_waits_to_start() -> None:
    async with test_session(clock=VirtualClock(skip=False)) as session:
        with_deadlines(session, [])
        await session.start("holder")
        parent = await session.start("child_in_time")
        await until(lambda: session.list_queues()[0].waiting == 1)
        await session.clock.advance(61)
        assert await parent.wait() == "timed out after 60 s"
        assert session.list_queues()[0].waiting == 0
        await assert_replays(parent)


async def test_a_deadline_ends_a_step_that_waits_for_its_second_attempt() -> None:
    async with test_session(clock=VirtualClock(skip=False)) as session:
        done: list[str] = []
        with_deadlines(session, done)
        run = await session.start("retry_in_time")
        await until(lambda: done == ["attempt"] and session.list_queues()[0].running == 0)
        await session.start("holder")
        await until(lambda: session.list_queues()[0].running == 1)
        await session.clock.advance(15)
        await until(lambda: session.list_queues()[0].waiting == 1)
        await session.clock.advance(50)
        assert await run.wait() == "timed out after 60 s"
        assert (session.list_queues()[0].waiting, done) == (0, ["attempt"])
        await assert_replays(run)


@pytest.mark.parametrize("is_evicted", [False, True])
async def test_a_deadline_around_a_step_that_waits_holds_after_a_restart(
    file: Path, is_evicted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    clock = VirtualClock(skip=False)
    if is_evicted:
        monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 0)
    async with test_session(store=file, clock=clock) as session:
        with_deadlines(session, done)
        await session.start("holder")
        run = await session.start("in_time")
        await until(lambda: session.list_queues()[0].waiting == 1)
        run_id = run.run_id
        await clock.advance(30)
    async with test_session(store=file, clock=clock) as session:
        with_deadlines(session, done)
        await session.recover()
        if is_evicted:
            await until(lambda: run_id not in session.engine.executors)
        assert session.list_queues()[0].waiting == 1
        await clock.advance(31)
        found = session.get_workflow_run(run_id)
        assert found is not None
        assert await found.wait() == "timed out after 60 s"
        assert (session.list_queues()[0].waiting, done) == (0, [])
        await assert_replays(found)


def open_racing(store: MemoryStore, turns: int) -> Session:
    """A body that cancels a gate and a waiting step some turns of the loop after a slot is free."""
    session = Session(store=store, queues=[Queue("one", concurrency=1)])
    release = asyncio.Event()

    async def work(context: Any) -> None:
        if context.input == "holder":
            await release.wait()

    FunctionNode("queued", session, work, queue="one")

    @session.workflow
    async def main(ctx: WorkflowContext) -> list[str]:
        ended: list[str] = []

        async def note_end(name: str, work: Any) -> None:
            try:
                await work
            finally:
                ended.append(name)

        holder = asyncio.ensure_future(ctx.run("queued", "holder"))
        pairs = [("gate", ctx.gate("Never answered")), ("step", ctx.run("queued", "waiter"))]
        others = [asyncio.ensure_future(note_end(*pair)) for pair in pairs]
        await ctx.gate("Go?")
        release.set()
        await spin(turns)
        for other in others:
            other.cancel()
        await asyncio.wait([holder, *others])
        return ended

    return session


@pytest.mark.parametrize("turns", range(10))
async def test_a_slot_that_becomes_free_does_not_change_the_order_of_cancelled_steps(turns: int) -> None:
    store = MemoryStore()
    run = await open_racing(store, turns).start("main")
    result = await finish(run)
    [again] = await open_racing(copied(store, run.run_id, len(run.events) - 1), turns).recover()
    assert await again.wait() == result == ["gate", "step"]
