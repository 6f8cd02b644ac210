"""The laws of replay, over generated workflow functions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.programs import BLIND, World, build, copied, finish, programs, settled
from nerve import FunctionNode, Session
from nerve.core.run_view import fold_events
from nerve.store.memory import MemoryStore

DELAYS = st.lists(st.integers(0, 12), min_size=1, max_size=5)
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
FULL = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


async def complete(program: Any, delays: list[int]) -> tuple[Any, MemoryStore, str, World]:
    store, world = MemoryStore(), World(delays)
    session = build(program, world, store)
    run = await session.start("main")
    return await finish(run), store, run.run_id, world


async def rebuilt(
    program: Any, delays: list[int], store: MemoryStore, run_id: str, upto: int
) -> tuple[Any, Any, World, MemoryStore]:
    world = World(delays)
    other = copied(store, run_id, upto)
    session = build(program, world, other)
    await session.recover()
    run = session.get_workflow_run(run_id)
    assert run is not None
    return await finish(run), run, world, other


async def check_every_prefix(program: Any, delays: list[int], blind: bool, step: int) -> None:
    result, store, run_id, _ = await complete(program, delays)
    rows = store.events(run_id)
    for upto in sorted({*range(1, len(rows), step), len(rows) - 1}):
        again, run, world, other = await rebuilt(program, delays[::-1], store, run_id, upto)
        events = run.events
        assert not settled(rows[:upto]) & {path for run_of, path in world.done if run_of == run_id}, (
            "a settled call ran again"
        )
        assert [(e.seq, e.event_type, e.path) for e in events[:upto]] == [
            (r.seq, r.type, r.path) for r in rows[:upto]
        ]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        if blind:
            assert comparable(again) == comparable(result)
        if upto == len(rows) - 1:
            assert again == result
        assert run.view.state == "completed"
        once_more, *_ = await rebuilt(program, delays, other, run_id, len(other.events(run_id)) - 1)
        assert once_more == again, "the run that was rebuilt is rebuilt otherwise"


def comparable(value: Any) -> Any:
    """Return a result without clock readings, random values and call numbers."""
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[1], float):
            return "clock"
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name != "at"}
    return value


@QUICK
@given(programs(BLIND), DELAYS)
def test_discarding_a_run_after_any_event_and_rebuilding_it_changes_nothing(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=True, step=3))


@QUICK
@given(programs(), DELAYS)
def test_an_order_sensitive_body_is_rebuilt_after_any_event(program: Any, delays: list[int]) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=False, step=3))


@pytest.mark.full
@FULL
@given(programs(BLIND), DELAYS)
def test_rebuilding_after_every_event_changes_nothing_in_many_programs(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=True, step=1))


@pytest.mark.full
@FULL
@given(programs(), DELAYS)
def test_rebuilding_order_sensitive_bodies_after_every_event_in_many_programs(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=False, step=1))


@QUICK
@given(programs(BLIND), DELAYS, DELAYS)
def test_the_order_of_completion_changes_nothing_for_an_order_insensitive_body(
    program: Any, one: list[int], other: list[int]
) -> None:
    first = asyncio.run(complete(program, one))
    second = asyncio.run(complete(program, other))
    assert comparable(first[0]) == comparable(second[0])
    assert sorted(path for _, path in first[3].done) == sorted(path for _, path in second[3].done)


@QUICK
@given(programs(), DELAYS)
def test_the_view_of_any_prefix_is_valid_and_the_events_are_dense(program: Any, delays: list[int]) -> None:
    async def scenario() -> Any:
        store, world = MemoryStore(), World(delays)
        run = await build(program, world, store).start("main")
        await finish(run)
        return run.events

    events = asyncio.run(scenario())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(event.event_type for event in events)
    states = [fold_events(events[:upto]).state for upto in range(len(events) + 1)]
    assert states[0] == "pending"
    assert set(states[1:-1]) <= {"running", "waiting"}
    assert states[-1] == "completed"


async def cancels_the_other(ctx: Any) -> Any:
    tasks = [asyncio.create_task(ctx.run(name)) for name in ("one", "two")]
    _, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.wait(tasks)


async def leaves_the_other(ctx: Any) -> Any:
    tasks = [asyncio.create_task(ctx.run(name)) for name in ("one", "two")]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def fails_before_the_other(ctx: Any) -> Any:
    async def fails(name: str) -> None:
        await ctx.run(name)
        raise ValueError("enough")

    await asyncio.gather(fails("one"), fails("two"))


@pytest.mark.parametrize("body", [cancels_the_other, leaves_the_other, fails_before_the_other])
async def test_a_body_that_ends_without_awaiting_a_result_ends_the_same_way_after_a_crash(body: Any) -> None:
    def opened(store: MemoryStore) -> Session:
        session, both = Session("test", store), asyncio.Barrier(2)

        async def work(context: Any) -> Any:
            await both.wait()

        for name in ("one", "two"):
            FunctionNode(name, session, work)
        session.workflow(body, id="main")
        return session

    store = MemoryStore()
    run = await opened(store).start("main")
    await run._wait_until_ended()
    rows = store.events(run.run_id)
    assert [row.type for row in rows[3:5]] == ["node_completed"] * 2
    (again,) = await opened(copied(store, run.run_id, 5)).recover()
    with contextlib.suppress(ValueError):
        await again.wait()
    assert again.state is run.state
